"""What a program communicates, holds and computes, on programs of which all of it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import pytest
from ax_mesh import Collective, Mesh, Program, compile_program, flops
from ax_mesh._hlo import parse
from jax.sharding import PartitionSpec

R = TypeVar("R")

MESH = Mesh.Config(axes={"data": 2, "fsdp": 2, "tensor": 2}).build()
FSDP = Mesh.Config(axes={"data": 2, "fsdp": 4}).build()


def described(shape: tuple[int, ...], *split: str | tuple[str, ...] | None, mesh: Mesh = FSDP) -> jax.ShapeDtypeStruct:
    sharding = jax.sharding.NamedSharding(mesh.jax_mesh, PartitionSpec(*split))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def collectives(fn: Callable[..., object], x: jax.ShapeDtypeStruct) -> list[Collective]:
    with MESH.activate():
        return compile_program(jax.jit(fn).lower(x), MESH.axes).collectives


def by_shards(fn: Callable[[jax.Array], R]) -> Callable[..., R]:
    whole = PartitionSpec()
    sharded: Callable[..., R] = jax.shard_map(fn, mesh=MESH.jax_mesh, in_specs=whole, out_specs=whole, check_vma=False)
    return sharded


def test_a_sum_in_a_loop_of_five() -> None:
    def loop(x: jax.Array) -> jax.Array:
        summed, _ = jax.lax.scan(lambda x, _: (jax.lax.psum(x, ("data", "tensor")), None), x, length=5)
        return summed

    (found,) = collectives(by_shards(loop), described((100,), mesh=MESH))
    assert (found.kind, found.axes, found.group_size, found.times) == ("all-reduce", ("data", "tensor"), 4, 5)
    assert found.exact
    assert found.written
    assert found.operand_bytes == found.result_bytes == 400
    assert found.wire_bytes == 2 * 400 * 3 // 4
    assert found.frames[0].file == __file__
    assert "psum" in Path(__file__).read_text("utf-8").splitlines()[found.frames[0].line - 1]


def test_every_kind_has_its_bytes() -> None:
    def each(x: jax.Array) -> tuple[jax.Array, ...]:
        return (
            jax.lax.all_gather(x, "data"),
            jax.lax.psum_scatter(x, "fsdp", tiled=True),
            jax.lax.all_to_all(x, "tensor", 0, 0, tiled=True),
            jax.lax.ppermute(x, "data", [(0, 1), (1, 0)]),
        )

    found = {each.kind: each for each in collectives(by_shards(each), described((64, 2), mesh=MESH))}
    expected = {
        # operand, result, sent; of 512 bytes
        "all-gather": ("data", 512, 1024, 512),
        "reduce-scatter": ("fsdp", 512, 256, 256),
        "all-to-all": ("tensor", 512, 512, 256),
        "collective-permute": ("data", 512, 512, 512),
    }
    assert {
        kind: (*each.axes, each.operand_bytes, each.result_bytes, each.wire_bytes) for kind, each in found.items()
    } == expected
    assert all(each.written and each.exact and each.times == 1 for each in found.values())


def test_a_loop_that_data_ends_is_not_exact() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: jax.lax.psum(x, "fsdp"), x)

    (found,) = collectives(by_shards(loop), described((8,), mesh=MESH))
    assert (found.times, found.exact) == (1, False)


def fsdp_step(weights: jax.Array, x: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            return jax.lax.with_sharding_constraint(jnp.tanh(x @ weight), X.sharding), None

        return jax.lax.scan(jax.checkpoint(layer), x, weights)[0].sum()

    gradient: jax.Array = jax.grad(loss)(weights)
    return gradient


WEIGHTS = described((3, 64, 64), None, "fsdp", None)
X = described((64, 64), ("data", "fsdp"))


def fsdp_program() -> Program:
    with FSDP.activate():
        lowered = jax.jit(fsdp_step, out_shardings=WEIGHTS.sharding).lower(WEIGHTS, X)
        return compile_program(lowered, FSDP.axes)


def test_fsdp_gathers_weights_and_scatters_gradients() -> None:
    program = fsdp_program()
    assert not any(found.written for found in program.collectives)
    assert all(found.exact and found.times == 3 for found in program.collectives)
    sent = Counter[tuple[str, tuple[str, ...]]]()
    for found in program.collectives:
        sent[found.kind, found.axes] += found.times * found.wire_bytes
    layer = 64 * 64 * 4
    gathers = sent.pop(("all-gather", ("fsdp",)))
    assert gathers == 2 * 3 * layer * 3 // 4, (
        "forward and backward, each of three layers, of which a device has a quarter"
    )
    assert sent == {
        ("reduce-scatter", ("fsdp",)): 3 * layer * 3 // 4,
        ("all-reduce", ("data",)): 3 * 2 * (layer // 4) // 2,
    }


def test_flops_multiply_loops_and_count_what_is_computed_again() -> None:
    weights, x = jax.ShapeDtypeStruct((3, 64, 64), jnp.float32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
    product = 2 * 64 * 64 * 64
    # Three layers: forward, forward again, and two products of the backward pass.
    assert flops(jax.make_jaxpr(fsdp_step)(weights, x)) == 3 * 4 * product
    assert flops(jax.jit(fsdp_step).trace(weights, x).jaxpr) == 3 * 4 * product
    assert fsdp_program().flops_per_device == 3 * 4 * product / 8


def test_flops_of_calls_by_shards_and_branches() -> None:
    def product(x: jax.Array) -> jax.Array:
        chosen: jax.Array = jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)
        return chosen

    x = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    assert flops(jax.make_jaxpr(product)(x)) == 2 * 2 * 16**3
    assert flops(jax.make_jaxpr(by_shards(product))(x)) == 8 * 2 * 2 * 16**3
    groups = jax.ShapeDtypeStruct((4,), jnp.int32)
    experts = jax.ShapeDtypeStruct((4, 16, 32), jnp.float32)
    assert flops(jax.make_jaxpr(jax.lax.ragged_dot)(x, experts, groups)) == 2 * 16 * 16 * 32


def test_memory_is_what_a_device_holds() -> None:
    memory = fsdp_program().memory
    assert memory.arguments == 4 * (3 * 64 * 64 // 4 + 64 * 64 // 8)
    assert memory.outputs == 4 * 3 * 64 * 64 // 4
    assert memory.total >= memory.arguments + memory.outputs + memory.temporaries
    assert memory.host == 0


def test_a_program_for_more_devices_than_the_mesh_has_is_refused() -> None:
    with FSDP.activate():
        lowered = jax.jit(fsdp_step).lower(WEIGHTS, X)
    with pytest.raises(ValueError, match="for more devices than the 4 of the mesh"):
        _ = compile_program(lowered, {"data": 2, "fsdp": 2}).collectives


RAGGED = """
HloModule experts

ENTRY %main (x: bf16[1024,256], w: bf16[8,256,128], sizes: s32[8], dy: bf16[1024,128]) -> bf16[8,256,128] {
  %x = bf16[1024,256]{1,0} parameter(0)
  %w = bf16[8,256,128]{2,1,0} parameter(1)
  %sizes = s32[8]{0} parameter(2)
  %dy = bf16[1024,128]{1,0} parameter(3)
  %y = bf16[1024,128]{1,0} ragged-dot(%x, %w, %sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  %dx = bf16[1024,256]{1,0} ragged-dot(%dy, %w, %sizes), lhs_contracting_dims={1}, rhs_contracting_dims={2}, lhs_ragged_dims={0}, rhs_group_dims={0}
  ROOT %dw = bf16[8,256,128]{2,1,0} ragged-dot(%x, %dy, %sizes), lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}
}
"""


def test_rows_in_groups_are_multiplied_once_each() -> None:
    compiled = jax.jit(jnp.sin).lower(1.0).compile()
    assert Program(compiled, parse(RAGGED), {}).flops_per_device == 3 * 2 * 1024 * 256 * 128
