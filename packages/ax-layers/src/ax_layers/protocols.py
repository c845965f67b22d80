"""The seams that ax-layers owns: what its modules ask of a mesh, of kernels, and of caches.

Shapes in docstrings use one letter a dim: ``B`` batch, ``T`` query length, ``S`` key length, ``N`` query heads, ``K``
key-value heads, ``H`` head dim, ``D`` model dim, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

import jax

Axes: TypeAlias = Sequence[str | None]
"""Logical names of an array's dims ("batch", "seq", "embed", …); None where a dim has none."""

P = ParamSpec("P")
R = TypeVar("R")
State = TypeVar("State")


class Sharder(Protocol):
    """Places arrays by the logical names of their dims. On one device it does nothing."""

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """``x`` again, laid out as the rules for ``axes`` say; ``len(axes) == x.ndim``."""
        ...

    def shard_map(
        self, fn: Callable[P, R], /, *, in_axes: Sequence[Axes], out_axes: Axes | Sequence[Axes]
    ) -> Callable[P, R]:
        """``fn`` run on each device's own shard, for code that the compiler can't partition (kernels)."""
        ...


class AttentionFn(Protocol):
    """Scaled dot-product attention on plain arrays."""

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None = None,
        logit_cap: float | None = None,
        query_positions: jax.Array | None = None,
        key_positions: jax.Array | None = None,
        query_segments: jax.Array | None = None,
        key_segments: jax.Array | None = None,
    ) -> jax.Array:
        """``[B, T, N, H] × [B, S, K, H] × [B, S, K, H] → [B, T, N, H]`` in the query's dtype; ``N`` is a multiple of ``K``.

        A query sees a key when all of these hold: not ``causal`` or the key's position is not after the query's;
        ``window`` is None or the query's position minus the key's is less than it; both are in the same segment; the
        key's position is not negative (a negative position marks an empty cache slot). Positions are ``[B, T]`` and
        ``[B, S]`` int32; None means that row ``i`` stands at position ``i``. Segments are ``[B, T]`` and ``[B, S]``
        int32; None means one segment. Logits are scaled, then capped as ``cap * tanh(x / cap)``; softmax in float32.
        A query that sees no key gives zeros. An implementation that lacks an option raises ValueError naming it.
        """
        ...


class CrossEntropyFn(Protocol):
    """The language model's head and its loss in one call, so that an implementation need not hold all logits."""

    def __call__(
        self, hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """``[M, D] × [V, D] × [M] int32 → (loss [M], log_z [M])``, both float32.

        ``loss = log_z - logits[target]`` with ``logits = hidden @ weight.T`` and ``log_z = logsumexp(logits)``.
        """
        ...


class KVCache(Protocol[State]):
    """Where an attention layer keeps the keys and values of earlier positions."""

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> State:
        """An empty state, a pytree of arrays."""
        ...

    def update(
        self, state: State, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[State, jax.Array, jax.Array, jax.Array]:
        """Add ``[B, T, K, H]`` keys and values at ``positions`` ``[B, T]``; a negative position adds nothing.

        Returns the new state and all that is cached: keys ``[B, S, K, H]``, values alike, positions ``[B, S]`` with -1
        in empty slots.
        """
        ...
