"""A pipeline as a function of whole arrays: the loop on every stage, and the gradients that it leaves.

Only "layers" is split for the loop; along all other names the compiler goes on to partition what runs in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ._context import Collected
from ._pipeline_layout import Layout
from ._pipeline_loop import Bind, Given, Loop, Operands, Results, Tail, TailFn, Tree
from ._pipeline_plan import plan
from ._pipeline_run import Leaves, Places, Run
from ._schedules import Schedule, gpipe
from .protocols import Axes, Sharder


class Learnt(NamedTuple):
    """Of what there are to be gradients."""

    params: Sequence[bool]
    tail: Sequence[bool]
    x: bool


@dataclass(frozen=True)
class Execution:
    """Layers in stages, their microbatches, and what comes after them."""

    sharder: Sharder
    layout: Layout
    num_microbatches: int
    schedule: Schedule
    lockstep: bool
    bind: Bind
    tail: TailFn | None

    def __call__(self, params: Leaves, operands: Operands, learnt: Learnt | None, /) -> Results:
        """Results of all stages: collected ``[num_layers, M, …]``, gradients of ``params`` as these are; None: forwards only."""
        stages = self.layout.num_stages
        loop = self._loop(params, operands, learnt)
        places = Places([self.layout.placed(param) for param in params], jnp.asarray(self.layout.index))
        operands = jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(x), operands)
        own = jax.tree.map(lambda x: x[: x.shape[0] // stages], places)
        shapes, structure = jax.tree.flatten(loop.shapes(own, operands))
        arrays, given = jax.tree.flatten((places, operands))

        def on_one_stage(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(leaf[None] for leaf in jax.tree.leaves(loop(*jax.tree.unflatten(given, arrays))))

        if stages == 1:
            return self._whole(jax.tree.unflatten(structure, on_one_stage(*arrays)))
        if (found := num_shards("layers", self.layout.index.size, sharder=self.sharder)) != stages:
            raise ValueError(
                f"there are {stages} stages, but {self.layout.index.size} places of layers are split over {found}: the rules split "
                "other numbers of layers over other devices"
            )
        num_placed = len(jax.tree.leaves(places))
        by_stage: list[Axes] = [("layers", *(None,) * (x.ndim - 1)) for x in arrays[:num_placed]]
        call = self.sharder.shard_map(
            on_one_stage,
            in_axes=[*by_stage, *((None,) * x.ndim for x in arrays[num_placed:])],
            out_axes=[("layers", *(None,) * len(shape.shape)) for shape in shapes],
            over=["layers"],
        )
        return self._whole(jax.tree.unflatten(structure, call(*arrays)))

    def _loop(self, params: Leaves, operands: Operands, learnt: Learnt | None) -> Loop:
        sizes = self.layout.num_stages, self.layout.num_chunks, self.num_microbatches
        table = gpipe(*sizes) if learnt is None else self.schedule(*sizes)
        of_params = [False] * len(params) if learnt is None else learnt.params
        of_tail = [False] * len(operands.tail_shared) if learnt is None else learnt.tail
        split = self.sharder.split([("layers",)], [self.layout.index.shape]) if self.layout.num_stages > 1 else {}
        return Loop(
            plan=plan(table, backward=learnt is not None),
            run=Run(self.layout.empty, self.lockstep, of_params, aux_weight=1 / self.num_microbatches),
            bind=self.bind,
            tail=None if self.tail is None else Tail(self.tail, of_tail),
            backward=learnt is not None,
            x_learnt=learnt is not None and learnt.x,
            axes=split.get("layers", ()),
            place=lambda x: self.sharder.constrain(x, (None, "batch", "seq", None)),
        )

    def _whole(self, by_stage: Results) -> Results:
        layout, number = self.layout, self.num_microbatches

        def of_layers(x: jax.Array) -> jax.Array:
            return layout.by_layer(x.reshape(layout.index.size, *x.shape[3:]))

        def by_microbatch(x: jax.Array) -> jax.Array:
            tasks = x.reshape(layout.num_stages, layout.num_chunks, number, *x.shape[2:])
            return of_layers(tasks.swapaxes(2, 3))

        last = jax.tree.map(lambda x: x[-1], (by_stage.outputs, by_stage.tail, by_stage.of_tail))
        return Results(
            collected=jax.tree.map(by_microbatch, by_stage.collected),
            outputs=last[0],
            tail=last[1],
            of_params=[of_layers(x) for x in by_stage.of_params],
            of_tail=last[2],
            of_x=None if by_stage.of_x is None else by_stage.of_x[0],
        )


def num_shards(name: str, size: int, /, *, sharder: Sharder) -> int:
    """Over how many devices a dim of this name and size is split."""
    sizes: list[int] = []

    def own(x: jax.Array) -> jax.Array:
        sizes.append(x.shape[0])
        return x

    call = sharder.shard_map(own, in_axes=[(name,)], out_axes=(name,), over=[name])
    jax.eval_shape(call, jax.ShapeDtypeStruct((size,), jnp.int32))
    return size // sizes[0]


def with_gradients(execution: Execution, /) -> Callable[[Leaves, Operands], tuple[Given, Collected]]:
    """The tail's results and what was collected; where the loss is differentiated, its gradient is computed along with it."""

    @jax.custom_vjp
    def call(params: Leaves, operands: Operands) -> tuple[Given, Collected]:
        results = execution(params, operands, None)
        assert results.tail is not None
        return results.tail, results.collected

    def forward(params: Leaves, operands: Operands) -> tuple[tuple[Given, Collected], Tree]:
        # In the place of each array comes one with a word on whether it is differentiated.
        told = (params, operands)
        values = jax.tree.map(lambda primal: primal.value, told)
        of_params, of_operands = jax.tree.map(lambda primal: primal.perturbed, told)
        learnt = Learnt(of_params, of_operands.tail_shared, of_operands.x)
        results = execution(values[0], values[1], learnt)
        assert results.tail is not None
        gradients = (
            _gradients(results.of_params, values[0], learnt.params),
            _gradients(results.of_tail, values[1].tail_shared, learnt.tail),
            results.of_x,
        )
        return (results.tail, results.collected), gradients

    def backward(
        gradients: tuple[_Gradients, _Gradients, jax.Array | None], cotangents: tuple[tuple[Tree, Tree], Tree]
    ) -> tuple[_Gradients, Operands]:
        (of_loss, _), _ = cotangents
        scale = jnp.zeros((), jnp.float32) if isinstance(of_loss, SymbolicZero) else cast("jax.Array", of_loss)
        of_params, of_tail, of_x = jax.tree.map(lambda x: (x.astype(jnp.float32) * scale).astype(x.dtype), gradients)
        return of_params, Operands(x=of_x, each=None, rows=None, shared=None, tail_shared=of_tail)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call


_Gradients: TypeAlias = "list[jax.Array | None]"


def _gradients(learnt: Leaves, leaves: Leaves, is_learnt: Sequence[bool]) -> _Gradients:
    """One for each leaf, of its type."""
    rest = iter(learnt)
    return [next(rest).astype(leaf.dtype) if yes else None for leaf, yes in zip(leaves, is_learnt, strict=True)]
