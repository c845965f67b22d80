"""The seams that ax-layers owns: what its modules ask of a mesh, of kernels, of caches, and of each other.

Shapes in docstrings use one letter a dim: ``B`` batch, ``T`` query length, ``S`` key length, ``N`` query heads, ``K``
key-value heads, ``H`` head dim, ``D`` model dim, ``V`` vocabulary. Of linear attention: ``G`` heads of queries and keys, ``N``
of values, ``S`` state dim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, runtime_checkable

import jax

Axes: TypeAlias = Sequence[str | None]
"""Logical names of an array's dims ("batch", "seq", "embed", …); None where a dim has none."""

ArrayTree: TypeAlias = "Mapping[str, jax.Array | ArrayTree]"
"""Arrays in nested dicts: parameters, and what a layer remembers of a sequence."""

P = ParamSpec("P")
R = TypeVar("R")
State = TypeVar("State")
Shared = TypeVar("Shared")
Rows = TypeVar("Rows")
Rest = TypeVar("Rest")


class Sharder(Protocol):
    """Places arrays by the logical names of their dims. On one device it does nothing."""

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """``x`` again, laid out as the rules for ``axes`` say; ``len(axes) == x.ndim``."""
        ...

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
        """``fn`` run on each device's own shard, for code that the compiler can't partition (kernels), or that sends by itself.

        ``over`` are the names along which the arrays are split for it; along all others the compiler goes on to partition
        ``fn``, which may ``constrain`` and ``shard_map`` in its turn. None: along all.

        One part of the mesh is split over for one name in a call. The names in ``sharing`` are free of that: each is split as
        if it were alone, and only a name that meets it in an array gives way. So weights may be split by "expert" over devices
        that tokens are split over by "batch".
        """
        ...

    def split(
        self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /, *, sharing: Sequence[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """How ``shard_map`` would split each name of such arrays: what the collectives of ``jax.lax`` take as ``axis_name``
        within it, from slow to fast links. Names that aren't split are left out.
        """
        ...


@runtime_checkable
class SupportsPaths(Protocol):
    """A ``Sharder`` that may place the arrays of one module otherwise than those of others."""

    def at(self, path: str, /) -> Sharder:
        """The sharder for the module at ``path`` ("layers/attention", "" for the root); it is asked anew for every module."""
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


class PartialAttention(Protocol):
    """Attention to a part of the keys, in halves, for those to whom the keys come a part at a time.

    The softmax over all keys is put together from those over each part, and the gradients are sums over the parts. Options mean
    what they do in ``AttentionFn``; positions are always given.
    """

    def forward(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None,
        logit_cap: float | None,
        query_positions: jax.Array,
        key_positions: jax.Array,
        query_segments: jax.Array | None,
        key_segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """The output ``[B, T, N, H]`` for these keys alone, and the log-sum-exp of the logits ``[B, N, T]``, both float32.

        Where a query sees none of the keys, zeros, and a finite number below -1e30.
        """
        ...

    def backward(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        out: jax.Array,
        log_sum_exp: jax.Array,
        d_out: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None,
        logit_cap: float | None,
        query_positions: jax.Array,
        key_positions: jax.Array,
        query_segments: jax.Array | None,
        key_segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """What these keys add to the gradients of query, key and value; float32, of their shapes.

        ``out`` (in the query's dtype) and ``log_sum_exp`` are those of the softmax over all keys, and ``d_out`` is the gradient of
        ``out``. A log-sum-exp below -1e30 is that of a query that sees nothing, which gives and gets zeros.
        """
        ...


class StateSpaceFn(Protocol):
    """The selective state space of Mamba-2, or any linear attention whose heads decay, on plain arrays."""

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        log_decay: jax.Array,
        /,
        *,
        state: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """``[B, T, G, S] × [B, T, G, S] × [B, T, N, H] × [B, T, N] → ([B, T, N, H], [B, N, S, H])``.

        Row by row ``state = exp(log_decay) · state + keyᵀ · value``, and the output is ``query · state``, in the value's
        type. ``N`` is a multiple of the ``G`` groups. ``log_decay`` is at most 0; decays and states are float32. ``state`` is
        the one before the first row, None zero; the second result is the one after the last. Where ``segments``
        ``[B, T]`` changes from one row to the next, the state starts again from zero.
        """
        ...


class DeltaRuleFn(Protocol):
    """The gated delta rule on plain arrays."""

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        log_decay: jax.Array,
        beta: jax.Array,
        /,
        *,
        state: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """As ``StateSpaceFn``, with ``beta`` ``[B, T, N]`` in [0, 1] and keys of at most unit length.

        Row by row ``state = exp(log_decay) · state``, then ``state = state + beta · keyᵀ · (value - key · state)``, and the
        output is ``query · state``.
        """
        ...


class AttentionMask(Protocol):
    """Which keys a query may see, by where the two stand; holds no array of queries by keys."""

    def __call__(self, query_positions: jax.Array, key_positions: jax.Array, /) -> jax.Array:
        """``[B, T, 1] × [B, 1, S]`` int32 → ``[B, T, S]`` bool; ``B`` may be 1."""
        ...


class AttentionBias(Protocol):
    """What is added to a logit for where a query and a key stand."""

    def __call__(self, query_positions: jax.Array, key_positions: jax.Array, /, *, num_heads: int) -> jax.Array:
        """``[B, T, 1] × [B, 1, S]`` int32 → ``[B, N, T, S]`` float32; ``B`` may be 1."""
        ...


class SupportsAttentionOptions(Protocol):
    """An ``AttentionFn`` that takes more. Each option is given only where it is wanted."""

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
        mask: AttentionMask | None = None,
        bias: AttentionBias | None = None,
        sinks: jax.Array | None = None,
    ) -> jax.Array:
        """As ``AttentionFn``, and: a query sees a key only if ``mask`` lets it; ``bias`` is added to capped logits;
        ``sinks`` ``[N]`` float32 is one more logit a head, which takes its share of the softmax and gives nothing.
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


@runtime_checkable
class SupportsWindow(Protocol):
    """A ``KVCache`` that forgets: for attention that looks no further back."""

    @property
    def window(self) -> int:
        """How many of the latest positions it keeps."""
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


class GatedArrayFn(Protocol):
    """One array and its gate, of the same shape, to another: a gated norm."""

    def __call__(self, x: jax.Array, gate: jax.Array, /) -> jax.Array: ...


class SequenceConv(Protocol):
    """Mixes each channel's neighbouring rows. ``build(dim=, axes=)``: the channels' sizes, and their logical names."""

    def __call__(self, x: jax.Array, /, *, segments: jax.Array | None = None) -> jax.Array:
        """``[B, T, *dim] → [B, T, *dim]``; no row sees a later one, or one of another segment."""
        ...

    def init_cache(self, *, batch_size: int) -> jax.Array:
        """What ``extend`` has to remember of a sequence, before its first row."""
        ...

    def extend(self, x: jax.Array, cache: jax.Array, /, *, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next ``[B, T, *dim]``; rows with a negative position are padding."""
        ...


class Projection(Protocol):
    """A linear map from one or several trailing dims to others, whose sizes and logical names it is built with.

    ``build(in_dim=, out_dim=, in_axes=, out_axes=)``: sizes are ints or tuples of them, axes are tuples of names.
    """

    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        ...


class SequenceProjection(Protocol):
    """A ``Projection`` of sequences, built as one, that may mix each row with some before it, and then remembers them."""

    def __call__(self, x: jax.Array, /, *, segments: jax.Array | None = None) -> jax.Array:
        """``[B, T, *in_dim] → [B, T, *out_dim]``; no row sees a later one, or one of another segment."""
        ...

    def init_cache(self, *, batch_size: int) -> jax.Array:
        """What ``extend`` has to remember of a sequence, before its first row."""
        ...

    def extend(self, x: jax.Array, cache: jax.Array, /, *, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next ``[B, T, *in_dim]``; rows with a negative position are padding."""
        ...


class RangeFn(Protocol):
    """Says how large the numbers are that are to be told in few bits."""

    def __call__(self, x: jax.Array, /, *, dims: tuple[int, ...]) -> jax.Array:
        """The largest magnitude to be told, float32, of ``x``'s number of dims and of size 1 along ``dims`` at least.

        ``dims`` are those that a product sums over. What exceeds the range is cut to it.
        """
        ...


class QKVProjection(Protocol):
    """Queries, keys and values at once; built with ``dim``, ``num_heads``, ``num_kv_heads`` and ``head_dim``."""

    def __call__(self, x: jax.Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
        """``[B, T, D]`` → queries ``[B, T, N, H]``, keys and values ``[B, T, K, H]``; query ``n`` meets key ``n // (N / K)``."""
        ...


class PositionEncoding(Protocol):
    """Tells queries and keys where they stand."""

    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None) -> jax.Array:
        """``[B, T, N, H]`` again, for ``positions`` ``[B, T]``; None means that row ``i`` stands at position ``i``."""
        ...


class FrequencyScaling(Protocol):
    """Makes other rotary frequencies, for longer texts."""

    def __call__(self, frequencies: jax.Array, /) -> jax.Array:
        """Radians a position, from the fastest pair to the slowest, float32 → the same shape."""
        ...


class PositionEmbedding(Protocol):
    """Tells tokens where they stand, once, before the first layer."""

    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None = None) -> jax.Array:
        """``[B, T, D] → [B, T, D]``, for ``positions`` as a ``PositionEncoding`` takes them."""
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


@runtime_checkable
class SupportsPiecewiseLoss(Protocol):
    """A ``SequenceLayer`` that goes through a batch in pieces, and through what comes after it as well."""

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
        """The sum of ``tail(shared, y, rows)[0]`` over pieces of the batch, and the rest of its results, stacked by piece.

        ``y`` ``[b, T, D]`` is what the layer makes of ``x`` ``[B, T, D]`` in one piece; ``shared`` is the same for all, and
        ``rows`` are arrays ``[B, …]``, of which a piece has its own. ``tail`` is a pure function. The loss may be differentiated by
        parameters, ``x`` and ``shared``; its gradient has that of the auxiliary losses that layers hand out in it, which their
        outputs are without. The rest has no gradient.
        """
        ...


class FurtherPrediction(NamedTuple):
    """A token beyond the next, predicted at every position."""

    hidden: jax.Array
    """What the head is given, ``[B, T, D]``."""
    targets: jax.Array
    """``[B, T]`` int32, a negative one not counting."""


class FurtherPredictions(Protocol):
    """Predicts tokens beyond the next one while a language model is trained; built with ``dim``."""

    @property
    def num_predictions(self) -> int:
        """How many tokens beyond the next."""
        ...

    @property
    def weight(self) -> float:
        """Of the loss of each, beside that of the next token."""
        ...

    def __call__(
        self,
        hidden: jax.Array,
        embedded: jax.Array,
        targets: jax.Array,
        /,
        *,
        positions: jax.Array | None,
        segments: jax.Array | None,
    ) -> Sequence[FurtherPrediction]:
        """From what the layers made of a sequence, before the last norm, and its tokens' embeddings, ``[B, T, D]`` both."""
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


class GroupedMatmul(Protocol):
    """Rows that belong to groups, each multiplied with its group's matrix."""

    def __call__(self, rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /) -> jax.Array:
        """``[M, D] × [E, D, F] × [E] int32 → [M, F]`` in the rows' type, which is that of the weights.

        The first ``group_sizes[0]`` rows are multiplied with ``weights[0]``, the next ``group_sizes[1]`` with
        ``weights[1]``, and so on; a group may be empty. Rows after the last group give zeros.
        """
        ...


class Routing(NamedTuple):
    """Which experts see which tokens: for each sequence ``A`` assignments, in any order.

    All are ``[B, A]``. An expert has a token at most once.
    """

    tokens: jax.Array
    """Where in its sequence the token stands, int32."""
    experts: jax.Array
    """The expert that it is for, int32."""
    weights: jax.Array
    """What the expert's output is multiplied with, float32, at least 0."""


class Router(Protocol):
    """Decides which experts see which tokens. Built with ``dim=`` and ``num_experts=``."""

    @property
    def experts_per_token(self) -> float:
        """How many experts a token meets on average."""
        ...

    def __call__(self, x: jax.Array, /) -> Routing:
        """``[B, T, D]`` → the assignments."""
        ...


class Experts(Protocol):
    """Layers side by side, each with inputs of its own. Built with ``dim=`` and ``num_experts=``."""

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """Those of one expert for a token that it sees."""
        ...

    def __call__(self, x: jax.Array, routing: Routing, /) -> tuple[jax.Array, jax.Array]:
        """``[B, T, D]`` → the weighted sums of the experts' outputs ``[B, T, D]``, and how many experts each token
        reached, ``[B, T]`` int32."""
        ...


RowsMatmul: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]
"""Experts' rows, laid out somehow, times a weight ``[E, D, F]``: each row with its own expert's."""

ExpertFn: TypeAlias = Callable[[jax.Array, Sequence[jax.Array], RowsMatmul], jax.Array]
"""What an expert does to its rows ``[…, D] → […, D]``, given its weights, without saying how the rows of all experts lie in memory.

It works row by row, and multiplies with weights by the matmul only. Where the weights' inner dims ("mlp") are split over
devices, what the shards give adds up to the result.
"""


class Dispatch(Protocol):
    """Brings tokens to experts and their outputs back."""

    def __call__(
        self,
        x: jax.Array,
        routing: Routing,
        weights: Sequence[jax.Array],
        axes: Sequence[Axes],
        expert: ExpertFn,
        /,
    ) -> tuple[jax.Array, jax.Array]:
        """What ``Experts`` return. ``axes`` name the dims of the weights: "expert" first, None for the model's width, along which
        they may lie split as "embed" is, to be gathered.
        """
        ...


class Exchange(Protocol):
    """Sends a block of rows from every device of a group to every other; called within ``shard_map``."""

    def __call__(
        self, rows: jax.Array, num_sent: jax.Array, num_received: jax.Array, /, *, axis_name: tuple[str, ...]
    ) -> jax.Array:
        """``[N, R, …] → [N, R, …]``, over the ``N`` devices of ``axis_name``: block ``i`` of device ``j`` is block ``j`` of ``i``'s result.

        Of block ``i`` the first ``num_sent[i]`` rows count, of block ``i`` of the result the first ``num_received[i]``, both ``[N]``
        int32; the others may hold any finite numbers.
        """
        ...


class LogitNoise(Protocol):
    """Makes a router try other experts. Built with ``dim=`` and ``num_experts=``."""

    def __call__(self, logits: jax.Array, x: jax.Array, /) -> jax.Array:
        """``[B, T, E]`` again, for tokens ``[B, T, D]``."""
        ...


class SelectFn(Protocol):
    """Chooses each token's experts by their scores."""

    def __call__(self, scores: jax.Array, /, *, k: int) -> jax.Array:
        """``[B, T, E]`` → the ``k`` different experts of each token, ``[B, T, k]`` int32."""
        ...


class SelectionBias(Protocol):
    """Shifts scores for the choice of experts, but not for their weights. Built with ``num_experts=``."""

    def __call__(self, scores: jax.Array, /) -> jax.Array:
        """``[B, T, E]`` again."""
        ...

    def observe(self, load: jax.Array, /) -> None:
        """Learn how many tokens each expert was given, ``[E]`` float32."""
        ...


class RouterLoss(Protocol):
    """What is added to the model's loss on account of a router."""

    def __call__(self, logits: jax.Array, scores: jax.Array, load: jax.Array, /) -> jax.Array:
        """``[B, T, E]`` logits and scores, and how many tokens each expert was given ``[E]`` → a scalar, all float32."""
        ...


class LMCache(TypedDict):
    """How many tokens of each sequence were read, ``[B]`` int32, and what the layers remember of them."""

    lengths: jax.Array
    layers: ArrayTree


class LanguageModel(Protocol):
    """A causal language model, whatever it is made of; built with ``vocab_size``."""

    def __call__(
        self, tokens: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T]`` int32 → logits ``[B, T, V]`` float32."""
        ...

    def loss(
        self, batch: Mapping[str, jax.Array], /, *, train: bool
    ) -> tuple[jax.Array, Mapping[str, tuple[jax.Array, jax.Array]]]:
        """What training minimises, of "tokens" and "targets"; and metrics by name, "loss" among them: mean and weight."""
        ...

    def init_cache(self, batch_size: int, max_length: int, /) -> LMCache:
        """Of sequences with no token read yet."""
        ...

    def prefill(self, tokens: jax.Array, lengths: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """Read the first ``lengths`` ``[B]`` of tokens ``[B, T]``; logits ``[B, V]`` after the last of them."""
        ...

    def decode(self, tokens: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """Read one token a sequence, ``[B]``; logits ``[B, V]`` after it."""
        ...

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """FLOPs of forward and backward for one token."""
        ...
