"""Generation: prompts in, a stream of tokens out, one array a step.

Two programs are compiled: one reads the prompts and draws the first token, one reads a token and draws the next. Both
are jitted at module level with the decoder and the sampler as static arguments, and lengths are rounded up to buckets,
so later calls find them compiled. The state (cache, last tokens, positions) is donated from step to step and stays on
the device; the host fetches only the tokens, after the step that follows them is on its way.

A token is drawn with its sequence's key folded by the token's position, so it depends on that sequence's seed and
tokens alone: not on the rest of the batch, not on padding, and not on whether the tokens before it came as prompt or
were generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ._buckets import bucket_length
from .protocols import Decoder

Params = TypeVar("Params")
Cache = TypeVar("Cache")
Draw: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]

FINISHED = -1
"""Stands in the stream where a sequence has ended before."""


class _State(NamedTuple, Generic[Cache]):
    """What a step hands the next."""

    cache: Cache
    tokens: jax.Array
    positions: jax.Array
    """Of the tokens, ``[B]``."""
    finished: jax.Array
    """Whether the sequence ended with its token or before, ``[B]`` bool."""


def generate(
    decoder: Decoder[Params, Cache],
    params: Params,
    prompts: Sequence[Sequence[int]],
    /,
    *,
    sampler: Draw,
    max_new_tokens: int,
    eos_id: int | None = None,
    seed: int | Sequence[int] = 0,
) -> Iterator[npt.NDArray[np.int32]]:
    """Continue each prompt, and yield the next token of all of them, ``[B]`` int32, step by step.

    A sequence ends with ``eos_id``, which is still yielded; after that `FINISHED` stands in its place. The stream ends
    when all sequences have, or after ``max_new_tokens`` steps. Stop iterating to stop generating.

    Args:
        decoder: The model, hashable: programs are compiled once for equal decoders and samplers, batch size, and bucket
            of lengths.
        params: Its parameters.
        prompts: Token ids, at least one prompt and at least one token in each.
        sampler: Draws tokens ``[B]`` from logits ``[B, V]`` and keys ``[B]``; a `Sampler`, or any hashable function.
        max_new_tokens: At least 1.
        eos_id: The token that ends a sequence; None if none does.
        seed: An int gives each row of the batch its own stream of randomness. A sequence gives each prompt a seed, and
            then the prompt's continuation is what it is in any row of any batch with that seed.

    Raises:
        ValueError: an argument out of its range; a token that isn't in the vocabulary (when the first step is fetched).
        TypeError: the decoder or the sampler isn't hashable.
    """
    if not prompts:
        raise ValueError("generate wants at least one prompt; got none")
    for row, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"generate wants at least one token in each prompt; prompt {row} is empty")
        if min(prompt) < 0:
            raise ValueError(f"prompt {row} has the negative token {min(prompt)}")
    if max_new_tokens < 1:
        raise ValueError(f"generate wants max_new_tokens of at least 1; got {max_new_tokens}")
    if eos_id is not None and eos_id < 0:
        raise ValueError(f"generate wants an eos_id of at least 0, or None if no token ends a sequence; got {eos_id}")
    if not isinstance(seed, int) and len(seed) != len(prompts):
        raise ValueError(f"generate wants one seed, or one a prompt; got {len(seed)} for {len(prompts)} prompts")
    for name, static in (("decoder", decoder), ("sampler", sampler)):
        try:
            hash(static)
        except TypeError as error:
            raise TypeError(
                f"generate wants a hashable {name}, by which it finds compiled programs again; "
                f"{type(static).__qualname__} isn't (a dataclass is if frozen)"
            ) from error
    return _stream(decoder, params, prompts, sampler, max_new_tokens, eos_id, seed)


def _stream(
    decoder: Decoder[Params, Cache],
    params: Params,
    prompts: Sequence[Sequence[int]],
    sampler: Draw,
    max_new_tokens: int,
    eos_id: int | None,
    seed: int | Sequence[int],
) -> Iterator[npt.NDArray[np.int32]]:
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    tokens = np.zeros((len(prompts), bucket_length(int(lengths.max()))), np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    max_length = bucket_length(int(lengths.max()) + max_new_tokens)
    keys, eos = _keys(seed, len(prompts)), np.int32(FINISHED if eos_id is None else eos_id)

    state, fresh, vocab_size = _start(decoder, sampler, max_length, params, tokens, lengths, keys, eos)
    if tokens.max() >= int(vocab_size):
        row, column = np.argwhere(tokens >= int(vocab_size))[0].tolist()
        raise ValueError(
            f"prompt {row} has token {tokens[row, column]} at {column}, beyond the model's vocabulary of {int(vocab_size)}"
        )
    finished = np.zeros(len(prompts), bool)
    for step in range(max_new_tokens):
        current = fresh
        if step + 1 < max_new_tokens:
            # Sent off before the tokens are waited for. When they turn out to be the last, this one step was in vain.
            state, fresh = _step(decoder, sampler, params, state, keys, eos)
        drawn = np.asarray(current)
        yield drawn
        finished |= drawn == eos_id
        if finished.all():
            return


def _keys(seed: int | Sequence[int], num_sequences: int) -> jax.Array:
    """A key a sequence. Row 0 of a seed has the key of that seed given for one sequence."""
    if isinstance(seed, int):
        key = jax.random.key(seed)
        return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(num_sequences))
    return jnp.stack([jax.random.fold_in(jax.random.key(one), 0) for one in seed])


def _draw(sampler: Draw, logits: jax.Array, keys: jax.Array, positions: jax.Array) -> jax.Array:
    return sampler(logits, jax.vmap(jax.random.fold_in)(keys, positions))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _start(
    decoder: Decoder[Params, Cache],
    sampler: Draw,
    max_length: int,
    params: Params,
    tokens: jax.Array,
    lengths: jax.Array,
    keys: jax.Array,
    eos: jax.Array,
) -> tuple[_State[Cache], jax.Array, jax.Array]:
    """The state after the prompts, the first tokens, and the vocabulary's size."""
    logits, cache = decoder.prefill(params, tokens, lengths, decoder.init_cache(tokens.shape[0], max_length))
    drawn = _draw(sampler, logits, keys, lengths)
    return _State(cache, drawn, lengths, drawn == eos), drawn, jnp.int32(logits.shape[-1])


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _step(
    decoder: Decoder[Params, Cache],
    sampler: Draw,
    params: Params,
    state: _State[Cache],
    keys: jax.Array,
    eos: jax.Array,
) -> tuple[_State[Cache], jax.Array]:
    """The state one token on, and those tokens, with `FINISHED` where a sequence had ended."""
    logits, cache = decoder.decode(params, state.tokens, state.cache)
    positions = state.positions + 1
    drawn = _draw(sampler, logits, keys, positions)
    shown = jnp.where(state.finished, FINISHED, drawn)
    return _State(cache, drawn, positions, state.finished | (drawn == eos)), shown
