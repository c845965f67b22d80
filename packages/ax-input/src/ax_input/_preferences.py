"""Preference pairs: two answers to a prompt, the first of which is preferred. What a loss like DPO's compares (arXiv:2305.18290).

A pair is one document, the chosen answer's sequence and then the rejected one's, so that it is prepared, filtered and dealt out like any
other. ``PreferenceRows`` makes rows of it: ``[2, T]``, the chosen one first. A batch of them is ``[B, 2, T]``; a language model takes it as
``[2 · B, T]``, and what the loss needs are the sums of log-probabilities of a row's targets, as ``[B, 2]`` again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._chat import TOOLS_FIELD, ChatEncoder, Part
from ._encoders import token_dtype
from ._errors import DataError, Reason
from ._record import Record
from ._rows import IGNORED_TARGET
from .protocols import TokenDocuments, Tokenizer


@final
class PreferenceEncoder:
    """A prompt and two answers as ``tokens``, ``weights`` (0 for the prompt, 1 for the answer) and ``rejected`` (0, then 1).

    Prompt and answers are texts, or lists of messages that the chat template makes text of; without a prompt the answers are whole
    conversations. An answer that is a text is followed by the end mark; the template sees to that of messages.
    """

    class Config(ax_config.Config["PreferenceEncoder"]):
        """Which fields."""

        prompt_field: str = field(default="prompt", help="what both answer; may be absent from conversations")
        chosen_field: str = field(default="chosen", help="the preferred answer")
        rejected_field: str = field(default="rejected", help="the other")
        chat: ChatEncoder.Config = field(default_factory=ChatEncoder.Config, help="how messages become text")

    def __init__(self, cfg: Config, /, *, tokenizer: Tokenizer) -> None:
        self._cfg = cfg
        self._tokenizer = tokenizer
        self._chat = cfg.chat.build(tokenizer=tokenizer)
        self.identity = ax_config.dumps(cfg)
        self.fields: Sequence[str] = (cfg.chosen_field, cfg.rejected_field, cfg.prompt_field, TOOLS_FIELD)
        self.dtypes: Mapping[str, np.dtype] = {
            "tokens": token_dtype(tokenizer),
            "weights": np.dtype("<f4"),
            "rejected": np.dtype("u1"),
        }

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        """The arrays, all ``[T]``, and the bytes of both answers. Raises BadRecordError when there is no such pair."""
        pair = [self._side(record, name) for name in (self._cfg.chosen_field, self._cfg.rejected_field)]
        arrays = {
            "tokens": np.concatenate([side["tokens"] for side, _ in pair]),
            "weights": np.concatenate([side["weights"] for side, _ in pair]),
            "rejected": np.repeat(np.array([0, 1], np.uint8), [len(side["tokens"]) for side, _ in pair]),
        }
        return arrays, sum(num_bytes for _, num_bytes in pair)

    def _side(self, record: Record, name: str) -> tuple[Mapping[str, np.ndarray], int]:
        prompt, answer = record.fields.get(self._cfg.prompt_field), record.field(name)
        if isinstance(prompt, str) and isinstance(answer, str):
            parts = [Part(record.text(self._cfg.prompt_field), False), Part(record.text(name), True)]
            arrays, num_bytes = self._chat.encode(parts, record.origin)
            ended = np.append(arrays["tokens"], np.int32(self._tokenizer.eos_id))
            return {"tokens": ended, "weights": np.append(arrays["weights"], np.float32(1.0))}, num_bytes
        if isinstance(answer, list) and isinstance(prompt, list | None):
            return self._chat.encode(self._chat.parts(record, [*(prompt or ()), *answer]), record.origin)
        got = f"{type(prompt).__name__} and {type(answer).__name__}"
        raise record.bad(
            Reason.WRONG_TYPE,
            f"{self._cfg.prompt_field!r} and {name!r}: wanted two texts or lists of messages, got {got}",
        )


@final
class PreferenceRows:
    """Pairs as rows of one length: ``tokens`` and ``targets``, ``[2, T]`` int32, the chosen sequence and the rejected one.

    Targets are -1 for the prompt and past the end. What is longer than ``seq_length`` loses its end: take out such pairs before
    (``by_length``) when none may.
    """

    def __init__(self, pairs: TokenDocuments, *, seq_length: int) -> None:
        if seq_length < 1:
            raise DataError(f"seq_length: wanted at least 1, got {seq_length}")
        self._pairs = pairs
        self._seq_length = seq_length

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        pair = self._pairs[index]
        tokens = np.zeros((2, self._seq_length), np.int32)
        targets = np.full((2, self._seq_length), IGNORED_TARGET, np.int32)
        for row in (0, 1):
            of_row = pair["rejected"] == row
            ids = pair["tokens"][of_row]
            counted = np.where(pair["weights"][of_row] > 0, ids, IGNORED_TARGET)
            length = min(len(ids), self._seq_length)
            tokens[row, :length] = ids[:length]
            following = counted[1 : length + 1]
            targets[row, : len(following)] = following
        return {"tokens": tokens, "targets": targets}

    @property
    def fingerprint(self) -> str:
        """Changes when any row does."""
        return f"{self._pairs.fingerprint}/{self._seq_length}"
