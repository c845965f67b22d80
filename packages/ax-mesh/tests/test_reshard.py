"""State from any mesh to any other, bit for bit, in the memory that is promised."""

from __future__ import annotations

import gc
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_mesh import Mesh, _reshard, reshard
from ax_mesh.testing import ToySpec
from hypothesis import given, settings
from hypothesis import strategies as st

_DTYPES = [np.dtype(name) for name in ("float32", "int8", "uint32", "bool")] + [np.dtype(jnp.bfloat16)]
_SIZES = st.sampled_from([1, 3, 4, 8])
_SPECS = st.lists(
    st.tuples(_SIZES, st.sampled_from([None, "embed", "mlp"])), max_size=3, unique_by=lambda dim: dim[1] or object()
).flatmap(
    lambda dims: st.sampled_from(_DTYPES).map(
        lambda dtype: ToySpec(tuple(size for size, _ in dims), tuple(axis for _, axis in dims), dtype)
    )
)


@st.composite
def _meshes(draw: st.DrawFn) -> Mesh:
    """Of some of the devices, in any order."""
    devices = draw(st.permutations(jax.devices()))[: draw(st.sampled_from([1, 2, 4, 8]))]
    tensor = draw(st.sampled_from([size for size in (1, 2, 4) if len(devices) % size == 0]))
    data = draw(st.sampled_from([1, 2])) if len(devices) // tensor % 2 == 0 else 1
    config = Mesh.Config(axes={"data": data, "fsdp": -1, "tensor": tensor}, indivisible="replicate")
    return config.build(devices=devices)


def _any_bits(spec: ToySpec, seed: int) -> np.ndarray:
    """NaNs of every kind among them."""
    numbers = np.random.default_rng(seed)
    if spec.dtype == np.bool_:
        return numbers.integers(0, 2, spec.shape).astype(np.bool_)
    return np.frombuffer(numbers.bytes(math.prod(spec.shape) * spec.dtype.itemsize), spec.dtype).reshape(spec.shape)


@settings(deadline=None, max_examples=40)
@given(
    specs=st.dictionaries(st.sampled_from("abc"), _SPECS, min_size=1),
    old=_meshes(),
    new=_meshes(),
    max_bytes=st.sampled_from([1, 24, 1024]),
    donate=st.booleans(),
)
def test_any_state_moves_between_any_two_meshes(
    specs: dict[str, ToySpec], old: Mesh, new: Mesh, max_bytes: int, donate: bool
) -> None:
    values = {name: _any_bits(spec, seed) for seed, (name, spec) in enumerate(specs.items())}
    shardings = {"old": old.shardings(specs), "new": new.shardings(specs)}
    state = jax.tree.map(jax.device_put, values, shardings["old"])
    moved = reshard(state, shardings["new"], max_bytes=max_bytes, donate=donate)
    for name, value in values.items():
        sharding = shardings["new"][name]  # type: ignore[index]
        assert moved[name].sharding.is_equivalent_to(sharding, value.ndim)
        assert moved[name].dtype == value.dtype
        for shard in moved[name].addressable_shards:
            assert np.asarray(shard.data).tobytes() == value[shard.index].tobytes()
        if donate:
            assert state[name].is_deleted() == (moved[name] is not state[name])
        else:
            assert np.asarray(state[name]).tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e5m2, jnp.float8_e4m3fn])
def test_every_value_of_a_narrow_float_arrives(dtype: type) -> None:
    narrow = jnp.dtype(dtype)
    bits = np.dtype(f"uint{8 * narrow.itemsize}")
    value = np.arange(1 << 8 * narrow.itemsize).astype(bits).view(narrow).reshape(16, -1)
    specs = {"a": ToySpec(value.shape, ("embed", "mlp"), narrow)}
    old = Mesh.Config(axes={"fsdp": 4, "tensor": 2}).build()
    new = Mesh.Config(axes={"fsdp": 2, "tensor": 4}).build()
    state = jax.tree.map(jax.device_put, {"a": value}, old.shardings(specs))
    moved = reshard(state, new.shardings(specs), max_bytes=100)["a"]
    assert np.asarray(moved).view(bits).tolist() == value.view(bits).tolist()


def _live_bytes() -> int:
    """Of all buffers on the devices, each counted once."""
    buffers = {
        shard.data.unsafe_buffer_pointer(): shard.data.nbytes
        for array in jax.live_arrays()
        if not array.is_deleted()
        for shard in array.addressable_shards
    }
    return sum(buffers.values())


@pytest.mark.parametrize("donate", [False, True])
def test_the_extra_memory_is_that_which_is_promised(donate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Mesh.Config(axes={"data": 2, "fsdp": 2, "tensor": 2}).build()
    new = Mesh.Config(axes={"fsdp": 4}).build(devices=jax.devices()[2:6])
    specs = {name: ToySpec((64, 96), ("mlp", "embed")) for name in "abcd"}
    one = 64 * 96 * 4
    max_bytes = 1000
    gc.collect()  # What earlier tests left behind is not to go while we measure.
    before = _live_bytes()
    state = jax.jit(
        lambda: {name: jnp.full((64, 96), i, jnp.float32) for i, name in enumerate("abcd")},
        out_shardings=old.shardings(specs),
    )()
    seen, sent = [], _reshard._sent

    def watched(piece: jax.Array, device: jax.Device) -> jax.Array:
        arrived = sent(piece, device)
        assert piece.nbytes <= max_bytes
        seen.append(_live_bytes() - before)  # here both ends of the piece are alive
        return arrived

    monkeypatch.setattr(_reshard, "_sent", watched)
    moved = reshard(state, new.shardings(specs), max_bytes=max_bytes, donate=donate)
    # Of each old array there are two copies, of each new one a single one.
    old_and_new = 4 * 2 * one + (one if donate else 4 * one)
    assert len(seen) > 50
    assert max(seen) <= old_and_new + 2 * max_bytes
    assert max(seen) > old_and_new - one, "the measure sees what is alive"
    assert _live_bytes() - before == (4 * one if donate else 3 * 4 * one)
    assert [float(moved[name][0, 0]) for name in "abcd"] == [0, 1, 2, 3]


def test_what_can_not_be_moved_is_named() -> None:
    mesh = Mesh.Config(axes={"fsdp": 8}).build()
    specs = {"a": {"w": ToySpec((8,), ("embed",))}}
    state = {"a": {"w": jnp.zeros(8)}}
    state["a"]["w"].delete()
    with pytest.raises(ValueError, match="a/w: the array has been deleted"):
        reshard(state, mesh.shardings(specs))
    with pytest.raises(ValueError, match="max_bytes is at least 1"):
        reshard(state, mesh.shardings(specs), max_bytes=0)
