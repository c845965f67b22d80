"""The seams that ax-layers owns: what its modules ask of a mesh, of kernels, of caches, and of each other.

Shapes in docstrings use one letter a dim: ``B`` batch, ``T`` query length, ``S`` key length, ``N`` query heads, ``K``
key-value heads, ``H`` head dim, ``D`` model dim, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax

Axes: TypeAlias = Sequence[str | None]
"""Logical names of an array's dims ("batch", "seq", "embed", …); None where a dim has none."""

ArrayTree: TypeAlias = "Mapping[str, jax.Array | ArrayTree]"
"""Arrays in nested dicts: parameters, and what a layer remembers of a sequence."""

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
    """Where an attention layer keeps the keys and values of earlier positions; it has no parameters."""

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


class Initializer(Protocol):
    """Draws a parameter's first value."""

    def __call__(
        self, key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int
    ) -> jax.Array:
        """An array of ``shape``; ``fan_in`` inputs are summed into each output that the parameter makes."""
        ...


class ArrayFn(Protocol):
    """One array to another of the same shape: a norm, an activation, a feed-forward, dropout."""

    def __call__(self, x: jax.Array, /) -> jax.Array: ...


class Projection(Protocol):
    """A linear map from one or several trailing dims to others, whose sizes and logical names it is built with.

    ``build(in_dim=, out_dim=, in_axes=, out_axes=)``: sizes are ints or tuples of them, axes are tuples of names.
    """

    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        ...


class PositionEncoding(Protocol):
    """Tells queries and keys where they stand."""

    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None) -> jax.Array:
        """``[B, T, N, H]`` again, for ``positions`` ``[B, T]``; None means that row ``i`` stands at position ``i``."""
        ...


class SequenceLayer(Protocol):
    """What maps a sequence to a sequence, at once or piece by piece: attention, a block, a stack of blocks."""

    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``. None: row ``i`` stands at position ``i``; there is one segment."""
        ...

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """What ``extend`` has to remember of a sequence, before its first token."""
        ...

    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]`` of sequences whose earlier part ``cache`` remembers.

        Rows with a negative position are padding: they are not remembered, and what is returned for them means nothing.
        """
        ...


class TokenEmbedding(Protocol):
    """Token ids to vectors."""

    def __call__(self, tokens: jax.Array, /) -> jax.Array:
        """``[B, T]`` int32 → ``[B, T, D]``."""
        ...


@runtime_checkable
class OutputHead(Protocol):
    """Vectors to logits over the vocabulary; a token embedding may be one as well (tied weights)."""

    def attend(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, V]`` float32."""
        ...

    def output_weight(self) -> jax.Array:
        """The ``[V, D]`` matrix behind ``attend``, in the type to compute in, for a ``CrossEntropyFn``."""
        ...
