"""Gradients of a batch in parts are those of the batch whole, whatever the layers make of a batch as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import partial_for, replace, role
from ax_layers import (
    BalancingBias,
    Capacity,
    Distillation,
    FurtherTokens,
    GatedExperts,
    ModuleModel,
    MoE,
    TopKRouter,
    as_model,
    load_balance_loss,
    pipelined,
    router_z_loss,
)
from ax_mesh import Mesh
from ax_trainer import compile_step, init_state, lower_step
from ax_trainer.protocols import Metrics, Optimizer, Partitioner
from ax_trainer.testing import SingleDevice

from . import small

VOCAB_SIZE = 32
ROUTER = TopKRouter.Config(
    top_k=2,
    bias=BalancingBias.Config(),
    losses={"balance": partial_for(load_balance_loss, weight=0.5), "z": partial_for(router_z_loss)},
)
EXPERTS = GatedExperts.Config(hidden_dim=32)
MIXTURE = MoE.Config(num_experts=8, router=ROUTER, experts=EXPERTS)


def _model(config: object) -> ModuleModel:
    return as_model(config.build(vocab_size=VOCAB_SIZE))  # type: ignore[attr-defined]


MODELS: Mapping[str, Callable[[], ModuleModel]] = {
    "dense": lambda: _model(small.lm()),
    "further tokens": lambda: _model(small.lm().clone(further=FurtherTokens.Config(num_tokens=2, layer=small.block()))),
    "experts": lambda: _model(replace(small.lm(), role("ffn"), MIXTURE)),
    "experts with capacity": lambda: _model(
        replace(small.lm(), role("ffn"), MIXTURE.clone(experts=EXPERTS.clone(dispatch=Capacity.Config(factor=0.5))))
    ),
    "distillation": lambda: _model(Distillation.Config(student=small.lm(), teacher=small.lm())),
    "experts in a pipeline": lambda: _model(pipelined(replace(small.lm(), role("ffn"), MIXTURE), num_microbatches=2)),
}


def _keeping() -> Optimizer:
    """Changes nothing, and remembers the gradients."""

    def update(updates: object, state: object, params: object = None) -> tuple[object, object]:
        return jax.tree.map(jnp.zeros_like, updates), updates

    made: Optimizer = optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)
    return made


@cache
def _batch() -> dict[str, np.ndarray]:
    """Eight rows, of which the first have few targets and one has none."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCAB_SIZE, (8, small.SEQ_LENGTH + 1))
    targets = np.where(np.arange(small.SEQ_LENGTH) < 2 * np.arange(8)[:, None], tokens[:, 1:], -1)
    return {"tokens": tokens[:, :-1].astype(np.int32), "targets": targets.astype(np.int32)}


Results: TypeAlias = tuple[dict[str, np.ndarray], dict[str, np.ndarray], Metrics]
"""Gradients, and next parameters, by path; and metrics."""


@cache
def _step(name: str, num_microbatches: int, *, exact: bool) -> Results:
    return _results(MODELS[name](), SingleDevice(), num_microbatches, exact=exact)


def _results(model: ModuleModel, place: Partitioner, num_microbatches: int, *, exact: bool) -> Results:
    batch = place.put(_batch())
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in batch.items()}
    step = compile_step(model, _keeping(), place, shapes, num_microbatches=num_microbatches, exact_microbatches=exact)
    state, metrics = step(init_state(model, _keeping(), place, seed=0), batch)
    gradients, params = (
        {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (state.opt_state, state.params))
    )
    return gradients, params, metrics


@pytest.mark.parametrize(("name", "num_microbatches"), [*((name, 2) for name in MODELS), ("experts", 8)])
def test_parts_give_the_gradients_of_the_whole(name: str, num_microbatches: int) -> None:
    want, states, metrics = _step("experts" if name == "experts in a pipeline" else name, 1, exact=False)
    got, new_states, new_metrics = _step(name, num_microbatches, exact=True)
    assert got.keys() == want.keys()
    for path, gradient in want.items():
        assert np.linalg.norm(got[path] - gradient) <= 1e-6 * max(1.0, float(np.linalg.norm(gradient))), path
    for path, value in states.items():
        np.testing.assert_allclose(new_states[path], value, rtol=1e-6, atol=1e-7, err_msg=path)
    for metric in {"loss", "grad_norm", "aux_loss"} & metrics.keys():
        np.testing.assert_allclose(new_metrics[metric][0], metrics[metric][0], rtol=2e-6, err_msg=metric)


@pytest.mark.parametrize("name", ["further tokens", "experts"])
def test_parts_that_are_told_nothing_do_not(name: str) -> None:
    """So the test above can fail."""
    want, *_ = _step(name, 1, exact=False)
    got, *_ = _step(name, 4, exact=False)
    assert max(np.abs(got[path] - gradient).max() for path, gradient in want.items()) > 1e-4


def test_on_a_mesh_too() -> None:
    """Where experts are split over devices, and rows of each part over others."""
    want, *_ = _step("experts", 1, exact=False)
    mesh = Mesh.Config(axes={"fsdp": 4, "expert": 2}).build()
    module = replace(small.lm(), role("ffn"), MIXTURE).build(vocab_size=VOCAB_SIZE)
    got, *_ = _results(as_model(module, sharder=mesh), mesh, 2, exact=True)
    for path, gradient in want.items():
        assert np.linalg.norm(got[path] - gradient) <= 2e-6 * max(1.0, float(np.linalg.norm(gradient))), path


def test_of_a_dense_model_it_costs_nothing() -> None:
    """The pass that finds out what the parts need has nothing to compute but the number of targets."""

    def flops(exact: bool) -> float:
        shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in _batch().items()}
        lowered = lower_step(
            MODELS["dense"](), _keeping(), SingleDevice(), shapes, num_microbatches=2, exact_microbatches=exact
        )
        costs = lowered.compile().cost_analysis()
        assert costs is not None
        return float(costs["flops"])

    assert flops(True) < 1.001 * flops(False)
