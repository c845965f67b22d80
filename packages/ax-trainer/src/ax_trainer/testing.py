"""Kits that check whether a class keeps a protocol's promises, and the smallest classes that do.

Each ``check_…`` is a plain function that raises AssertionError with what was promised and what came. Run it from any test
runner, on your own class::

    def test_my_source():
        check_batch_source(lambda: MySource(path))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from ._bigram import ArraySpec as ArraySpec
from ._bigram import BigramModel as BigramModel
from ._bigram import BigramParams as BigramParams
from ._bigram import bigram_batches as bigram_batches
from ._in_memory import MemoryBatches as MemoryBatches
from ._in_memory import MemoryCheckpointer as MemoryCheckpointer
from ._in_memory import MemorySink as MemorySink
from ._single_device import SingleDevice as SingleDevice
from .protocols import (
    BatchSource,
    Checkpointer,
    HostBatch,
    MetricSink,
    Model,
    Params,
    Partitioner,
    SkipRule,
    Spec,
    SupportsBatchStatistics,
    SupportsEpochs,
    SupportsLastStep,
    SupportsOrigins,
    SupportsStateUpdates,
)

Record = tuple[int, str, Mapping[str, float]]
Tree = TypeVar("Tree")


def _path(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _assert_congruent(what: str, tree: object, like: object) -> None:
    got: object = jax.tree.structure(tree)
    want: object = jax.tree.structure(like)
    assert got == want, f"{what} must have the structure\n  {want}\nbut it has\n  {got}"


def _assert_same(what: str, got: object, want: object) -> None:
    _assert_congruent(what, got, want)
    leaves = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, left), right in leaves:
        a, b = np.asarray(left), np.asarray(right)
        assert a.dtype == b.dtype, f"{what}: {_path(path)} must be {b.dtype}, but it is {a.dtype}"
        assert a.shape == b.shape, f"{what}: {_path(path)} must have shape {b.shape}, but it has {a.shape}"
        assert a.tobytes() == b.tobytes(), f"{what}: {_path(path)} must be equal bit for bit, but it is not"


def check_model(model: Model[Params], batch: HostBatch) -> None:
    """A model's specs, parameters, loss and gradients agree, and the loss is a pure function."""
    specs = model.specs()
    key = jax.random.key(0)
    params = jax.jit(model.init)(key)
    _assert_congruent("init()", params, specs)
    for (path, leaf), spec in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(specs), strict=True):
        described = cast("Spec", spec)
        assert tuple(described.shape) == leaf.shape, (
            f"{_path(path)}: specs() say {described.shape}, init() {leaf.shape}"
        )
        assert described.dtype == leaf.dtype, f"{_path(path)}: specs() say {described.dtype}, init() {leaf.dtype}"
        assert len(described.axes) == leaf.ndim, f"{_path(path)}: axes {described.axes} must name {leaf.ndim} dims"
    _assert_same("init() with the same key", jax.jit(model.init)(key), params)

    arrays = {name: jnp.asarray(array) for name, array in batch.items()}
    for train in (True, False):
        step = jax.jit(
            jax.value_and_grad(lambda p, b, k, train=train: model.loss(p, b, key=k, train=train), has_aux=True)
        )
        (loss, metrics), grads = step(params, arrays, key)
        assert loss.shape == (), f"loss() must give a scalar, but it gave {loss.shape}"
        assert jnp.isfinite(loss), f"loss() must be finite, but it is {loss}"
        assert "loss" in metrics, f"loss() must report 'loss' with its weight among its metrics {sorted(metrics)}"
        for name, pair in metrics.items():
            assert len(pair) == 2, f"metric {name!r} must be (mean, weight), but it is {pair}"
            assert all(jnp.shape(x) == () for x in pair), f"metric {name!r} must be two scalars, but it is {pair}"
        assert metrics["loss"][1] > 0, f"the weight of 'loss' must be positive, but it is {metrics['loss'][1]}"
        _assert_congruent("the gradients", grads, params)
        for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
            assert jnp.all(jnp.isfinite(leaf)), f"the gradient of {_path(path)} must be finite, but it is not"
        _assert_same("loss() called again", step(params, arrays, key), ((loss, metrics), grads))


