"""Tokenizers of Hugging Face models: a ``tokenizer.json``, by the ``tokenizers`` library."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import ax_config
import numpy as np
from ax_config import field, nearest

from ._errors import DataError

_FILE = "tokenizer.json"
_SETTINGS = "tokenizer_config.json"


@final
class HuggingFaceTokenizer:
    """A ``tokenizer.json``; fits ``Tokenizer``. Needs the extra ``ax-input[tokenizers]``.

    Raises DataError when there is no such file, or it isn't told what ends a document.
    """

    class Config(ax_config.Config["HuggingFaceTokenizer"]):
        """Which file, and what ends a document."""

        path: str = field(help="tokenizer.json, or the folder of a model that holds one")
        eos_token: str | None = field(
            default=None, help="what ends a document; None means what tokenizer_config.json beside it says"
        )

    def __init__(self, cfg: Config, /) -> None:
        given = Path(cfg.path).expanduser()
        file = given / _FILE if given.is_dir() else given
        if importlib.util.find_spec("tokenizers") is None:
            raise DataError(f"{file}: reading it needs tokenizers: pip install 'ax-input[tokenizers]'")
        # Imported here: an extra.
        import tokenizers

        try:
            data = file.read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"{file}: no tokenizer can be read there: {error.strerror}") from error

        def load(*, specials_are_text: bool) -> Any:
            try:
                tokenizer = tokenizers.Tokenizer.from_str(data)
            except Exception as error:  # the library raises no kind of its own
                raise DataError(f"{file}: not a tokenizer: {error}") from error
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = specials_are_text
            return tokenizer

        self._plain = load(specials_are_text=True)
        self._marked = load(specials_are_text=False)
        vocabulary: dict[str, int] = self._plain.get_vocab(with_added_tokens=True)
        self.vocab_size: int = 1 + max(vocabulary.values())
        """One more than the largest id; a model's vocabulary may be padded to more."""
        self.eos_token = cfg.eos_token if cfg.eos_token is not None else _eos_token(file)
        """The text of the token that ends a document."""
        if self.eos_token not in vocabulary:
            specials = [token.content for token in self._plain.get_added_tokens_decoder().values()]
            hint = nearest(self.eos_token, specials)
            raise DataError(f"{file}: no token {self.eos_token!r} to end a document with; {hint}")
        self.eos_id: int = vocabulary[self.eos_token]
        """Its id."""
        self.fingerprint: str = hashlib.blake2b(data.encode(), digest_size=16).hexdigest()
        """A digest of the file."""

    def encode(self, text: str, /) -> np.ndarray:
        """The ids of ``text``, ``[T]`` int32. A text that reads like a special token is text like any other."""
        return np.asarray(self._plain.encode(text, add_special_tokens=False).ids, np.int32)

    def encode_marked(self, text: str, /) -> np.ndarray:
        """The same, but what reads like a special token becomes it: for the text of a template."""
        return np.asarray(self._marked.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        """The text of ``ids``; special tokens and ids outside of the vocabulary are dropped."""
        array = np.asarray(ids, np.int64)
        inside = array[(array >= 0) & (array < self.vocab_size)]
        text: str = self._plain.decode(inside.tolist(), skip_special_tokens=True)
        return text


def _eos_token(file: Path) -> str:
    settings = file.with_name(_SETTINGS)
    if settings.is_file():
        token = json.loads(settings.read_text(encoding="utf-8")).get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    raise DataError(f"{file}: what ends a document? Set eos_token; there is no {_SETTINGS} beside it that says")
