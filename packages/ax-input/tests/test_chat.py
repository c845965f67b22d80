import json
from pathlib import Path

import numpy as np
import pytest
from ax_input import BadRecordError, ByteTokenizer, ChatEncoder, DataError, Reason, Record, read_chat_template
from ax_input.protocols import SupportsMarks

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "Grün?"},
    {"role": "assistant", "content": "Ja, grün."},
]
UNMARKED = (
    "{%- for message in messages -%}\n{{ '[' + message.role + ']' + message.content + eos_token }}\n{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}[assistant]{%- endif -%}"
)


def encode(messages: object, **settings: str) -> tuple[str, str, int]:
    """The whole text, what is learnt of it, and the bytes of that."""
    encoder = ChatEncoder.Config(**settings).build(tokenizer=ByteTokenizer())
    arrays, num_bytes = encoder(Record({"messages": messages}, "chat.jsonl", 7))
    assert {name: (array.dtype.name, array.ndim) for name, array in arrays.items()} == {
        "tokens": ("int32", 1),
        "weights": ("float32", 1),
    }
    tokens, weights = arrays["tokens"], arrays["weights"]
    assert set(weights.tolist()) <= {0.0, 1.0}
    decode = ByteTokenizer().decode
    learnt = "".join(
        decode(run) + "|" for run in np.split(tokens, np.flatnonzero(np.diff(weights)) + 1)[int(weights[0] == 0) :: 2]
    )
    return decode(tokens), learnt, num_bytes


def test_what_the_model_says_counts() -> None:
    text, learnt, num_bytes = encode(MESSAGES)
    assert text == "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in MESSAGES)
    assert learnt == "Four.<|im_end|>|Ja, grün.<|im_end|>|"
    assert num_bytes == len(learnt.replace("|J", "J").encode()) - 1


def test_templates_without_marks() -> None:
    text, learnt, _ = encode(MESSAGES, template=UNMARKED, eos_token="</s>")
    assert text == "".join(f"[{m['role']}]{m['content']}</s>" for m in MESSAGES)
    assert learnt == "Four.</s>|Ja, grün.</s>|"


def test_a_template_that_rewrites_earlier_messages_is_refused() -> None:
    only_last = "{% for m in messages %}[{{ m.role }}]{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}"
    with pytest.raises(
        BadRecordError, match=r"chat\.jsonl:7: refused: the template writes messages otherwise"
    ) as caught:
        encode(MESSAGES, template=only_last)
    assert caught.value.reason == Reason.REFUSED


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("text", "wanted a list of messages"),
        ([{"content": "no role"}], "wanted a list of messages"),
        (MESSAGES[:2], "the model says nothing"),
        ([{"role": "assistant"}], "by the chat template: .*content"),
        ([{"role": "assistant", "content": "\ufdd0"}], "U.FDD0"),
    ],
)
def test_bad_conversations(messages: object, message: str) -> None:
    with pytest.raises(BadRecordError, match=message):
        encode(messages)


def test_what_templates_of_models_use() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m.content | tojson }}{% endfor %}"
        "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}"
    )
    messages = [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "ü"}]
    assert encode(messages, template=template)[:2] == ('"ü"', '"ü"|')
    encoder = ChatEncoder.Config(template=template).build(tokenizer=ByteTokenizer())
    with pytest.raises(BadRecordError, match="by the chat template: no tools here"):
        encoder(Record({"messages": messages, "tools": [1]}, "x", 1))
    with pytest.raises(DataError, match="not a chat template"):
        ChatEncoder.Config(template="{% for %}").build(tokenizer=ByteTokenizer())
    with pytest.raises(BadRecordError, match="by the chat template"):  # the sandbox
        encode(messages, template="{{ messages.__class__.__mro__[1].__subclasses__() }}")


def test_special_tokens_of_the_template() -> None:
    class Marked(ByteTokenizer):  # type: ignore[misc]  # final, for users
        vocab_size = 300

        def encode_marked(self, text: str, /) -> np.ndarray:
            pieces = text.split("<|im_end|>")
            return np.concatenate([self.encode(pieces[0]), *(np.append(299, self.encode(p)) for p in pieces[1:])])

    tokenizer = Marked()
    assert isinstance(tokenizer, SupportsMarks)
    arrays, _ = ChatEncoder.Config().build(tokenizer=tokenizer)(Record({"messages": MESSAGES}, "x", 1))
    assert (arrays["tokens"] == 299).sum() == 5
    assert arrays["weights"][arrays["tokens"] == 299].tolist() == [0, 0, 1, 0, 1]


def test_the_template_of_a_model(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no chat template"):
        read_chat_template(tmp_path)
    named = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]
    for kept in ("a", named):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": kept}))
        assert read_chat_template(tmp_path) == "a"
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert read_chat_template(tmp_path) == "{{ messages }}"