def check_state_updates(model: Model[Params], batch: HostBatch) -> tuple[str, ...]:
    """A model that ``SupportsStateUpdates``: its two losses agree, and its updates fit its parameters.

    Returns the paths of the parameters that changed.
    """
    assert isinstance(model, SupportsStateUpdates), f"{type(model).__qualname__} lacks loss_and_updates() or updated()"
    key = jax.random.key(0)
    params = jax.jit(model.init)(key)
    arrays = {name: jnp.asarray(array) for name, array in batch.items()}
    (loss, metrics), (same_loss, (same_metrics, updates)) = (
        jax.jit(functools.partial(call, train=True))(params, arrays, key=key)
        for call in (model.loss, model.loss_and_updates)
    )
    _assert_same("what loss_and_updates() says of loss and metrics", (same_loss, same_metrics), (loss, metrics))
    new = jax.jit(model.updated)(params, updates)
    _assert_congruent("updated()", new, params)
    changed = []
    for (path, old), leaf in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(new), strict=True):
        assert (leaf.shape, leaf.dtype) == (old.shape, old.dtype), (
            f"updated() must leave {_path(path)} {old.dtype}{list(old.shape)}, but makes it {leaf.dtype}{list(leaf.shape)}"
        )
        if not np.array_equal(leaf, old):
            changed.append(_path(path))
    return tuple(changed)


def check_batch_statistics(model: Model[Params], batch: HostBatch, *, num_parts: int = 2) -> None:
    """A model that ``SupportsBatchStatistics``: losses of parts of a batch, told of all of it, and their gradients, are the batch's.

    Of rows that can be dealt out to ``num_parts`` equal parts, and a model without dropout.
    """
    assert isinstance(model, SupportsBatchStatistics), f"{type(model).__qualname__} lacks batch_statistics()"
    key, params = jax.random.key(0), jax.jit(model.init)(jax.random.key(0))
    whole = {name: jnp.asarray(array) for name, array in batch.items()}
    parts = [{name: array[part::num_parts] for name, array in whole.items()} for part in range(num_parts)]
    collect = jax.jit(lambda params, part: model.batch_statistics(params, part, key=key))
    statistics = jax.tree.map(lambda *each: sum(each) / num_parts, *(collect(params, part) for part in parts))
    evaluate = jax.jit(
        jax.value_and_grad(
            lambda params, part, told: model.loss_and_updates_of_part(params, part, told, key=key)[0], allow_int=True
        )
    )
    shares = [evaluate(params, part, statistics) for part in parts]
    want = jax.jit(
        jax.value_and_grad(lambda params: model.loss(params, whole, key=key, train=True)[0], allow_int=True)
    )(params)
    got = jax.tree.map(lambda *each: np.mean([np.asarray(x, np.float32) for x in each], axis=0), *shares)
    leaves = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, mean), of_whole in leaves:
        error = np.abs(mean - np.asarray(of_whole, np.float32)).max(initial=0)
        assert error <= 1e-5 * max(1.0, float(np.abs(mean).max(initial=0))), (
            f"{_path(path[1:]) or 'the loss'}: the mean over the parts must be that of the whole batch, but is off by {error}"
        )


def check_skip_rule(rule: SkipRule) -> None:
    """A skip rule judges by a scalar bool, purely, and remembers arrays of the same shapes and types."""
    state = jax.jit(rule.init)()
    judge = jax.jit(lambda state, loss, norm: rule.judge(state, loss=loss, grad_norm=norm))
    for loss, norm in ((1.0, 2.0), (np.nan, np.inf), (1.0, 1e30)):
        skips, after = judge(state, jnp.float32(loss), jnp.float32(norm))
        assert (skips.shape, skips.dtype) == ((), jnp.bool_), f"judge() must say a scalar bool, but said {skips!r}"
        _assert_congruent("what judge() remembers", after, state)
        for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
            assert (new.shape, new.dtype) == (old.shape, old.dtype), f"{old!r} must stay so, but becomes {new!r}"
        _assert_same("judge() called again", judge(state, jnp.float32(loss), jnp.float32(norm)), (skips, after))
        state = after


