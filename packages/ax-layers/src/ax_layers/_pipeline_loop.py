"""The loop of a pipeline, as each of its stages runs it: any table, tick by tick.

All stages go through the same ticks. What a stage has to do in one is data, so each task stands in a branch, and the loop is
compiled once. In *lockstep* all stages take a branch when one of them has to, and what isn't theirs is thrown away: a
stage would wait in that time. Otherwise each takes its own, which is quicker where they differ, and sound where all that the compiler
sends within a branch stays within a stage.

At the end of a tick all stages send: activations to the stage after,
gradients to the stage before. The last run's forward goes on with the tail of the loss, whose gradient then waits for the
backward as a neighbour's would. Gradients of parameters are summed in float32 at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp

from ._context import Collected
from ._pipeline_plan import Plan, Steps
from ._pipeline_run import Layer, Leaves, Places, Run, chosen, completed, either, zeros_of
from ._pipeline_split import SplitBackward, split_backward

T = TypeVar("T")
R = TypeVar("R")
Tree: TypeAlias = object
Given: TypeAlias = tuple[jax.Array, Tree]
"""What a tail returns: a part of the loss, and the rest."""
TailFn: TypeAlias = Callable[[Leaves, jax.Array, Tree], Given]
"""``(what its calls share, a microbatch's output, its rows) -> …``."""
Bind: TypeAlias = Callable[[Tree, Tree, jax.Array], Layer]
"""``(what all share, what there is of one microbatch, its number) -> layer``."""


class Operands(NamedTuple):
    """What all stages are given: the microbatches ``[M, b, T, D]``, what else there is of each (stacked), and what all share."""

    x: jax.Array
    each: Tree
    rows: Tree
    shared: Tree
    tail_shared: Leaves


class Results(NamedTuple):
    """What a stage ends with; None where nothing of the kind was asked for. Gradients are of what is learnt."""

    collected: Collected
    """``[V · M, places of a run, …]``, by task."""
    outputs: jax.Array | None
    """The last run's; nonzero at the last stage only, as all that comes of the tail."""
    tail: Given | None
    """The loss, and the rest by microbatch."""
    of_params: Leaves
    """By chunk and place."""
    of_tail: Leaves
    of_x: jax.Array | None
    """Nonzero at the first stage only."""


class Anywhere(NamedTuple):
    """Whether any stage has a task of a kind in a tick, ``[num_ticks]``."""

    forward: jax.Array
    tail: jax.Array
    backward: jax.Array
    weights: jax.Array


class State(NamedTuple):
    """What changes from tick to tick: what waits in slots, and the results so far."""

    inputs: jax.Array
    gradients: jax.Array
    rests: Leaves
    results: Results


@dataclass(frozen=True)
class Tail:
    """The end of the loss, and which of what its calls share is learnt."""

    fn: TailFn
    learnt: Sequence[bool]


@dataclass(frozen=True)
class Loop:
    """A plan, and the functions that its tasks call.

    ``place`` says how microbatches lie on devices, ``axes`` along which collectives go from stage to stage.
    """

    plan: Plan
    run: Run
    bind: Bind
    tail: Tail | None
    backward: bool
    x_learnt: bool
    axes: tuple[str, ...]
    place: Callable[[jax.Array], jax.Array]

    def __call__(self, places: Places, operands: Operands) -> Results:
        """Run it all. ``places`` are the stage's own, chunk by chunk."""
        chunks = self._chunks(places)
        stage = jax.lax.axis_index(self.axes) if self.axes else jnp.zeros((), jnp.int32)
        steps = cast("Steps[jax.Array]", jax.tree.map(lambda x: jnp.asarray(x)[:, stage], self.plan.steps))
        split = self._split(chunks, operands)

        def tick(state: State, now: tuple[Steps[jax.Array], Anywhere]) -> tuple[State, None]:
            return _Tick(self, chunks, operands, *now, stage, split).run(state), None

        state, _ = jax.lax.scan(tick, self._first_state(chunks, operands, split), (steps, self._anywhere()))
        return state.results

    def shapes(self, places: Places, operands: Operands) -> Results:
        """The form of the results."""
        chunks = self._chunks(places)
        shapes: Results = jax.eval_shape(lambda: self._first_state(chunks, operands, None).results)
        return shapes

    def _chunks(self, places: Places) -> Places:
        num_chunks = self.plan.table.num_chunks
        return Places(*jax.tree.map(lambda x: x.reshape(num_chunks, -1, *x.shape[1:]), tuple(places)))

    def _anywhere(self) -> Anywhere:
        steps, table = self.plan.steps, self.plan.table
        ends = steps.forward[:, -1] >= (table.num_chunks - 1) * table.num_microbatches
        tasks = (steps.forward, steps.backward, steps.weights)
        forward, backward, weights = (jnp.asarray((each >= 0).any(axis=1)) for each in tasks)
        return Anywhere(forward, jnp.asarray(ends), backward, weights)

    def _first(self, chunks: Places, operands: Operands) -> tuple[Layer, Places, jax.Array]:
        """The first chunk's layer with the first microbatch, an example of all."""
        zero = jnp.zeros((), jnp.int32)
        return self.bind(operands.shared, at(operands.each, zero), zero), at(chunks, zero), at(operands.x, zero)

    def _split(self, chunks: Places, operands: Operands) -> SplitBackward | None:
        if self.plan.table.weights is None or not self.backward:
            return None
        return split_backward(self.run, *self._first(chunks, operands))

    def _first_state(self, chunks: Places, operands: Operands, split: SplitBackward | None) -> State:
        table, tail = self.plan.table, self.tail
        layer, places, x = self._first(chunks, operands)
        rows = at(operands.rows, jnp.zeros((), jnp.int32))

        def slots(number: int) -> jax.Array:
            return self.place(jnp.zeros((number, *x.shape), x.dtype))

        def stacked(number: int, tree: T) -> T:
            filled: T = jax.tree.map(lambda x: jnp.zeros((number, *x.shape), x.dtype), tree)
            return filled

        def sums(leaves: Leaves) -> Leaves:
            wide = [jnp.float32 if leaf.dtype.itemsize < 4 else leaf.dtype for leaf in leaves]
            return [jnp.zeros(leaf.shape, dtype) for leaf, dtype in zip(leaves, wide, strict=True)]

        _, collected = zeros_of(lambda: self.run.forward(layer, places, x))
        given = None if tail is None else zeros_of(lambda: tail.fn(operands.tail_shared, x, rows))
        of_tail = [] if tail is None or not self.backward else sums(chosen(operands.tail_shared, tail.learnt))
        results = Results(
            collected=stacked(table.num_chunks * table.num_microbatches, collected),
            outputs=slots(table.num_microbatches) if given is None else None,
            tail=None if given is None else (given[0], stacked(table.num_microbatches, given[1])),
            of_params=sums(chosen(chunks.params, self.run.learnt)) if self.backward else [],
            of_tail=of_tail,
            of_x=slots(table.num_microbatches) if self.backward and self.x_learnt else None,
        )
        rests: Leaves = []
        if split is not None:
            rests = stacked(self.plan.num_rests, zeros_of(lambda: split.first(layer, places, x, x)[1]))
        return State(slots(self.plan.num_inputs), slots(self.plan.num_gradients), rests, results)


@dataclass(frozen=True)
class _Tick:
    """One tick of one stage."""

    loop: Loop
    chunks: Places
    operands: Operands
    step: Steps[jax.Array]
    anywhere: Anywhere
    stage: jax.Array
    split: SplitBackward | None

    def run(self, state: State) -> State:
        """All tasks, and then the exchange."""
        step = self.step
        state, y = self._forward(state)
        if not self.loop.backward:
            return state._replace(inputs=put(state.inputs, step.arriving_input, self._sent(y, 1)))
        state, of_x = self._backward(state)
        if self.split is not None:
            state = self._weights(self.split, state)
        return state._replace(
            inputs=put(state.inputs, step.arriving_input, self._sent(y, 1)),
            gradients=put(state.gradients, step.arriving_gradient, self._sent(of_x, -1)),
        )

    def _forward(self, state: State) -> tuple[State, jax.Array]:
        table, run, active = self.loop.plan.table, self.loop.run, self.step.forward >= 0
        chunk, microbatch = self._task(self.step.forward)
        x = self._input(state, self.step.forward_input, microbatch)

        def work(_: list[jax.Array]) -> tuple[tuple[jax.Array, Collected], list[jax.Array]]:
            return run.forward(self._layer(microbatch), at(self.chunks, chunk), x), []

        def task() -> tuple[jax.Array, Collected]:
            return self._when(active, self.anywhere.forward, work, [])[0]

        # Where somebody else differentiates the loop, what a task keeps is its input, as it is where the loop does.
        y, collected = task() if self.loop.backward else jax.checkpoint(task, prevent_cse=False)()
        ends = active & (self.stage == table.num_stages - 1) & (chunk == table.num_chunks - 1)
        number = jnp.where(ends, microbatch, -1)
        results = state.results._replace(collected=put(state.results.collected, self.step.forward, collected))
        if self.loop.tail is None:
            results = results._replace(outputs=put(results.outputs, number, y))
            return state._replace(results=results), y
        given, of_y, of_tail = self._tail(self.loop.tail, ends, microbatch, y, results.of_tail)
        assert results.tail is not None
        tail = (results.tail[0] + given[0], put(results.tail[1], number, given[1]))
        results = results._replace(tail=tail, of_tail=of_tail)
        return state._replace(gradients=put(state.gradients, self.step.loss_gradient, of_y), results=results), y

    def _tail(
        self, tail: Tail, ends: jax.Array, microbatch: jax.Array, y: jax.Array, sums: Leaves
    ) -> tuple[Given, jax.Array, Leaves]:
        shared, rows = self.operands.tail_shared, at(self.operands.rows, microbatch)

        def call(learnt: Leaves, y: jax.Array) -> Given:
            return tail.fn(completed(learnt, shared, tail.learnt), y, rows)

        def forward(sums: Leaves) -> tuple[tuple[Given, jax.Array], Leaves]:
            return (call(chosen(shared, tail.learnt), y), jnp.zeros_like(y)), sums

        def both(sums: Leaves) -> tuple[tuple[Given, jax.Array], Leaves]:
            differentiated = jax.value_and_grad(call, argnums=(0, 1), has_aux=True)
            given, (of_shared, of_y) = differentiated(chosen(shared, tail.learnt), y)
            return (given, of_y), [
                total + jnp.where(ends, part, 0).astype(total.dtype)
                for total, part in zip(sums, of_shared, strict=True)
            ]

        work = both if self.loop.backward else forward
        (given, of_y), sums = self._when(ends, self.anywhere.tail, work, sums)
        return given, of_y, sums

    def _backward(self, state: State) -> tuple[State, jax.Array]:
        step, run, active = self.step, self.loop.run, self.step.backward >= 0
        chunk, microbatch = self._task(step.backward)
        x = self._input(state, step.backward_input, microbatch)
        gradient, places = at(state.gradients, jnp.maximum(step.backward_gradient, 0)), at(self.chunks, chunk)
        results = state.results

        def whole(sums: Leaves) -> tuple[jax.Array, Leaves]:
            of_x, of_params = run.backward(self._layer(microbatch), places, x, gradient)
            return of_x, add(sums, chunk, of_params, active)

        if self.split is None:
            of_x, of_params = self._when(active, self.anywhere.backward, whole, results.of_params)
            results = results._replace(of_params=of_params)
        else:
            first = self.split.first

            def half(_: Leaves) -> tuple[tuple[jax.Array, Leaves], Leaves]:
                return first(self._layer(microbatch), places, x, gradient), []

            (of_x, rest), _ = self._when(active, self.anywhere.backward, half, [])
            state = state._replace(rests=put(state.rests, step.backward_rest, rest))
        if results.of_x is not None:
            begins = active & (self.stage == 0) & (chunk == 0)
            results = results._replace(of_x=put(results.of_x, jnp.where(begins, microbatch, -1), of_x))
        return state._replace(results=results), of_x

    def _weights(self, split: SplitBackward, state: State) -> State:
        step, active = self.step, self.step.weights >= 0
        chunk, _ = self._task(step.weights)
        rest = at(state.rests, jnp.maximum(step.weights_rest, 0))

        def work(sums: Leaves) -> tuple[None, Leaves]:
            return None, add(sums, chunk, split.second(at(self.chunks, chunk), rest), active)

        _, of_params = self._when(active, self.anywhere.weights, work, state.results.of_params)
        return state._replace(results=state.results._replace(of_params=of_params))

    def _when(
        self, active: jax.Array, anywhere: jax.Array, work: Callable[[Leaves], tuple[R, Leaves]], sums: Leaves
    ) -> tuple[R, Leaves]:
        """What ``work`` gives and makes of ``sums``; zeros and ``sums`` as they are where a stage isn't ``active``.

        In lockstep that it adds nothing then is the business of ``work``: only it can without a copy of the sums.
        """
        zeros, _ = zeros_of(work, sums)
        taken = anywhere if self.loop.run.lockstep else active
        given, sums = jax.lax.cond(taken, work, lambda sums: (zeros, sums), sums)
        return either(active, given, zeros), sums

    def _task(self, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.divmod(jnp.maximum(number, 0), self.loop.plan.table.num_microbatches)

    def _layer(self, microbatch: jax.Array) -> Layer:
        return self.loop.bind(self.operands.shared, at(self.operands.each, microbatch), microbatch)

    def _input(self, state: State, slot: jax.Array, microbatch: jax.Array) -> jax.Array:
        own = at(self.operands.x, microbatch)
        if state.inputs.shape[0] == 0:  # one run is all there is
            return own
        return jnp.where(slot >= 0, at(state.inputs, jnp.maximum(slot, 0)), own)

    def _sent(self, x: jax.Array, by: int) -> jax.Array:
        """What arrives when all stages send ``x``; after the last comes the first only if it has another chunk."""
        table = self.loop.plan.table
        stages = range(table.num_stages)
        ways = [(i, (i + by) % table.num_stages) for i in stages if table.num_chunks > 1 or i + by in stages]
        sent: jax.Array = jax.lax.ppermute(x, self.loop.axes, ways) if self.loop.axes else x
        return sent


def at(tree: T, number: jax.Array, /) -> T:
    """Each leaf's entry of this number."""
    found: T = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, number, keepdims=False), tree)
    return found


def put(tree: T, number: jax.Array, values: T, /) -> T:
    """The leaves with another entry of this number; as they are if it is negative."""

    def one(x: jax.Array, value: jax.Array) -> jax.Array:
        if x.shape[0] == 0:
            return x
        kept = jnp.where(number >= 0, value, at(x, jnp.maximum(number, 0)))
        changed: jax.Array = jax.lax.dynamic_update_index_in_dim(x, kept, jnp.maximum(number, 0), 0)
        return changed

    trees: T = jax.tree.map(one, tree, values)
    return trees


def add(sums: Leaves, chunk: jax.Array, parts: Leaves, active: jax.Array, /) -> Leaves:
    """The sums with the parts added to one chunk's, if ``active``."""
    return [
        total.at[chunk].add(jnp.where(active, part, 0).astype(total.dtype))
        for total, part in zip(sums, parts, strict=True)
    ]
