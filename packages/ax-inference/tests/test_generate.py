from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_inference import FINISHED, Sampler, bucket_length, generate
from ax_inference._generate import _start, _step
from ax_inference.testing import TinyCache, TinyDecoder, TinyParams

VOCAB_SIZE = 23
DECODER = TinyDecoder(vocab_size=VOCAB_SIZE)
PARAMS = DECODER.init(jax.random.key(0))
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
GREEDY = Sampler.Config(temperature=0.0).build()
RANDOM = Sampler.Config(temperature=2.0).build()


def _generated(
    prompts: Sequence[Sequence[int]],
    sampler: Sampler = RANDOM,
    max_new_tokens: int = 6,
    eos_id: int | None = None,
    seed: int | Sequence[int] = 0,
) -> list[list[int]]:
    """One list a sequence."""
    steps = generate(DECODER, PARAMS, prompts, sampler=sampler, max_new_tokens=max_new_tokens, eos_id=eos_id, seed=seed)
    return [list(map(int, row)) for row in np.stack(list(steps), axis=1)]


def _greedy_by_prefill(prompt: list[int], num_tokens: int) -> list[int]:
    text = list(prompt)
    prefill, cache = jax.jit(DECODER.prefill), DECODER.init_cache(1, 16)
    for _ in range(num_tokens):
        tokens, lengths = jnp.asarray([text + [0] * (16 - len(text))]), jnp.asarray([len(text)])
        logits, _ = prefill(PARAMS, tokens, lengths, cache)
        text.append(int(logits.argmax()))
    return text[len(prompt) :]


def test_greedy_is_the_likeliest_token_by_prefill_again_and_again() -> None:
    assert _generated(PROMPTS, GREEDY) == [_greedy_by_prefill(prompt, 6) for prompt in PROMPTS]


def test_stream_is_one_int32_array_a_step() -> None:
    steps = list(generate(DECODER, PARAMS, PROMPTS, sampler=RANDOM, max_new_tokens=4))
    assert [(step.shape, step.dtype) for step in steps] == [((3,), np.dtype(np.int32))] * 4


def test_a_sequence_ends_with_eos_and_the_stream_with_the_last_sequence() -> None:
    free = _generated(PROMPTS, max_new_tokens=40)
    eos_id = next(token for token in range(VOCAB_SIZE) if all(token in row for row in free))
    ends = [row.index(eos_id) for row in free]
    assert len(set(ends)) > 1, "the test wants sequences that end at different steps"
    got = _generated(PROMPTS, max_new_tokens=40, eos_id=eos_id)
    for row, wanted, end in zip(got, free, ends, strict=True):
        assert len(row) == max(ends) + 1
        assert row == wanted[: end + 1] + [FINISHED] * (max(ends) - end)


def test_continuation_does_not_depend_on_the_batch() -> None:
    seeds = [11, 7, 5]
    together = _generated(PROMPTS, seed=seeds)
    for prompt, seed, wanted in zip(PROMPTS, seeds, together, strict=True):
        assert _generated([prompt], seed=[seed]) == [wanted]
        assert _generated([prompt], seed=seed) == [wanted]
    assert _generated([PROMPTS[2], list(range(20)), PROMPTS[0]], seed=[5, 1, 11])[::2] == together[2::-2]


def test_one_seed_gives_each_row_its_own_randomness() -> None:
    rows = _generated([PROMPTS[0]] * 4, max_new_tokens=8)
    assert len({tuple(row) for row in rows}) == 4
    assert _generated([PROMPTS[0]] * 4, max_new_tokens=8) == rows
    assert _generated([PROMPTS[0]] * 4, max_new_tokens=8, seed=1) != rows


def test_generated_tokens_given_as_prompt_continue_alike() -> None:
    [whole] = _generated([PROMPTS[1]], max_new_tokens=8)
    assert _generated([PROMPTS[1] + whole[:3]], max_new_tokens=5) == [whole[3:]]


@dataclass(frozen=True)
class _Counting:
    """Counts how often its methods are traced."""

    inner: TinyDecoder
    traces: list[str]

    def __hash__(self) -> int:
        return id(self.traces)

    def init_cache(self, batch_size: int, max_length: int, /) -> TinyCache:
        return self.inner.init_cache(batch_size, max_length)

    def prefill(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache, /
    ) -> tuple[jax.Array, TinyCache]:
        self.traces.append("prefill")
        return self.inner.prefill(params, tokens, lengths, cache)

    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        self.traces.append("decode")
        return self.inner.decode(params, tokens, cache)


def test_compiled_once_for_prompts_of_one_bucket() -> None:
    decoder = _Counting(DECODER, [])
    for prompt in ([1, 2, 3], [4], [5] * 9):
        sampler = Sampler.Config(temperature=0.5, top_k=4).build()
        assert len(list(generate(decoder, PARAMS, [prompt], sampler=sampler, max_new_tokens=7))) == 7
    assert decoder.traces == ["prefill", "decode"]


def test_the_cache_is_donated() -> None:
    tokens, lengths, keys = jnp.asarray([[1, 2]]), jnp.asarray([2]), jax.random.split(jax.random.key(0), 1)
    state, _, _ = _start(DECODER, RANDOM, 16, PARAMS, tokens, lengths, keys, np.int32(FINISHED))
    following, _ = _step(DECODER, RANDOM, PARAMS, state, keys, np.int32(FINISHED))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((following, PARAMS)))


def test_buckets() -> None:
    lengths = [bucket_length(n) for n in range(1, 3000)]
    assert lengths == sorted(lengths)
    assert all(n <= bucket <= max(16, n + 16, 1.25 * n) for n, bucket in enumerate(lengths, 1))
    assert sorted(set(lengths))[:12] == [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]
    with pytest.raises(ValueError, match="at least 1; got 0"):
        bucket_length(0)


def test_errors_come_with_the_call() -> None:
    for prompts, message in (
        ([], "at least one prompt"),
        ([[1], []], "prompt 1 is empty"),
        ([[2, -7]], "prompt 0.*-7"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(DECODER, PARAMS, prompts, sampler=GREEDY, max_new_tokens=1)
    with pytest.raises(ValueError, match="max_new_tokens of at least 1; got 0"):
        generate(DECODER, PARAMS, PROMPTS, sampler=GREEDY, max_new_tokens=0)
    with pytest.raises(ValueError, match=r"eos_id of at least 0, or None.*got -1"):
        generate(DECODER, PARAMS, PROMPTS, sampler=GREEDY, max_new_tokens=1, eos_id=-1)
    with pytest.raises(ValueError, match="one seed, or one a prompt; got 2 for 3 prompts"):
        generate(DECODER, PARAMS, PROMPTS, sampler=GREEDY, max_new_tokens=1, seed=[1, 2])


def test_a_token_beyond_the_vocabulary_is_an_error() -> None:
    with pytest.raises(ValueError, match="prompt 1 has token 23 at 2, beyond the model's vocabulary of 23"):
        next(generate(DECODER, PARAMS, [[22], [1, 2, 23]], sampler=GREEDY, max_new_tokens=1))


class _Unhashable(TinyDecoder):
    __hash__ = None  # type: ignore[assignment]  # how Python says that a class isn't hashable


def test_an_unhashable_decoder_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"hashable decoder.*_Unhashable isn't"):
        generate(_Unhashable(vocab_size=3), PARAMS, PROMPTS, sampler=GREEDY, max_new_tokens=1)
