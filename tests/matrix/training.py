"""Three steps of a small model of the catalogue, on one device or on many, with everything that can be compared kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import ax_config
import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import Buildable
from ax_layers import as_model
from ax_mesh import Mesh
from ax_recipes import llama, qwen3_moe
from ax_recipes.protocols import LanguageModel
from ax_trainer import compile_step, init_state

Kind = Literal["dense", "moe"]

NUM_STEPS = 3
VOCAB_SIZE = 96
BATCH_SIZE = 16
SEQ_LENGTH = 32

DENSE = llama.Sizes(num_layers=4, dim=32, num_heads=4, num_kv_heads=4, head_dim=8, hidden_dim=64)
MOE = qwen3_moe.Sizes(
    num_layers=4, dim=32, num_heads=4, num_kv_heads=4, head_dim=8, hidden_dim=16, num_experts=8, experts_per_token=2
)


@dataclass(frozen=True)
class Training:
    """What is to be the same, whatever it ran on."""

    initial: Mapping[str, np.ndarray]
    """The parameters before the first step, by path."""
    losses: list[float]
    gradients: list[Mapping[str, np.ndarray]]
    """Of each step."""


class Setup:
    """A model and the mesh for it: the tree that modifiers change."""

    class Config(ax_config.Config["Setup"]):
        """The two."""

        model: Buildable[LanguageModel]
        mesh: Buildable[Mesh] = ax_config.field(default_factory=Mesh.Config)

    def __init__(self, cfg: Config, /, *, devices: Sequence[jax.Device]) -> None:
        self.model = cfg.model.build(vocab_size=VOCAB_SIZE)
        self.mesh = cfg.mesh.build(devices=devices)


def setup(kind: Kind) -> Setup.Config:
    """The model as the catalogue has it, and the mesh without any choice made."""
    return Setup.Config(model=llama.model(DENSE) if kind == "dense" else qwen3_moe.model(MOE))


def batches(*, packed: bool) -> list[dict[str, np.ndarray]]:
    """Batches of random tokens; packed ones hold documents of random lengths, and some targets don't count."""
    numbers = np.random.default_rng(7)
    found = []
    for _ in range(NUM_STEPS):
        shape = (BATCH_SIZE, SEQ_LENGTH)
        batch = {name: numbers.integers(VOCAB_SIZE, size=shape, dtype=np.int32) for name in ("tokens", "targets")}
        if packed:
            starts = numbers.random(shape) < 0.15
            starts[:, 0] = True
            batch["segments"] = np.cumsum(starts, axis=1, dtype=np.int32)
            rows = np.arange(SEQ_LENGTH, dtype=np.int32)[None]
            batch["positions"] = rows - np.maximum.accumulate(np.where(starts, rows, 0), axis=1, dtype=np.int32)
            batch["targets"] = np.where(np.roll(starts, -1, axis=1), np.int32(-1), batch["targets"])
        found.append(batch)
    return found


def train(setup: Setup, *, packed: bool) -> Training:
    """Train by the trainer's own compiled step. Its gradients are seen in the state of an optimizer that only keeps them."""
    mesh, model = setup.mesh, as_model(setup.model, sharder=setup.mesh)
    optimizer = optax.chain(optax.trace(decay=0.0), optax.sgd(0.02, momentum=0.9))
    state = init_state(model, optimizer, mesh, seed=0)
    initial = by_path(state.params)
    losses: list[float] = []
    gradients: list[Mapping[str, np.ndarray]] = []
    step = None
    for batch in batches(packed=packed):
        put = mesh.put(own_rows(batch))
        if step is None:
            described = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in put.items()}
            step = compile_step(model, optimizer, mesh, described)
        state, metrics = step(state, put)
        losses.append(float(metrics["loss"][0]))
        kept, _ = cast("tuple[optax.TraceState, object]", state.opt_state)
        gradients.append(by_path(kept.trace))
    return Training(initial, losses, gradients)


def own_rows(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """This process's part of a batch."""
    number, index = jax.process_count(), jax.process_index()
    return {name: np.split(x, number)[index] for name, x in batch.items()}


def by_path(tree: object) -> dict[str, np.ndarray]:
    """The whole arrays of a tree by their paths, also where other processes hold parts of them."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): whole(leaf) for path, leaf in leaves}


def whole(x: jax.Array) -> np.ndarray:
    """An array, gathered from all processes."""
    if x.is_fully_addressable:
        return np.asarray(x)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def check_equal(got: Training, wanted: Training, *, tolerance: float = 1e-5) -> None:
    """The same initial parameters bit for bit; losses and gradients within ``tolerance`` of the largest value of an array."""
    assert got.initial.keys() == wanted.initial.keys()
    for path, value in wanted.initial.items():
        np.testing.assert_array_equal(got.initial[path], value, err_msg=f"the initial {path}")
    np.testing.assert_allclose(got.losses, wanted.losses, rtol=tolerance, err_msg="losses")
    for number, (one, other) in enumerate(zip(got.gradients, wanted.gradients, strict=True), 1):
        for path, value in other.items():
            np.testing.assert_allclose(
                one[path],
                value,
                rtol=0,
                atol=tolerance * max(float(np.abs(value).max()), 1e-3),
                err_msg=f"step {number}, the gradient of {path}",
            )
