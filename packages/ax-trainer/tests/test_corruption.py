"""One bit that flipped on one device: found, with the device, its part of the array, and its path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_trainer import CorruptionError, find_corruption, init_state, verify_step
from ax_trainer.protocols import Batch, HostBatch, Metrics
from ax_trainer.testing import BigramModel, BigramParams, bigram_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DTYPES = [np.dtype(name) for name in ("float32", "int8", "uint32", "bool")] + [np.dtype(jnp.bfloat16)]


def grid(devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(np.array(devices).reshape(4, 2), ("data", "fsdp"))


def flipped(array: jax.Array, *, device: int, bit: int) -> jax.Array:
    """The same, but for one bit of what one device holds."""
    parts = []
    for shard in array.addressable_shards:
        data = np.array(shard.data)
        if shard.device.id == device:
            data.reshape(-1).view(np.uint8)[bit // 8 % data.nbytes] ^= 1 << bit % (1 if data.dtype == np.bool_ else 8)
        parts.append(jax.device_put(data, shard.device))
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, parts)


def state(dtype: np.dtype) -> dict[str, jax.Array]:
    mesh = grid(jax.devices())
    w = (np.arange(32).reshape(8, 4) % 2).astype(dtype)
    return {
        "copied": jax.device_put(w, NamedSharding(mesh, PartitionSpec("fsdp"))),
        "whole": jax.device_put(w, NamedSharding(mesh, PartitionSpec())),
        "split": jax.device_put(w, NamedSharding(mesh, PartitionSpec("data", "fsdp"))),
        "step": jax.device_put(np.int32(3), NamedSharding(mesh, PartitionSpec())),
        "alone": jax.device_put(w, jax.devices()[3]),
    }


@settings(deadline=None, max_examples=15)
@given(device=st.integers(0, 7), bit=st.integers(0, 8 * 64 - 1), dtype=st.sampled_from(DTYPES))
def test_a_flipped_bit_names_its_device(device: int, bit: int, dtype: np.dtype) -> None:
    good = state(dtype)
    assert find_corruption(good) == []
    (found,) = find_corruption({**good, "copied": flipped(good["copied"], device=device, bit=bit)})
    half = 4 * (device % 2)  # devices of one column hold one half
    assert (found.path, found.part, found.is_certain) == ("copied", ((half, half + 4), (0, 4)), True)
    assert [each.id for each in found.devices] == [device]
    assert str(found).startswith(f"copied[{half}:{half + 4}, 0:4] is wrong on ")


def test_of_two_copies_both_are_suspected() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    good = jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, PartitionSpec()))
    (found,) = find_corruption([flipped(good, device=1, bit=9)])
    assert (found.is_certain, {each.id for each in found.devices}) == (False, {0, 1})
    assert "which is right can't be told" in str(CorruptionError(7, [found]))


def test_parts_without_copies_are_compared_between_runs() -> None:
    good = state(np.dtype(np.float32))
    bad = {**good, "split": flipped(good["split"], device=5, bit=40)}
    assert find_corruption(bad) == []  # there is nothing to compare it with
    (found,) = find_corruption(good, bad, good)
    assert (found.path, [each.id for each in found.devices]) == ("split", [5])


@dataclass(frozen=True)
class DataParallel:
    """Parameters whole on every device, rows split."""

    devices: tuple[jax.Device, ...]

    def shardings(self, specs: object, /) -> object:
        return jax.tree.map(lambda _: self.replicated(), specs)

    def replicated(self) -> NamedSharding:
        return NamedSharding(Mesh(np.array(self.devices), ("data",)), PartitionSpec())

    def put(self, batch: HostBatch, /) -> Batch:
        rows = NamedSharding(Mesh(np.array(self.devices), ("data",)), PartitionSpec("data"))
        return {name: jax.device_put(array, rows) for name, array in batch.items()}

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()


class Off(BigramModel):
    """Computes its loss a little wrong."""

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss, metrics = super().loss(params, batch, key=key, train=train)
        return loss * (1 + 2**-20), metrics


@pytest.mark.parametrize("wrong", [None, 1])
def test_a_step_is_done_again_on_permuted_devices(wrong: int | None) -> None:
    devices = jax.devices()
    places = [DataParallel(tuple(order)) for order in (devices, devices[3:] + devices[:3], devices[::-1])]
    model, optimizer = BigramModel(), optax.adam(1e-2)
    begun = init_state(model, optimizer, places[0], seed=0)
    before = jax.tree.map(np.array, begun)
    placed = [(Off() if i == wrong else model, place) for i, place in enumerate(places)]
    found = verify_step(placed, optimizer, begun, bigram_batches(1, batch_size=8)[0])
    assert bool(found) == (wrong is not None)
    jax.tree.map(np.testing.assert_array_equal, before, begun)