def check_partitioner(partitioner: Partitioner, specs: object, batch: HostBatch) -> None:
    """A partitioner places what ``specs`` describe and keeps a batch's values. For one process."""
    shardings = partitioner.shardings(specs)
    _assert_congruent("shardings()", shardings, specs)
    for (path, sharding), spec in zip(
        jax.tree_util.tree_leaves_with_path(shardings), jax.tree.leaves(specs), strict=True
    ):
        assert isinstance(sharding, jax.sharding.Sharding), f"{_path(path)}: wanted a Sharding, got {sharding!r}"
        sharding.shard_shape(tuple(cast("Spec", spec).shape))
    replicated = partitioner.replicated()
    assert replicated.is_fully_replicated, f"replicated() must be whole on every device, but it is {replicated}"
    devices = {frozenset(s.device_set) for s in [replicated, *jax.tree.leaves(shardings)]}
    assert len(devices) == 1, f"all shardings must be over the same devices, but they are over {devices}"
    _assert_same("put()", dict(partitioner.put(batch)), dict(batch))
    for _ in range(2):
        with partitioner.activate():
            total = jax.jit(lambda b: {k: jnp.sum(v) for k, v in b.items()})(partitioner.put(batch))
        for name, value in total.items():
            want = jnp.sum(jnp.asarray(batch[name]))
            assert jnp.allclose(value, want, rtol=1e-5), f"the sum of {name!r} must be {want}, but it is {value}"


def check_batch_source(make: Callable[[], BatchSource], *, num_batches: int = 4) -> None:
    """A batch source is repeatable and resumes at any position. ``make`` gives a fresh one, with at least ``num_batches``."""
    source = make()
    states, batches, kept = [source.get_state()], [], []
    for _ in range(num_batches):
        batches.append(next(source))
        kept.append({name: np.array(array) for name, array in batches[-1].items()})
        states.append(source.get_state())
    for batch in batches:
        sizes = {name: array.shape[:1] for name, array in batch.items()}
        assert len(set(sizes.values())) == 1, f"a batch's arrays must have the same first dim, not {sizes}"
        kinds = {name: type(array).__name__ for name, array in batch.items()}
        assert set(kinds.values()) == {"ndarray"}, f"a batch's arrays must be numpy arrays, but they are {kinds}"
    assert all(isinstance(state, bytes) for state in states), "get_state() must give bytes"
    _check_what_a_source_tells(source, states)
    for index, (batch, copy) in enumerate(zip(batches, kept, strict=True)):
        _assert_same(f"batch {index}, which its source may not write to any more", dict(batch), copy)

    def assert_continues(reader: BatchSource, start: int) -> None:
        for index in range(start, num_batches):
            _assert_same(f"batch {index} after set_state() at {start}", dict(next(reader)), kept[index])

    assert_continues(make(), 0)
    for start, state in enumerate(states):
        fresh = make()
        fresh.set_state(state)
        fresh.get_state()
        assert_continues(fresh, start)
        source.set_state(state)
        assert_continues(source, start)


def _check_what_a_source_tells(source: BatchSource, states: Sequence[bytes]) -> None:
    """Whatever is optional, as far as it is there; ``source`` stands at the last of ``states``."""
    if isinstance(source, SupportsEpochs):
        epochs = [source.epochs(state) for state in states]
        assert epochs[0] == 0, f"epochs() at the beginning must be 0, but it is {epochs[0]}"
        assert all(b > a for a, b in pairwise(epochs)), f"epochs() must grow with each batch, but they are {epochs}"
    if isinstance(source, SupportsOrigins):
        for state in states:
            lines = source.origins(state)
            assert lines, "origins() must tell something of each batch, but it gave nothing"
            assert all(isinstance(line, str) for line in lines), f"origins() must give lines of text, not {lines}"
            assert list(source.origins(state)) == list(lines), "origins() of a position must always be the same"
    assert source.get_state() == states[-1], "epochs() and origins() must not move the position"


class _Nested(NamedTuple):
    number: jax.Array
    moments: dict[str, jax.Array]


def _some_state(seed: int, scale: int = 1) -> dict[str, object]:
    random = np.random.default_rng(seed)
    matrix = jnp.asarray(random.standard_normal((4 * scale, 3)), jnp.float32).at[0, 0].set(jnp.nan).at[0, 1].set(-0.0)
    return {
        "params": {"layer": {"weight": matrix, "half": matrix.astype(jnp.bfloat16)}},
        "opt_state": (_Nested(jnp.int32(seed), {"weight": matrix * 2}), ()),
        "key": jax.random.key_data(jax.random.key(seed)),
    }


