"""The sharder for one device: it leaves everything where it is."""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import jax

from .protocols import Axes

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Unsharded:
    """Fits ``Sharder`` and does nothing."""

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """``x`` itself."""
        return x

    def shard_map(
        self,
        fn: Callable[P, R],
        /,
        *,
        in_axes: Sequence[Axes],
        out_axes: Axes | Sequence[Axes],
        over: Sequence[str] | None = None,
        sharing: Sequence[str] = (),
    ) -> Callable[P, R]:
        """``fn`` itself: the one shard is the whole."""
        return fn

    def split(
        self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /, *, sharing: Sequence[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """Nothing is split."""
        return {}
