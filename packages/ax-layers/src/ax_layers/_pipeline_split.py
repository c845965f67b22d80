"""The backward of a run of layers in two parts: the gradient of its input now, those of its parameters when there is time.

Every layer's pullback is split in two programs that share no work (see ``split_results``). The first goes back through the
layers and leaves, layer by layer, what the second needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ._pipeline_run import Layer, Leaves, Places, Run, aux_loss, chosen, completed
from ._split_results import Halves, split_results

Form: TypeAlias = "tuple[jax.tree_util.PyTreeDef, tuple[int, ...]]"
"""Of a pullback as a tree: its structure, and for each leaf which parameter it is, -1 for none."""


@dataclass(frozen=True)
class SplitBackward:
    """Both parts; made by ``split_backward`` for layers like one that it saw."""

    run: Run
    form: Form
    halves: Halves

    def first(self, layer: Layer, places: Places, x: jax.Array, gradient: jax.Array, /) -> tuple[jax.Array, Leaves]:
        """The gradient of the run's input, and what ``second`` needs, stacked by place."""

        def ahead(x: jax.Array, place: Places) -> tuple[jax.Array, Leaves]:
            def filled(x: jax.Array) -> tuple[jax.Array, Leaves]:
                y, kept, form = _pulled(self.run, layer, place, x)
                assert form[1] == self.form[1], "every microbatch's layer is traced to the same program"
                return y, kept

            return self.run.at_place(place.number, filled, x)

        def back(gradient: jax.Array, each: tuple[Places, Leaves]) -> tuple[jax.Array, Leaves]:
            place, kept = each

            def filled(gradient: jax.Array) -> tuple[jax.Array, Leaves]:
                (of_x,), rest = self.halves.early([*_leaves(kept, place.params, self.form[1]), gradient])
                return of_x, rest

            return self.run.at_place(place.number, filled, gradient)

        _, kept = jax.lax.scan(ahead, x, places)
        return jax.lax.scan(back, gradient, (places, kept), reverse=True)

    def second(self, places: Places, rest: Leaves, /) -> Leaves:
        """The gradients of the learnt parameters."""

        def body(nothing: jax.Array, each: tuple[jax.Array, Leaves]) -> tuple[jax.Array, Leaves]:
            number, rest = each
            return self.run.at_place(number, lambda nothing: (nothing, self.halves.late(rest)), nothing)

        _, of_params = jax.lax.scan(body, jnp.zeros(()), (places.number, rest))
        return of_params


def split_backward(run: Run, layer: Layer, places: Places, x: jax.Array, /) -> SplitBackward:
    """For layers and inputs of these shapes and types, as the run's."""
    forms: list[Form] = []

    def kept(place: Places, x: jax.Array) -> Leaves:
        _, kept, form = _pulled(run, layer, place, x)
        forms.append(form)
        return kept

    place: Any = jax.tree.map(lambda stacked: jax.ShapeDtypeStruct(stacked.shape[1:], stacked.dtype), places)
    shapes = jax.eval_shape(kept, place, x)
    structure, sources = forms[0]

    def pull(*arrays: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        *leaves, gradient = arrays
        of_params, of_x = jax.tree.unflatten(structure, leaves)((gradient, jnp.float32(run.aux_weight)))
        return [of_x], of_params

    inputs: list[Any] = [*_leaves(shapes, place.params, sources), jax.ShapeDtypeStruct(x.shape, x.dtype)]
    return SplitBackward(run, forms[0], split_results(pull, inputs))


def _pulled(run: Run, layer: Layer, place: Places, x: jax.Array) -> tuple[jax.Array, Leaves, Form]:
    """A layer's output, and its pullback as a tree: the leaves that aren't parameters, and its form."""

    def call(learnt: Leaves, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, collected = layer(completed(learnt, place.params, run.learnt), place.number, x)
        return y, aux_loss(collected)

    (y, _), pullback = jax.vjp(call, chosen(place.params, run.learnt), x)
    leaves, structure = jax.tree.flatten(pullback)
    numbers = {id(param): number for number, param in enumerate(place.params)}
    sources = tuple(numbers.get(id(leaf), -1) for leaf in leaves)
    return y, [leaf for leaf, source in zip(leaves, sources, strict=True) if source < 0], (structure, sources)


def _leaves(kept: Leaves, params: Leaves, sources: Sequence[int]) -> Leaves:
    """All leaves of a pullback."""
    rest = iter(kept)
    return [next(rest) if source < 0 else params[source] for source in sources]
