import json
import pickle
from pathlib import Path

import pytest
import tokenizers
from ax_input import DataError, HuggingFaceTokenizer
from ax_input.testing import check_tokenizer

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_tokenizer(folder: Path) -> Path:
    """A small byte-level BPE, as GPT-2's is."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.enable_truncation(4)  # as some published files do; a document isn't to be cut
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        special_tokens=SPECIALS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 9], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    return folder


def test_it_is_a_tokenizer(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer.Config(path=str(write_tokenizer(tmp_path))).build()
    check_tokenizer(tokenizer)
    assert (tokenizer.eos_token, tokenizer.eos_id) == ("<|endoftext|>", 0)
    text = "the quick brown fox jumps over the lazy dog"
    ids = tokenizer.encode(text)
    assert 4 < len(ids) < len(text) / 2
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    reference.no_truncation()
    assert tokenizer.vocab_size == reference.get_vocab_size()
    assert ids.tolist() == reference.encode(text).ids
    assert tokenizer.decode([-1, *ids, 10**6, tokenizer.eos_id]) == text
    copied = pickle.loads(pickle.dumps(tokenizer))
    assert copied.encode(text).tolist() == ids.tolist()
    assert copied.fingerprint == tokenizer.fingerprint


def test_special_tokens_are_text_unless_marked(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer.Config(path=str(write_tokenizer(tmp_path))).build()
    text = "the dog<|im_end|>the fox"
    assert 2 not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    marked = tokenizer.encode_marked(text)
    assert marked.tolist().count(2) == 1
    assert tokenizer.decode(marked) == "the dogthe fox"


def test_the_end_mark(tmp_path: Path) -> None:
    file = write_tokenizer(tmp_path) / "tokenizer.json"
    assert HuggingFaceTokenizer.Config(path=str(file), eos_token="<|im_end|>").build().eos_id == 2
    with pytest.raises(DataError, match=r"no token '<\|end\|>' to end a document with; did you mean <\|im_end\|>"):
        HuggingFaceTokenizer.Config(path=str(file), eos_token="<|end|>").build()
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(DataError, match="what ends a document"):
        HuggingFaceTokenizer.Config(path=str(file)).build()


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json: no tokenizer can be read there"):
        HuggingFaceTokenizer.Config(path=str(tmp_path / "nowhere.json")).build()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="not a tokenizer"):
        HuggingFaceTokenizer.Config(path=str(tmp_path)).build()
