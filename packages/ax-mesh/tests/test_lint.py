"""A planted contradiction is found by its line; what the rules ask for is not."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from ax_mesh import DEFAULT_RULES, Mesh, Surprise, compile_program, lint
from ax_mesh.testing import ToySpec

SPECS = {
    "up": ToySpec((3, 32, 96), ("layers", "embed", "mlp")),
    "down": ToySpec((3, 96, 32), ("layers", "mlp", "embed")),
    "scale": ToySpec((3, 32), ("layers", "norm")),
}
HIDDEN = ("batch", "seq", "embed")


def layer(mesh: Mesh, x: jax.Array, weights: dict[str, jax.Array], planted: tuple[str | None, ...] | None) -> jax.Array:
    x = mesh.constrain(x, HIDDEN)
    inner = mesh.constrain(jnp.tanh(x * weights["scale"] @ weights["up"]), ("batch", "seq", "mlp"))
    x = x + mesh.constrain(inner @ weights["down"], HIDDEN)
    if planted is not None:
        x = jnp.sin(x)
        x = mesh.constrain(x, planted)  # planted
        x = jnp.cos(x)
    return mesh.constrain(x, HIDDEN)


def surprises(axes: dict[str, int], planted: tuple[str | None, ...] | None = None) -> list[Surprise]:
    mesh = Mesh.Config(axes=axes).build()

    def step(weights: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        def loss(weights: dict[str, jax.Array]) -> jax.Array:
            def body(x: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, None]:
                return layer(mesh, x, weights, planted), None

            return jax.lax.scan(jax.checkpoint(body), x.astype(jnp.float32), weights)[0].mean()

        gradients: dict[str, jax.Array] = jax.grad(loss)(weights)
        return gradients

    shardings = mesh.shardings(SPECS)
    weights = jax.tree.map(
        lambda spec, sharding: jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding), SPECS, shardings
    )
    x = jax.ShapeDtypeStruct((8, 16, 32), jnp.int32, sharding=mesh.batch_sharding(8))
    with jax.numpy_rank_promotion("allow"), mesh.activate():
        lowered = jax.jit(step, out_shardings=shardings).lower(weights, x)
    quick = {"xla_backend_optimization_level": "0"}  # It is about what the partitioner leaves, not what is made of it.
    return lint(compile_program(lowered, mesh.axes, compiler_options=quick), DEFAULT_RULES)


@pytest.mark.parametrize(
    "axes",
    [{"data": 8}, {"fsdp": 8}, {"data": 2, "fsdp": 4}, {"data": 2, "fsdp": 2, "tensor": 2}, {"tensor": 8}],
    ids=str,
)
def test_what_the_rules_ask_for_is_no_surprise(axes: dict[str, int]) -> None:
    assert [str(each) for each in surprises(axes)] == []


@pytest.mark.parametrize("planted", [(None, "seq", "embed"), (None, "batch", "embed"), (None, None, None)], ids=str)
def test_a_planted_constraint_is_found_by_its_line(planted: tuple[str | None, ...]) -> None:
    found = surprises({"data": 2, "fsdp": 2, "tensor": 2}, planted)
    assert found
    lines = Path(__file__).read_text("utf-8").splitlines()
    planted_line = next(number for number, line in enumerate(lines, 1) if line.endswith("# planted"))
    named = {frame.line for each in found for frame in (each.line, *each.constraints) if frame is not None}
    assert planted_line in named
    assert str(found[0].collective.kind) in str(found[0])
    assert f"test_lint.py:{found[0].line.line if found[0].line else 0}" in str(found[0])
    sent = [each.collective.times * each.collective.wire_bytes for each in found]
    assert sent == sorted(sent, reverse=True)
    assert {"data", "fsdp"} & {axis for each in found for axis in each.collective.axes}
