"""A function of arrays in two halves: some of its results first, the others later, and nothing computed twice.

The first half does what its results depend on. The second does the rest, and is handed what it needs of the first half's
intermediate values and of the inputs. Calls and rematerialised parts are opened up on the way, lest one of them
count for both; what else is a single operation with results of both kinds, such as a call by shards, is done in the first half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

Arrays: TypeAlias = "Sequence[jax.Array]"
OPENED = ("jit", "pjit", "checkpoint", "remat2", "closed_call", "core_call")
"""The operations that only call what they hold."""


class Halves(NamedTuple):
    """``early(inputs) -> (first results, rest)`` and ``late(rest) -> other results``."""

    early: Callable[[Arrays], tuple[list[jax.Array], list[jax.Array]]]
    late: Callable[[Arrays], list[jax.Array]]


def split_results(
    fn: Callable[..., tuple[list[jax.Array], list[jax.Array]]], inputs: Sequence[jax.ShapeDtypeStruct], /
) -> Halves:
    """The halves of ``fn(*inputs) -> (first results, other results)``, for inputs of these shapes and types."""
    from jax.extend.core import Literal  # here and not above: it takes 40 ms to import

    numbers: list[int] = []

    def opened(*arrays: jax.Array) -> list[jax.Array]:
        def flat(*arrays: jax.Array) -> list[jax.Array]:
            first, others = fn(*arrays)
            numbers.append(len(first))
            return [*first, *others]

        traced = jax.make_jaxpr(flat)(*arrays)
        return _evaluated(traced, arrays)

    traced = jax.make_jaxpr(opened)(*inputs)
    program = traced.jaxpr
    constants = dict(zip(program.constvars, traced.consts, strict=True))
    first, others = program.outvars[: numbers[0]], program.outvars[numbers[0] :]

    def variables(atoms: Iterable[Any]) -> set[Any]:
        return {atom for atom in atoms if not isinstance(atom, Literal)}

    needed, early, late = variables(first), [], []
    for operation in reversed(program.eqns):
        if needed.isdisjoint(operation.outvars):
            late.append(operation)
        else:
            early.append(operation)
            needed |= variables(operation.invars)
    needed, wanted = variables(others), []
    for operation in late:
        if not needed.isdisjoint(operation.outvars):
            wanted.append(operation)
            needed |= variables(operation.invars)
    made = {var for operation in wanted for var in operation.outvars} | constants.keys()
    known = [*program.invars, *(var for operation in reversed(early) for var in operation.outvars)]
    rest = [var for var in known if var in needed and var not in made]

    def read(values: Mapping[Any, Any], atoms: Sequence[Any]) -> list[jax.Array]:
        return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]

    def early_half(arrays: Arrays) -> tuple[list[jax.Array], list[jax.Array]]:
        values = constants | dict(zip(program.invars, arrays, strict=True))
        _run(reversed(early), values)
        return read(values, first), read(values, rest)

    def late_half(arrays: Arrays) -> list[jax.Array]:
        values = constants | dict(zip(rest, arrays, strict=True))
        _run(reversed(wanted), values)
        return read(values, others)

    return Halves(early_half, late_half)


def _evaluated(program: Any, arrays: Sequence[jax.Array]) -> list[jax.Array]:  # JAX has two types of them
    from jax.extend.core import Literal

    inner = getattr(program, "jaxpr", program)
    values = dict(zip(inner.constvars, getattr(program, "consts", ()), strict=True))
    values.update(zip(inner.invars, arrays, strict=True))
    _run(inner.eqns, values)
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in inner.outvars]


def _run(operations: Iterable[Any], values: dict[Any, Any]) -> None:
    from jax.extend.core import Literal

    for operation in operations:
        arguments = [atom.val if isinstance(atom, Literal) else values[atom] for atom in operation.invars]
        primitive = operation.primitive
        with operation.ctx.manager:
            if primitive.name in OPENED:
                results = _evaluated(operation.params["jaxpr"], arguments)
            else:
                results = primitive.bind(*arguments, **primitive.get_bind_params(operation.params))
        values.update(zip(operation.outvars, results if primitive.multiple_results else [results], strict=True))
