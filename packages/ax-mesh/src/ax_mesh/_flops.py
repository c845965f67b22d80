"""How many floating-point operations a function takes, loops multiplied out and what is computed again counted again.

XLA's own count takes a loop's body once. Here the jaxpr is walked: a scan's body counts as often as it runs, a
conditional as its most expensive branch, a call by shards once for each shard. What counts is matrix products, two
operations for each multiplication and addition; the rest is a per cent of a language model and bound by memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # At run time it would bring in all of Pallas.
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var


def flops(jaxpr: ClosedJaxpr, /) -> float:
    """Of ``jax.make_jaxpr(f)(…)`` or ``jax.jit(f).trace(…).jaxpr``; of all devices together.

    A loop whose number of trips only its data decides counts as one trip.
    """
    return _of(jaxpr)


def _of(jaxpr: ClosedJaxpr | Jaxpr) -> float:
    return math.fsum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: JaxprEqn) -> float:
    name, params = equation.primitive.name, equation.params
    within = [_of(each) for each in _within(params)]
    operands, results = ([_shape(each) for each in variables] for variables in (equation.invars, equation.outvars))
    match name:
        case "dot_general":
            contracted: tuple[int, ...] = params["dimension_numbers"][0][0]
            return 2.0 * math.prod(results[0]) * math.prod(operands[0][dim] for dim in contracted)
        case "ragged_dot" | "ragged_dot_general":
            # Every row meets one group's matrix: rows × columns × depth, with or without a result for each group.
            return 2.0 * math.prod(operands[0][-2:]) * results[0][-1]
        case "conv_general_dilated":
            features: int = params["dimension_numbers"].rhs_spec[0]
            return 2.0 * math.prod(results[0]) * math.prod(operands[1]) / operands[1][features]
        case "scan":
            return float(params["length"]) * sum(within)
        case "cond":
            return max(within, default=0.0)
        case "shard_map":
            sizes: dict[str, int] = dict(params["mesh"].shape)
            split = "newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"  # its name in JAX 0.10.0
            return math.prod(sizes[axis] for axis in params[split]) * sum(within)
        case "pallas_call":
            return math.prod(size for size in params["grid_mapping"].grid if isinstance(size, int)) * sum(within)
        case "custom_jvp_call" | "custom_vjp_call" | "custom_vjp_call_jaxpr":
            return within[0]  # The others are for derivatives, which have been taken where they were wanted.
        case _:
            return sum(within)


def _shape(variable: Var | Literal) -> tuple[int, ...]:
    shape: tuple[int, ...] = getattr(variable.aval, "shape", ())
    return shape


def _within(params: dict[str, object]) -> Iterator[Jaxpr]:
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(each, "eqns"):
                yield cast("Jaxpr", each)
