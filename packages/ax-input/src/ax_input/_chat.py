"""Conversations to learn from: of all that is in one, only what the model says is a target.

A list of messages becomes text by a chat template, in Jinja as the tokenizers of Hugging Face models carry it
(https://huggingface.co/docs/transformers/chat_templating). Which part of the text is the model's is told by the template, where it has
``{% generation %}`` tags. Else it is found by difference: what a message of the assistant adds to the text of those before it
followed by the prompt to answer, and that must be where the whole text goes on, or the record is refused.

Each part is tokenised alone, as it is when a model answers: the prompt first, then what the model writes, token by token.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import ax_config
import numpy as np
from ax_config import field

from ._encoders import checked_ids, token_dtype
from ._errors import DataError, Reason
from ._record import Record
from .protocols import SupportsMarks, Tokenizer

if TYPE_CHECKING:
    import jinja2

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The template that many models share, which marks what the assistant says and the end of its turn."""

_BEGIN, _END = "\ufdd0", "\ufdd1"  # code points that Unicode keeps from ever being characters
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_ASSISTANT = "assistant"
TOOLS_FIELD = "tools"
"""What templates are told of tools, where a record has it."""


class Part(NamedTuple):
    """A piece of a conversation's text, and whether the model said it."""

    text: str
    by_model: bool


@final
class ChatEncoder:
    """Conversations, a record each, as ``tokens`` and ``weights``: 1 for what the model says, else 0.

    Needs the extra ``ax-input[chat]``. With a tokenizer that ``SupportsMarks``, what reads like a special token becomes it.
    """

    class Config(ax_config.Config["ChatEncoder"]):
        """Where the messages are, and how they become text."""

        messages_field: str = field(default="messages", help="a list of objects with role and content")
        template: str = field(default=CHATML, help="the chat template, in Jinja; read_chat_template finds a model's")
        bos_token: str = field(default="", help="what the template calls bos_token")
        eos_token: str = field(default="", help="what the template calls eos_token")

    def __init__(self, cfg: Config, /, *, tokenizer: Tokenizer) -> None:
        self._cfg = cfg
        self._tokenizer = tokenizer
        self._marks = _GENERATION.search(cfg.template) is not None
        self.identity = ax_config.dumps(cfg)
        self.fields: Sequence[str] = (cfg.messages_field, TOOLS_FIELD)
        self.dtypes: Mapping[str, np.dtype] = {"tokens": token_dtype(tokenizer), "weights": np.dtype("<f4")}
        compiled(cfg.template)  # what is wrong with it is told at once

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        """``tokens`` int32 and ``weights`` float32, ``[T]``, and the bytes of what the model says."""
        parts = self.parts(record, record.field(self._cfg.messages_field))
        return self.encode(parts, record.origin)

    def encode(self, parts: Sequence[Part], origin: str) -> tuple[Mapping[str, np.ndarray], int]:
        """The arrays of parts, and the bytes of those that the model said."""
        encode = self._tokenizer.encode_marked if isinstance(self._tokenizer, SupportsMarks) else self._tokenizer.encode
        tokens = [checked_ids(encode(part.text), self._tokenizer, origin) for part in parts]
        weights = [np.full(len(ids), part.by_model, np.float32) for part, ids in zip(parts, tokens, strict=True)]
        num_bytes = sum(len(part.text.encode("utf-8")) for part in parts if part.by_model)
        return {"tokens": np.concatenate(tokens), "weights": np.concatenate(weights)}, num_bytes

    def parts(self, record: Record, messages: object) -> list[Part]:
        """The text of a conversation, cut where the model begins and ends to speak.

        Raises BadRecordError when ``messages`` is no conversation, the template refuses it, or the model says nothing in it.
        """
        if not (
            isinstance(messages, Sequence)
            and all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages)
        ):
            raise record.bad(Reason.WRONG_TYPE, "wanted a list of messages, objects with role and content")
        text = self._render(record, messages, answer=False)
        parts = _by_marks(text) if self._marks else self._by_difference(record, messages, text)
        if not any(part.by_model for part in parts):
            raise record.bad(Reason.REFUSED, "the model says nothing in this conversation")
        return parts

    def _by_difference(self, record: Record, messages: Sequence[Mapping[str, object]], text: str) -> list[Part]:
        parts: list[Part] = []
        done = 0
        for index, message in enumerate(messages):
            if message["role"] != _ASSISTANT:
                continue
            before = self._render(record, messages[:index], answer=True)
            through = self._render(record, messages[: index + 1], answer=False)
            if not (through.startswith(before) and text.startswith(through)):
                raise record.bad(
                    Reason.REFUSED,
                    "the template writes messages otherwise when more follow, so it can't be told which text is the model's; "
                    "mark it in the template: {% generation %} … {% endgeneration %}",
                )
            parts += [Part(text[done : len(before)], False), Part(text[len(before) : len(through)], True)]
            done = len(through)
        parts.append(Part(text[done:], False))
        return [part for part in parts if part.text]

    def _render(self, record: Record, messages: Sequence[Mapping[str, object]], *, answer: bool) -> str:
        import jinja2

        try:
            text = compiled(self._cfg.template).render(
                messages=messages,
                tools=record.fields.get(TOOLS_FIELD),
                add_generation_prompt=answer,
                bos_token=self._cfg.bos_token,
                eos_token=self._cfg.eos_token,
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise record.bad(Reason.REFUSED, f"by the chat template: {error}") from error
        if text.count(_BEGIN) != text.count(_END) or (not self._marks and _BEGIN in text):
            raise record.bad(Reason.UNDECODABLE, f"holds U+{ord(_BEGIN):X} or U+{ord(_END):X}, which are no characters")
        return text


def read_chat_template(folder: str | Path) -> str:
    """The chat template in a model's folder: ``chat_template.jinja``, or what ``tokenizer_config.json`` has."""
    file, settings = Path(folder) / "chat_template.jinja", Path(folder) / "tokenizer_config.json"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = json.loads(settings.read_text(encoding="utf-8")).get("chat_template") if settings.is_file() else None
    if isinstance(template, list):  # several by name
        template = {each["name"]: each["template"] for each in template}.get("default")
    if not isinstance(template, str):
        raise DataError(f"{folder}: no chat template (looked for {file.name} and {settings.name})")
    return template


@functools.lru_cache(maxsize=8)
def compiled(template: str) -> jinja2.Template:
    """A template, ready to be rendered, as Hugging Face's tokenizers do it. Raises DataError when it is none."""
    if importlib.util.find_spec("jinja2") is None:
        raise DataError("chat templates need jinja2: pip install 'ax-input[chat]'")
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """Puts marks around what the model says."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja has it

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            return f"{_BEGIN}{caller()}{_END}"

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    # The clock isn't offered, as transformers does: a conversation's tokens don't depend on the day.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise DataError(f"not a chat template: {error}") from error


def _by_marks(text: str) -> list[Part]:
    parts = []
    for piece in text.split(_BEGIN):
        said, mark, rest = piece.rpartition(_END)
        parts += [Part(said, True), Part(rest, False)] if mark else [Part(piece, False)]
    return [part for part in parts if part.text]
