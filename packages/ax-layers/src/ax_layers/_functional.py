"""From a call of a module to a pure function, on which every JAX transform of modules is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import jax

from ._context import Collected, Context, Observer, RandomKey, current, pushed
from ._module import Module
from ._sharder import Unsharded
from .protocols import ArrayTree, Sharder

P = ParamSpec("P")
R = TypeVar("R")

Key: TypeAlias = jax.Array | RandomKey | None
"""A key of ``jax.random``, one handed on from a module's ``random``, or None: nothing is random (no dropout)."""


def functional(
    call: Callable[P, R], /, *, sharder: Sharder | None = None, observer: Observer | None = None
) -> Callable[Concatenate[ArrayTree, Key, P], tuple[R, Collected]]:
    """The pure function ``(params, key, *inputs) -> (outputs, collected)`` behind a module or one of its methods.

    ``call`` is a module (``functional(model)``) or a method of one (``functional(model.extend)``). ``params`` are that
    module's. Paths in ``collected`` are relative to it. Within a running context, the sharder and the observer are that
    context's unless given.

    Raises:
        TypeError: ``call`` is neither.
    """
    target: object = call
    module = target if isinstance(target, Module) else getattr(target, "__self__", None)
    if not isinstance(module, Module):
        raise TypeError(f"functional takes a Module or a method of one, got {call!r}")
    outer = current()
    if sharder is None:
        sharder = outer.sharder if outer is not None else Unsharded()
    if observer is None and outer is not None:
        observer = outer.observer

    def pure(params: ArrayTree, key: Key, /, *args: P.args, **kwargs: P.kwargs) -> tuple[R, Collected]:
        random = key if isinstance(key, RandomKey) or key is None else RandomKey(key)
        with pushed(Context(module, params, random, sharder, observer)) as context:
            outputs = call(*args, **kwargs)
        return outputs, context.collected

    return pure
