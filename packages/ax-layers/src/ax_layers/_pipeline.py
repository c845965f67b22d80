"""Pipeline parallelism: consecutive layers on different devices, between which microbatches pass.

``Pipeline`` stands where ``Repeat`` stands, with the same parameters under the same names, first values included, so that a model
goes from one to the other with its checkpoints. ``pipelined`` is the modifier that puts it there:

    model = pipelined(model, num_microbatches=8)

How many stages there are is for the sharder to say: as many as it splits the name "layers" over. On one device the same
microbatches run one after the other and give the same numbers.

When a language model asks it for its loss, forwards and backwards run in the order of a *schedule* (see ``gpipe``,
``one_forward_one_backward``, ``late_weights``, ``zero_bubble``), and the gradients are there when the loss is. When it is only called, it runs
forwards, and differentiating the call gives all backwards after all forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import ax_config
import jax
from ax_config import REQUIRED, Buildable, Config, Target, field, partial_for, replace

from ._context import Collected, RandomKey
from ._functional import functional
from ._microbatches import cut, joined, merged
from ._module import scoped
from ._pipeline_execution import Execution, num_shards, with_gradients
from ._pipeline_layout import Layout, layout
from ._pipeline_loop import Bind, Operands, TailFn
from ._pipeline_run import Layer, Leaves
from ._repeat import Repeat
from ._schedules import Schedule, one_forward_one_backward
from ._wrapper import Wrapper
from .protocols import ArrayTree, Rest, Rows, SequenceLayer, Shared

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Pipeline(Wrapper):
    """``num_layers`` copies of a layer, one after the other, in stages; fits ``SequenceLayer`` and ``SupportsPiecewiseLoss``.

    Layers are cut into runs, ``num_chunks`` of them for each stage: of the same length, or as ``layers_per_run`` says, run ``r`` at
    stage ``r % P`` of ``P``. With one chunk a stage and runs of the same length, a stage's layers are those whose parameters it
    holds. Otherwise parameters, which keep the order of the layers, are sent to their stages once a step, and gradients back.

    Of each microbatch a stage keeps the input of its run until the backward, which computes the rest again; what that keeps
    in between is for a ``Remat`` within to say. Stages have all microbatches' inputs, of which the first uses them.

    In ``lockstep`` a stage computes whatever any stage has to in a tick, and throws away what isn't its own; with the schedules
    here but ``zero_bubble`` it would only wait in that time. Without, each stage does its own tasks only: what comes after the layers is
    computed at the last stage alone, and ``zero_bubble`` and shorter runs save time. That is sound only if what the compiler
    sends for a layer stays within a stage. Its groups do; but where it moves shards by collective-permutes, these name all
    devices, and backends that wait for all of them then wait for ever. XLA's CPU backend is one.

    Layers see one microbatch at a time, and what they report is a mean over microbatches: an auxiliary loss too, as if
    batches were smaller. A layer's random numbers are those of ``Repeat`` folded by the microbatch.

    Raises (when called):
        ValueError: ``num_microbatches`` doesn't divide the batch, or the runs don't go round all stages. A ``ScheduleError`` is one.
    """

    class Config(ax_config.Config["Pipeline"]):
        """The layers as ``Repeat`` has them, and how they run."""

        dim: int = REQUIRED
        num_layers: int = REQUIRED
        layer: Buildable[SequenceLayer] = REQUIRED
        num_microbatches: int
        schedule: Buildable[Schedule] = field(default_factory=lambda: partial_for(one_forward_one_backward))
        num_chunks: int = 1
        layers_per_run: tuple[int, ...] = ()  # empty: the same number each
        lockstep: bool = True  # whether all stages compute what any has to in a tick

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.num_microbatches < 1 or cfg.num_chunks < 1:
            raise ValueError(
                f"Pipeline needs at least 1 microbatch and 1 chunk, got {cfg.num_microbatches} and {cfg.num_chunks}"
            )
        if cfg.layers_per_run and (sum(cfg.layers_per_run) != cfg.num_layers or min(cfg.layers_per_run) < 1):
            raise ValueError(
                f"layers_per_run shares out num_layers, at least 1 to each run; {cfg.layers_per_run} has "
                f"{sum(cfg.layers_per_run)} of {cfg.num_layers}"
            )
        if (len(cfg.layers_per_run) or cfg.num_layers) % cfg.num_chunks:
            raise ValueError(
                f"every stage has {cfg.num_chunks} chunks, so there are a multiple of them; got {cfg.num_layers} layers"
                + (f" in {len(cfg.layers_per_run)} runs" if cfg.layers_per_run else " and no layers_per_run")
            )
        self._num_layers, self._num_chunks = cfg.num_layers, cfg.num_chunks
        self._layers_per_run, self._num_microbatches = cfg.layers_per_run, cfg.num_microbatches
        self._schedule, self._lockstep = cfg.schedule.build(), cfg.lockstep
        self._repeat = self.wrap(Repeat.Config(num_layers=cfg.num_layers, layer=cfg.layer), dim=cfg.dim)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """All layers on a whole sequence."""
        params, operands = self._arguments(x, positions, segments)
        results = self._execution()(params, operands, None)
        self.absorb(merged(results.collected, dim=1, num_rows=x.shape[0]))
        assert results.outputs is not None
        return joined(results.outputs)

    @scoped
    def piecewise_loss(
        self,
        x: jax.Array,
        tail: Callable[[Shared, jax.Array, Rows], tuple[jax.Array, Rest]],
        shared: Shared,
        rows: Rows,
        /,
        *,
        positions: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, Rest]:
        """See ``SupportsPiecewiseLoss``."""
        leaves, structure = jax.tree.flatten(shared)

        def of_leaves(leaves: Leaves, y: jax.Array, rows: object) -> tuple[jax.Array, Rest]:
            return tail(jax.tree.unflatten(structure, leaves), y, cast("Rows", rows))

        params, operands = self._arguments(x, positions, segments)
        pieces = jax.tree.map(lambda each: cut(each, self._num_microbatches), rows)
        operands = operands._replace(rows=pieces, tail_shared=leaves)
        (loss, rest), collected = with_gradients(self._execution(of_leaves))(params, operands)
        self.absorb(merged(collected, dim=1, num_rows=x.shape[0]))
        return loss, cast("Rest", rest)

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The layers' caches, stacked."""
        return self._repeat.init_cache(batch_size=batch_size, max_length=max_length)

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """All layers on the next piece of a sequence, one after the other."""
        (x, cache), collected = functional(self._repeat.extend)(self.params, self.random, x, cache, positions=positions)
        self.absorb(collected)
        return x, cache

    def _arguments(
        self, x: jax.Array, positions: jax.Array | None, segments: jax.Array | None
    ) -> tuple[Leaves, Operands]:
        each = jax.tree.map(lambda given: cut(given, self._num_microbatches), (x, positions, segments))
        operands = Operands(
            x=each[0],
            each=each[1:],
            rows=(),
            shared=None if self.random is None else self.random.computed(),
            tail_shared=[],
        )
        return jax.tree.leaves(self.params), operands

    def _execution(self, tail: TailFn | None = None) -> Execution:
        structure = jax.tree.structure(self.params)
        call = functional(cast("SequenceLayer", self._repeat.inner))

        def bind(random: RandomKey | None, each: tuple[jax.Array | None, jax.Array | None], number: jax.Array) -> Layer:
            positions, segments = each

            def layer(params: Leaves, place: jax.Array, x: jax.Array) -> tuple[jax.Array, Collected]:
                key = None if random is None else random.fold(place).fold(number)
                tree: ArrayTree = jax.tree.unflatten(structure, params)
                return call(tree, key, x, positions=positions, segments=segments)

            return layer

        return Execution(
            sharder=self.sharder,
            layout=self._layout(),
            num_microbatches=self._num_microbatches,
            schedule=self._schedule,
            lockstep=self._lockstep,
            bind=cast("Bind", bind),
            tail=tail,
        )

    def _layout(self) -> Layout:
        """On one device, whatever the runs, there is but one."""
        given, chunks = self._layers_per_run, self._num_chunks
        dims = (self._num_layers, *([len(given) // chunks] if given else []))
        num_stages = max(num_shards("layers", dim, sharder=self.sharder) for dim in dims)
        runs = num_stages * chunks
        if num_stages == 1:
            return layout([self._num_layers], num_stages=1)
        if len(given or range(runs)) != runs or (not given and self._num_layers % runs):
            wanted = f"layers_per_run shares them out to {len(given)}" if given else "layers_per_run isn't given"
            raise ValueError(
                f"{self.where}: {self._num_layers} layers are split over {num_stages} stages, which with {chunks} chunks each have "
                f"{runs} runs, and {wanted}"
            )
        return layout(given or [self._num_layers // runs] * runs, num_stages=num_stages)


def pipelined(
    tree: ConfigT,
    /,
    *,
    num_microbatches: int,
    schedule: Schedule = one_forward_one_backward,
    num_chunks: int = 1,
    layers_per_run: Sequence[int] = (),
    lockstep: bool = True,
    targets: Target = Repeat,
) -> ConfigT:
    """The tree with a ``Pipeline`` in the place of each ``Repeat`` that ``targets`` selects (see ``ax_config.replace``).

    One within another would cut microbatches again: where they are nested, let ``targets`` select the outer one.

    Raises:
        NoMatchError: ``targets`` selects nothing.
    """
    pipeline = Pipeline.Config(
        num_microbatches=num_microbatches,
        schedule=partial_for(schedule),
        num_chunks=num_chunks,
        layers_per_run=tuple(layers_per_run),
        lockstep=lockstep,
    )
    return replace(tree, targets, pipeline, carry=("num_layers", "layer"))
