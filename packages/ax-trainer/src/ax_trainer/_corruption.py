"""Silent corruption: what has to be the same bit for bit and isn't, and whose device it was.

Two things have to be. The copies of an array that several devices hold whole, parameters under data parallelism above all; and
the results of one step done again, from the same state and batch, on other devices. Each device takes a fingerprint of what
it holds; only those travel. Of copies that differ the few are wrong and the many right, so with three copies a device is named;
of two that differ both are under suspicion.

A fingerprint is two sums of the bits, weighted by position with odd numbers, modulo 2³²: one flipped bit always changes it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ._state import TrainState, abstract_state, shardings_of
from ._step import compile_step, describe
from .protocols import HostBatch, Model, Optimizer, Params, Partitioner

Box: TypeAlias = tuple[tuple[int, int], ...]
"""Where a part of an array begins and ends along each dim."""

_Fingerprint: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Corruption:
    """Copies of one part of one array that aren't the same."""

    path: str
    part: Box
    devices: tuple[jax.Device, ...]
    """Those that are wrong; where there is no majority, all that hold a copy."""
    is_certain: bool
    """Whether most copies agree, so that the others are the wrong ones."""

    def __str__(self) -> str:
        """For a log."""
        box = ", ".join(f"{start}:{stop}" for start, stop in self.part)
        names = ", ".join(f"{device} of process {device.process_index}" for device in self.devices)
        found = f"is wrong on {names}" if self.is_certain else f"differs between {names}; which is right can't be told"
        return f"{self.path}[{box}] {found}"


class CorruptionError(RuntimeError):
    """Devices disagree on what has to be the same. Nothing of it was saved."""

    def __init__(self, step: int, found: Sequence[Corruption]) -> None:
        self.step = step
        self.corruptions = tuple(found)
        listed = "\n".join(f"  {each}" for each in found[:_MOST_SHOWN])
        more = f"\n  and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        super().__init__(
            f"at step {step} copies of the training state differ that have to be the same:\n{listed}{more}\n"
            "The last checkpoint was made when they agreed, or before they were looked at; take the device out and go on from there"
        )


_MOST_SHOWN = 8


def find_corruption(*runs: object) -> list[Corruption]:
    """Of one tree of arrays, copies on several devices that differ; of several trees, also parts that differ between them.

    Trees are congruent, with parts alike, on whatever devices. Touches each array once on its device; fetches fingerprints alone.
    """
    votes: dict[tuple[str, Box], list[tuple[_Fingerprint, jax.Device]]] = {}
    for tree in runs:
        for path, array, of_devices in _fingerprints(tree):
            for device, index in array.sharding.devices_indices_map(array.shape).items():
                box = tuple(part.indices(size)[:2] for part, size in zip(index or (), array.shape, strict=True))
                votes.setdefault((path, box), []).append((of_devices[device], device))
    return [found for (path, box), cast_votes in votes.items() if (found := _judged(path, box, cast_votes))]


def _judged(path: str, box: Box, votes: Sequence[tuple[_Fingerprint, jax.Device]]) -> Corruption | None:
    ((most, number), *others) = Counter(fingerprint for fingerprint, _ in votes).most_common()
    if not others:
        return None
    is_certain = number > len(votes) / 2
    suspects = [device for fingerprint, device in votes if not is_certain or fingerprint != most]
    return Corruption(path, box, tuple(dict.fromkeys(suspects)), is_certain)


def _fingerprints(tree: object) -> Iterator[tuple[str, jax.Array, Mapping[jax.Device, _Fingerprint]]]:
    """Of each array, and in it of each device."""
    leaves = cast("list[tuple[tuple[object, ...], jax.Array]]", jax.tree_util.tree_leaves_with_path(tree))
    groups: dict[frozenset[jax.Device], list[tuple[str, jax.Array]]] = {}
    for path, array in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        groups.setdefault(frozenset(array.sharding.device_set), []).append((name, array))
    for group in groups.values():  # one program each, for a program has one set of devices
        arrays = [array for _, array in group]
        sums = jax.device_get(_sums_by_device(arrays, shardings=tuple(array.sharding for array in arrays)))
        for (name, array), rows in zip(group, sums, strict=True):
            devices = _devices(array.sharding)
            yield name, array, {device: (int(a), int(b)) for device, (a, b) in zip(devices, rows, strict=True)}


@functools.partial(jax.jit, static_argnames="shardings")
def _sums_by_device(arrays: Sequence[jax.Array], *, shardings: Sequence[jax.sharding.Sharding]) -> list[jax.Array]:
    """``[devices, 2]`` of each array, the same on all devices."""

    def of(x: jax.Array, sharding: jax.sharding.Sharding) -> jax.Array:
        if not isinstance(sharding, NamedSharding):
            return _sums(x)
        mesh, own = sharding.mesh, PartitionSpec(sharding.mesh.axis_names)
        sums = jax.shard_map(_sums, mesh=mesh, in_specs=sharding.spec, out_specs=own, check_vma=False)(x)
        replicated: jax.Array = jax.lax.with_sharding_constraint(sums, NamedSharding(mesh, PartitionSpec()))
        return replicated

    return [of(x, sharding) for x, sharding in zip(arrays, shardings, strict=True)]


def _sums(x: jax.Array) -> jax.Array:
    """``[1, 2]`` uint32."""
    bits = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    if bits.dtype.itemsize > 4 or jnp.issubdtype(bits.dtype, jnp.complexfloating):
        bits = jax.lax.bitcast_convert_type(bits, jnp.uint32)
    words = jax.lax.bitcast_convert_type(bits, f"uint{8 * bits.dtype.itemsize}").astype(jnp.uint32).reshape(-1)
    at = jax.lax.iota(jnp.uint32, words.size)
    odd = at * jnp.uint32(2) + jnp.uint32(1)
    mixed = (at * jnp.uint32(2_654_435_761) ^ (at >> jnp.uint32(15))) | jnp.uint32(1)
    return jnp.stack([(words * odd).sum(dtype=jnp.uint32), (words * mixed).sum(dtype=jnp.uint32)])[None]


def _devices(sharding: jax.sharding.Sharding) -> Sequence[jax.Device]:
    if isinstance(sharding, NamedSharding):
        return cast("Sequence[jax.Device]", sharding.mesh.devices.reshape(-1).tolist())
    (device,) = sharding.device_set
    return [device]


def verify_step(
    placed: Sequence[tuple[Model[Params], Partitioner]],
    optimizer: Optimizer,
    state: TrainState[Params],
    batch: HostBatch,
    /,
    *,
    num_microbatches: int = 1,
) -> list[Corruption]:
    """Do one step from the same state on the same batch in each of the places, and compare all results bit for bit.

    Args:
        placed: The model and its partitioner on some devices, again on the same devices in another order, and so on. Three
            places name a device, two can only suspect; meshes are of one shape.
        optimizer: Trains it.
        state: From which to begin, on any devices; it is kept.
        batch: The host's.
        num_microbatches: As in training.

    Where a backend's collectives add up in an order that depends on where devices stand, orders that only swap neighbours of
    the same ring give bits that differ without anything being wrong: give the same order twice there.
    """
    begun = jax.device_get(state)
    results = []
    for model, partitioner in placed:
        put = partitioner.put(batch)
        step = compile_step(model, optimizer, partitioner, describe(put), num_microbatches=num_microbatches)
        shardings = shardings_of(abstract_state(model, optimizer, partitioner))
        results.append(step(jax.device_put(begun, shardings, may_alias=False), put)[0])
    return find_corruption(*results)
