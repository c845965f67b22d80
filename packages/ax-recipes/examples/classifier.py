"""A small convolutional network that tells classes of images or spectrograms apart, and its training: what both examples share.

The network is plain JAX. It fits ``Model`` of ax-trainer by its three functions; everything else meets here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for
from ax_input import ExampleBatches, ExampleStream
from ax_input.protocols import Source
from ax_mesh import Mesh
from ax_trainer import Evaluator, Trainer

Example = Mapping[str, np.ndarray]
Params = dict[str, jax.Array]

KERNEL = 3


@dataclass(frozen=True)
class Kernel:
    """A parameter as meshes and trainers want to know it: its dims have no names, so every device holds all of it."""

    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """They are all of one."""
        return np.dtype(np.float32)

    @property
    def axes(self) -> tuple[None, ...]:
        """The names of its dims."""
        return (None,) * len(self.shape)


class Classifier:
    """Convolutions of stride 2 with ReLU, a mean over all places, a linear layer; on ``inputs`` ``[B, H, W, C]``."""

    def __init__(self, *, channels: tuple[int, ...], num_classes: int) -> None:
        self._num_layers = len(channels) - 1
        self._kernels = {
            f"conv{i}": Kernel((KERNEL, KERNEL, channels[i], channels[i + 1])) for i in range(self._num_layers)
        } | {"head": Kernel((channels[-1], num_classes))}

    def specs(self) -> dict[str, Kernel]:
        """The kernels' shapes."""
        return self._kernels

    def init(self, key: jax.Array, /) -> Params:
        """Random kernels that keep the variance (He et al. 2015, arXiv:1502.01852)."""
        keys = jax.random.split(key, len(self._kernels))
        draw = jax.nn.initializers.he_normal()
        return {
            name: draw(one, kernel.shape, jnp.float32)
            for one, (name, kernel) in zip(keys, self._kernels.items(), strict=True)
        }

    def loss(
        self, params: Params, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        """The mean cross-entropy over targets that count, and how many are right."""
        del key, train
        x = batch["inputs"]
        for i in range(self._num_layers):
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, params[f"conv{i}"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        logits = x.mean(axis=(1, 2)) @ params["head"]
        targets = batch["targets"]
        counts = (targets >= 0).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(targets, 0))
        right = (logits.argmax(axis=-1) == targets).astype(jnp.float32)
        weight = counts.sum()
        loss = (losses * counts).sum() / jnp.maximum(weight, 1.0)
        accuracy = (right * counts).sum() / jnp.maximum(weight, 1.0)
        return loss, {"loss": (loss, weight), "accuracy": (accuracy, weight)}


def train(
    model: Classifier, *, examples: Source[Example], held_out: Source[Example], num_steps: int
) -> Mapping[str, float]:
    """Train on the devices here; what the evaluation at the end says."""
    trainer = Trainer(
        Trainer.Config(
            num_steps=num_steps, optimizer=config_for(optax.adam)(learning_rate=3e-3), evaluate_every=num_steps
        ),
        model=model,
        partitioner=Mesh.Config().build(),
        batches=ExampleStream(examples, batch_size=64),
        evaluators={"test": Evaluator(lambda: ExampleBatches(held_out, batch_size=64))},
    )
    return trainer.run().metrics["test"]