def _abstract(state: Tree) -> Tree:
    described = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
    return cast("Tree", described)


def check_checkpointer(make: Callable[[], Checkpointer]) -> None:
    """A checkpointer gives back what it was given. ``make`` opens the same, at first empty, storage each time."""
    saver = make()
    assert saver.latest() is None, f"latest() of an empty storage must be None, but it is {saver.latest()}"
    overwrite = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    for step in (1, 2, 5):
        blobs = {"input": bytes(range(256)) * step, "empty": b""}
        state = _some_state(step)
        saver.save(step, state, blobs)
        jax.block_until_ready(overwrite(state))
        saver.wait()
        for checkpointer in (saver, make()):
            latest = checkpointer.latest()
            assert latest == step, f"latest() after step {step} was saved must be {step}, but it is {latest}"
            want = _some_state(step)
            arrays, got = checkpointer.restore(step, _abstract(want))
            _assert_same(f"the arrays of step {step}, donated after save()", arrays, want)
            assert dict(got) == blobs, f"the blobs of step {step} must come back as they were, but {sorted(got)} did"
            for (path, leaf), like in zip(
                jax.tree_util.tree_leaves_with_path(arrays), jax.tree.leaves(want), strict=True
            ):
                assert leaf.sharding == like.sharding, f"{_path(path)} must lie on {like.sharding}, not {leaf.sharding}"
    _check_refusals(make())


def _check_refusals(checkpointer: Checkpointer) -> None:
    step = checkpointer.latest()
    assert step is not None
    bigger, more = _abstract(_some_state(step, scale=2)), _abstract(_some_state(step))
    more["stranger"] = more["key"]
    for what, abstract, name in (("another shape", bigger, "weight"), ("an unknown array", more, "stranger")):
        said = _refusal(what, functools.partial(checkpointer.restore, step, abstract))
        assert name in said, f"the error for {what} must name the parameter {name!r}, but it says: {said}"


def _refusal(what: str, restore: Callable[[], object]) -> str:
    try:
        restore()
    except ValueError as error:
        return str(error)
    raise AssertionError(f"restore() must raise ValueError for {what}, but it returned")


def check_sink(make: Callable[[], MetricSink], read: Callable[[], Sequence[Record]] | None = None) -> None:
    """A sink takes everything, and forgets what a rewind takes back.

    ``make`` opens the same, at first empty, storage each time. ``read`` gives its records ``(step, name, values)`` as another
    process would see them, in the order of writing; without it only the calls are tried.
    """
    wanted: list[Record] = []

    def assert_holds(when: str) -> None:
        got = [(step, name, dict(values)) for step, name, values in read()] if read is not None else wanted
        assert got == wanted, f"{when} the records must be\n  {wanted}\nbut they are\n  {got}"

    def assert_last_step(sink: MetricSink) -> None:
        if isinstance(sink, SupportsLastStep):
            last = max((step for step, _, _ in wanted), default=None)
            assert sink.last_step() == last, f"last_step() must be {last}, but it is {sink.last_step()}"

    def write(sink: MetricSink, step: int, name: str, values: Mapping[str, float]) -> None:
        sink.write(step, name, values)
        wanted.append((step, name, dict(values)))
        assert_holds(f"as soon as write() of step {step} has returned")

    sink = make()
    sink.rewind(-1)
    assert_last_step(sink)
    write(sink, 0, "valid", {"loss": 2.0})
    sink.rewind(-1)
    wanted = []
    assert_holds("after rewind(-1)")
    write(sink, 1, "train", {"loss": 1 / 3, "grad_norm": 1e-30})
    write(sink, 2, "train", {"loss": 0.1 + 0.2})
    write(sink, 2, "valid", {"loss": 5e-324, "bits_per_byte": 2.0})
    write(sink, 3, "train", {"loss": -0.0})
    for step in (3, 2):  # the second time as a process would that takes over from a killed one
        sink = make()
        assert_last_step(sink)
        sink.rewind(step)
        wanted = [record for record in wanted if record[0] <= step]
        assert_holds(f"after rewind({step})")
    write(sink, 3, "train", {"loss": 7.0})
    sink.close()
    assert_holds("after close()")
