"""A checkpoint from any mesh goes to any other, through the trainer's seam: bit for bit, as a live move does."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ax_mesh import Mesh, reshard
from ax_mesh.testing import ToySpec
from ax_runtime.checkpoint import OrbaxCheckpointer
from hypothesis import given, settings
from hypothesis import strategies as st

_DTYPES = [np.dtype(np.float32), np.dtype(np.int8), np.dtype(jnp.bfloat16)]


@st.composite
def _meshes(draw: st.DrawFn) -> Mesh:
    devices = draw(st.permutations(jax.devices()))[: draw(st.sampled_from([1, 2, 4, 8]))]
    tensor = draw(st.sampled_from([size for size in (1, 2, 4) if len(devices) % size == 0]))
    return Mesh.Config(axes={"fsdp": -1, "tensor": tensor}, indivisible="replicate").build(devices=devices)


@settings(deadline=None, max_examples=10)
@given(
    shapes=st.lists(st.tuples(st.sampled_from([1, 3, 4, 8]), st.sampled_from([1, 4, 6])), min_size=1, max_size=3),
    old=_meshes(),
    new=_meshes(),
)
def test_saved_on_any_mesh_and_restored_on_any_other(shapes: list[tuple[int, int]], old: Mesh, new: Mesh) -> None:
    specs = {f"p{i}": ToySpec(shape, ("embed", "mlp"), _DTYPES[i % len(_DTYPES)]) for i, shape in enumerate(shapes)}
    numbers = np.random.default_rng(0)
    values = {
        name: np.frombuffer(numbers.bytes(spec.shape[0] * spec.shape[1] * spec.dtype.itemsize), spec.dtype).reshape(
            spec.shape
        )
        for name, spec in specs.items()
    }
    state = jax.tree.map(jax.device_put, values, old.shardings(specs))
    abstract = jax.tree.map(
        lambda spec, sharding: jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding),
        specs,
        new.shardings(specs),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(OrbaxCheckpointer.Config().build(folder=Path(folder))) as checkpointer,
    ):
        checkpointer.save(1, state, {})
        checkpointer.wait()
        restored, _ = checkpointer.restore(1, abstract)
    for moved in (restored, reshard(state, new.shardings(specs), max_bytes=16)):
        for name, value in values.items():
            assert moved[name].sharding.is_equivalent_to(abstract[name].sharding, 2)
            assert np.asarray(moved[name]).tobytes() == value.tobytes(), name
