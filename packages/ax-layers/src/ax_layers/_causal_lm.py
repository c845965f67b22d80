"""The causal language model: embedding, layers, norm, head, and the loss.

It states the interface that its parts share (width and vocabulary) once and hands it to them; what the parts are is not
its business. Training, prefill and decode are methods over the same parts and parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from ._as_model import AUX_LOSS, NUM_TARGETS
from ._context import Collected, RandomKey, Summary
from ._cross_entropy import cap_logits, cross_entropy
from ._embedding import Embedding
from ._functional import functional
from ._microbatches import merged
from ._module import Module, scoped
from ._output_head import Head
from ._rms_norm import RMSNorm
from .protocols import (
    ArrayFn,
    ArrayTree,
    CrossEntropyFn,
    FurtherPredictions,
    LMCache,
    OutputHead,
    PositionEmbedding,
    SequenceLayer,
    SupportsPiecewiseLoss,
    TokenEmbedding,
)


class CausalLM(Module):
    """Tokens to the logits of the tokens that follow."""

    class Config(ax_config.Config["CausalLM"]):
        """The shared widths, and the parts."""

        vocab_size: int = REQUIRED
        dim: int
        layers: Buildable[SequenceLayer]
        embedding: Buildable[TokenEmbedding] = field(default_factory=Embedding.Config)
        position_embedding: Buildable[PositionEmbedding] | None = None  # None: positions are the layers' business
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)
        head: Buildable[OutputHead] | None = field(default_factory=Head.Config)  # None: the embedding's weight (tied)
        logit_scale: float = 1.0  # before the cap
        logit_cap: float | None = None
        cross_entropy: Buildable[CrossEntropyFn] = field(default_factory=lambda: partial_for(cross_entropy))
        further: Buildable[FurtherPredictions] | None = None  # what is predicted beside the next token, in training
        eval_accuracy: bool = True  # when not training, report the accuracy too; needs all logits at once

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._logit_scale, self._logit_cap = cfg.logit_scale, cfg.logit_cap
        self._eval_accuracy = cfg.eval_accuracy
        self.embedding = self.child("embedding", cfg.embedding, vocab_size=cfg.vocab_size, dim=cfg.dim)
        self.position_embedding: PositionEmbedding | None = None
        if cfg.position_embedding is not None:
            self.position_embedding = self.child("position_embedding", cfg.position_embedding, dim=cfg.dim)
        self.layers = self.child("layers", cfg.layers, dim=cfg.dim)
        self.norm = self.child("norm", cfg.norm, dim=cfg.dim)
        if cfg.head is not None:
            self.head: OutputHead = self.child("head", cfg.head, vocab_size=cfg.vocab_size, dim=cfg.dim)
        elif isinstance(self.embedding, OutputHead):
            self.head = self.embedding
        else:
            raise ValueError(
                f"a {type(self.embedding).__qualname__} can't serve as the output head; give CausalLM a head"
            )
        self._tied_flops = 6 * cfg.vocab_size * cfg.dim if cfg.head is None else 0
        self.cross_entropy = self.child("cross_entropy", cfg.cross_entropy)
        self.further = None if cfg.further is None else self.child("further", cfg.further, dim=cfg.dim)

    @scoped
    def __call__(
        self, tokens: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T]`` int32 → logits ``[B, T, V]`` float32."""
        return self._logits(self._hidden(tokens, positions=positions, segments=segments))

    @scoped
    def loss(self, batch: Mapping[str, jax.Array], /, *, train: bool) -> tuple[jax.Array, dict[str, Summary]]:
        """The mean cross-entropy over the targets that count, and metrics.

        ``batch`` has "tokens" and "targets" ``[B, T]`` int32, a negative target not counting; and may have "segments" and
        "positions" ``[B, T]`` int32.
        """
        positions, segments = batch.get("positions"), batch.get("segments")
        embedded_BTD = self.constrain(self._embed(batch["tokens"], positions), ("batch", "seq", None))
        if isinstance(self.layers, SupportsPiecewiseLoss) and not (train and self.further is not None):
            return self._loss_by_pieces(self.layers, embedded_BTD, batch, train=train)
        layered_BTD = self.layers(embedded_BTD, positions=positions, segments=segments)
        hidden_BTD = self._normed(layered_BTD)
        loss, mean = self._mean_loss(hidden_BTD, batch["targets"], NUM_TARGETS)
        metrics = {"loss": mean}
        if train and self.further is not None:
            parts = self.further(layered_BTD, embedded_BTD, batch["targets"], positions=positions, segments=segments)
            losses = []
            for distance, part in enumerate(parts, 2):
                share, metrics[f"loss_{distance}"] = self._mean_loss(
                    part.hidden * self._logit_scale, part.targets, f"{NUM_TARGETS}_{distance}"
                )
                losses.append(share)
            self.output(AUX_LOSS, self.further.weight * jnp.stack(losses).sum())
        if self._eval_accuracy and not train:
            right_BT = self._logits(hidden_BTD).argmax(axis=-1) == batch["targets"]
            metrics["accuracy"] = _mean(right_BT.astype(jnp.float32), batch["targets"] >= 0)
        return loss, metrics

    def _loss_by_pieces(
        self, layers: SupportsPiecewiseLoss, embedded_BTD: jax.Array, batch: Mapping[str, jax.Array], *, train: bool
    ) -> tuple[jax.Array, dict[str, Summary]]:
        """The same with layers that go through the batch in pieces: what comes after them goes with them."""
        own = _number(batch["targets"] >= 0)
        number = self.of_batch(NUM_TARGETS, own)
        call = functional(self._piece)

        def tail(
            shared: tuple[ArrayTree, RandomKey | None, jax.Array], layered_bTD: jax.Array, targets_bT: jax.Array
        ) -> tuple[jax.Array, tuple[jax.Array | None, Collected]]:
            params, random, number = shared
            (loss, right), collected = call(params, random, layered_bTD, targets_bT, number, train=train)
            return loss, (right, collected)

        parts = ("norm", "cross_entropy", "head" if "head" in self.children else "embedding")
        params = {name: self.params[name] for name in parts if name in self.params}
        random = None if self.random is None else self.random.computed()
        loss, (right, collected) = layers.piecewise_loss(
            embedded_BTD,
            tail,
            (params, random, number),
            batch["targets"],
            positions=batch.get("positions"),
            segments=batch.get("segments"),
        )
        self.absorb(merged(collected, dim=0, num_rows=batch["targets"].shape[0]))
        metrics = {"loss": Summary(loss * number / jnp.maximum(own, 1), own)}
        if right is not None:
            metrics["accuracy"] = Summary(right.sum(), own)
        return loss, metrics

    def _piece(
        self, layered_bTD: jax.Array, targets_bT: jax.Array, number: jax.Array, /, *, train: bool
    ) -> tuple[jax.Array, jax.Array | None]:
        """A piece's part of the mean loss over ``number`` targets, and of the accuracy."""
        hidden_bTD, counted_bT = self._normed(layered_bTD), targets_bT >= 0
        loss = _sum(self._losses(hidden_bTD, targets_bT), counted_bT.reshape(-1)) / _positive(number)
        if train or not self._eval_accuracy:
            return loss, None
        right_bT = self._logits(hidden_bTD).argmax(axis=-1) == targets_bT
        return loss, _sum(right_bT.astype(jnp.float32), counted_bT) / jnp.maximum(number, 1)

    def _mean_loss(self, hidden_BTD: jax.Array, targets_BT: jax.Array, number: str) -> tuple[jax.Array, Summary]:
        """The mean over the batch's targets, whose ``number`` it asks for under this name, and the one over those here."""
        losses_M, counted_M = self._losses(hidden_BTD, targets_BT), (targets_BT >= 0).reshape(-1)
        share = _sum(losses_M, counted_M) / _positive(self.of_batch(number, _number(counted_M)))
        return share, _mean(losses_M, counted_M)

    def _losses(self, hidden_BTD: jax.Array, targets_BT: jax.Array) -> jax.Array:
        losses_M, _ = self.cross_entropy(
            hidden_BTD.reshape(-1, hidden_BTD.shape[-1]),
            self.head.output_weight(),
            jnp.maximum(targets_BT, 0).reshape(-1),
            logit_cap=self._logit_cap,
        )
        return losses_M

    def init_cache(self, batch_size: int, max_length: int, /) -> LMCache:
        """Of sequences with no token read yet."""
        layers = self.layers.init_cache(batch_size=batch_size, max_length=max_length)
        return LMCache(lengths=jnp.zeros(batch_size, jnp.int32), layers=layers)

    @scoped
    def prefill(self, tokens: jax.Array, lengths: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """Read the first ``lengths`` ``[B]`` (at least 1) of tokens ``[B, T]``; logits ``[B, V]`` after the last of them."""
        steps = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        positions = jnp.where(steps < lengths[:, None], cache["lengths"][:, None] + steps, -1)
        hidden_BTD, layers = self._extend(tokens, cache["layers"], positions)
        last_BD = jnp.take_along_axis(hidden_BTD, (lengths - 1)[:, None, None], axis=1)[:, 0]
        return self._logits(last_BD), LMCache(lengths=cache["lengths"] + lengths, layers=layers)

    @scoped
    def decode(self, tokens: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """Read one token a sequence, ``[B]``; logits ``[B, V]`` after it."""
        hidden_B1D, layers = self._extend(tokens[:, None], cache["layers"], cache["lengths"][:, None])
        return self._logits(hidden_B1D[:, 0]), LMCache(lengths=cache["lengths"] + 1, layers=layers)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The parts', and the matmul with the embedding's weight if it serves as the head; the head once a prediction."""
        further = 0 if self.further is None else self.further.num_predictions
        own = self.children["head"].training_flops_per_token(seq_length) if "head" in self.children else 0
        return super().training_flops_per_token(seq_length) + further * own + (1 + further) * self._tied_flops

    def _hidden(self, tokens: jax.Array, *, positions: jax.Array | None, segments: jax.Array | None) -> jax.Array:
        x = self.constrain(self._embed(tokens, positions), ("batch", "seq", None))
        return self._normed(self.layers(x, positions=positions, segments=segments))

    def _extend(self, tokens: jax.Array, cache: ArrayTree, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        x, cache = self.layers.extend(self._embed(tokens, positions), cache, positions=positions)
        return self._normed(x), cache

    def _embed(self, tokens: jax.Array, positions: jax.Array | None) -> jax.Array:
        x = self.embedding(tokens)
        return x if self.position_embedding is None else self.position_embedding(x, positions=positions)

    def _normed(self, x: jax.Array) -> jax.Array:
        """What the head is given. It is linear, so the logits' scale can be the vectors'."""
        x = self.norm(x)
        return x if self._logit_scale == 1 else x * self._logit_scale

    def _logits(self, hidden: jax.Array) -> jax.Array:
        logits = cap_logits(self.head.attend(hidden), self._logit_cap)
        return self.constrain(logits, ("batch", *(None,) * (logits.ndim - 2), "vocab"))


def _mean(values: jax.Array, counted: jax.Array) -> Summary:
    """The mean of the values that count, and how many they are."""
    number = _number(counted)
    return Summary(_sum(values, counted) / _positive(number), number)


def _sum(values: jax.Array, counted: jax.Array) -> jax.Array:
    return jnp.where(counted, values, 0.0).sum()


def _positive(number: jax.Array) -> jax.Array:
    """To divide a sum by that is zero where the number is; a mean of numbers may be less than 1."""
    return jnp.maximum(number, 1e-30)


def _number(counted: jax.Array) -> jax.Array:
    return counted.sum(dtype=jnp.int32).astype(jnp.float32)
