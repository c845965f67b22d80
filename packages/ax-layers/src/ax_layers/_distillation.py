"""Distillation (Hinton et al. 2015, arXiv:1503.02531): a language model that learns from another one beside the text.

The teacher's parameters are a part of the model's, and aren't learnt. The model is its student wherever it is asked for
text, so that it stands where a language model stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable

from ._as_model import NUM_TARGETS
from ._context import Summary
from ._functional import functional
from ._module import Module, scoped
from ._param_spec import ParamSpec, SpecTree
from .protocols import LanguageModel, LMCache


class Distillation(Module):
    """Its loss is ``(1 - weight) · cross-entropy + weight · τ² · KL(teacher ‖ student)``, at the temperature ``τ``.

    Reports "loss" (the cross-entropy with the text) and "divergence" (the KL, at temperature τ). Both models hold all
    logits of a batch.
    """

    class Config(ax_config.Config["Distillation"]):
        """The two models, of one vocabulary, and how far the one follows the other."""

        vocab_size: int = REQUIRED
        student: Buildable[LanguageModel]
        teacher: Buildable[LanguageModel]
        weight: float = 0.5
        temperature: float = 1.0

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 0 <= cfg.weight <= 1 or cfg.temperature <= 0:
            raise ValueError(
                f"distillation wants a weight between 0 and 1 and a temperature above 0, got {cfg.weight} and "
                f"{cfg.temperature}"
            )
        self._weight, self._temperature = cfg.weight, cfg.temperature
        self.student = self.child("student", cfg.student, vocab_size=cfg.vocab_size)
        self.teacher = self.child("teacher", cfg.teacher, vocab_size=cfg.vocab_size)

    def specs(self) -> SpecTree:
        """Those of both; the teacher's aren't learnt."""

        def fixed(spec: ParamSpec) -> ParamSpec:
            return with_fields(spec, trainable=False)

        specs = super().specs()
        return {**specs, "teacher": jax.tree.map(fixed, specs["teacher"])}

    @scoped
    def __call__(
        self, tokens: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """The student's logits."""
        return self.student(tokens, positions=positions, segments=segments)

    @scoped
    def loss(
        self, batch: Mapping[str, jax.Array], /, *, train: bool
    ) -> tuple[jax.Array, Mapping[str, tuple[jax.Array, jax.Array]]]:
        """The loss, and metrics; of a batch that isn't trained on, the student's own."""
        if not train:
            return self.student.loss(batch, train=False)
        tokens, positions, segments = batch["tokens"], batch.get("positions"), batch.get("segments")
        student_BTV = self.student(tokens, positions=positions, segments=segments)
        params = self.params["teacher"]
        assert isinstance(params, dict)
        teach = functional(self.teacher)  # its own dropout, losses and reports are of no interest
        teacher_BTV = jax.lax.stop_gradient(teach(params, None, tokens, positions=positions, segments=segments)[0])

        counted_BT = batch["targets"] >= 0
        number = counted_BT.sum(dtype=jnp.int32).astype(jnp.float32)
        of_batch = self.of_batch(NUM_TARGETS, number)

        def total(values_BT: jax.Array) -> jax.Array:
            return jnp.where(counted_BT, values_BT, 0.0).sum()

        is_target = jnp.arange(student_BTV.shape[-1])[None, None] == batch["targets"][..., None]
        log_p = jax.nn.log_softmax(student_BTV, axis=-1)
        loss = total(-jnp.where(is_target, log_p, 0.0).sum(axis=-1))
        soft = jax.nn.log_softmax(student_BTV / self._temperature, axis=-1)
        wanted = jax.nn.log_softmax(teacher_BTV / self._temperature, axis=-1)
        divergence = total((jnp.exp(wanted) * (wanted - soft)).sum(axis=-1))
        both = (1 - self._weight) * loss + self._weight * self._temperature**2 * divergence
        metrics = {"loss": Summary(loss / jnp.maximum(number, 1), number)}
        metrics["divergence"] = Summary(divergence / jnp.maximum(number, 1), number)
        return both / jnp.maximum(of_batch, 1e-30), metrics

    def init_cache(self, batch_size: int, max_length: int, /) -> LMCache:
        """The student's."""
        return self.student.init_cache(batch_size, max_length)

    @scoped
    def prefill(self, tokens: jax.Array, lengths: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """The student's."""
        return self.student.prefill(tokens, lengths, cache)

    @scoped
    def decode(self, tokens: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """The student's."""
        return self.student.decode(tokens, cache)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The student's, and the third of the teacher's that its forward pass is."""
        student, teacher = (each.training_flops_per_token(seq_length) for each in (self.student, self.teacher))
        return student + teacher / 3
