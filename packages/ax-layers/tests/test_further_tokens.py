"""Prediction of tokens beyond the next."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_layers import Attention, Block, CausalLM, FurtherTokens, GatedFeedForward, Repeat, as_model, functional

VOCAB, DIM, LENGTH = 19, 16, 7


def block() -> Block.Config:
    return Block.Config(attention=Attention.Config(num_heads=2, head_dim=8), ffn=GatedFeedForward.Config(hidden_dim=24))


def lm(num_tokens: int, *, tied: bool = False) -> CausalLM:
    config = CausalLM.Config(
        dim=DIM,
        layers=Repeat.Config(num_layers=2, layer=block()),
        further=FurtherTokens.Config(num_tokens=num_tokens, layer=block(), weight=0.6),
    )
    return (config.clone(head=None) if tied else config).build(vocab_size=VOCAB)


@pytest.fixture
def batch() -> dict[str, jax.Array]:
    text = jax.random.randint(jax.random.key(3), (2, LENGTH + 1), 0, VOCAB, jnp.int32)
    return {"tokens": text[:, :-1], "targets": text[:, 1:]}


def nll(logits: np.ndarray, targets: np.ndarray) -> float:
    counted = targets >= 0
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, np.where(counted, targets, 0)[..., None], -1)[..., 0]
    return float(-picked[counted].mean())


@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_is_the_weighted_sum_of_all_predictions(batch: dict[str, jax.Array], tied: bool) -> None:
    module = lm(2, tied=tied)
    model = as_model(module)
    params = model.init(jax.random.key(0))
    loss, metrics = model.loss(params, batch, key=jax.random.key(1), train=True)
    # The same by hand, from what the parts make of the text.
    further = module.further
    assert isinstance(further, FurtherTokens)
    embedded, _ = functional(module.embedding)(params["embedding"], None, batch["tokens"])  # type: ignore[arg-type]
    layered, _ = functional(module.layers)(params["layers"], None, embedded)  # type: ignore[arg-type]
    parts, _ = functional(further)(
        params["further"],  # type: ignore[arg-type]  # a dict
        None,
        layered,
        embedded,
        batch["targets"],
        positions=None,
        segments=None,
    )
    weight = np.asarray(params["embedding" if tied else "head"]["weight"])
    plain, _ = functional(module)(params, None, batch["tokens"])
    wanted = nll(np.asarray(plain), np.asarray(batch["targets"]))
    np.testing.assert_allclose(metrics["loss"][0], wanted, rtol=1e-5)
    targets = np.asarray(batch["targets"])
    for k, part in enumerate(parts, 1):
        shifted = np.concatenate([targets[:, k:], np.full((2, k), -1)], axis=1)
        np.testing.assert_array_equal(part.targets, shifted)
        one = nll(np.asarray(part.hidden) @ weight.T, shifted)
        np.testing.assert_allclose(metrics[f"loss_{k + 1}"][0], one, rtol=1e-5)
        wanted += 0.3 * one
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    assert "loss_2" not in model.loss(params, batch, key=jax.random.key(1), train=False)[1]


def test_a_prediction_sees_no_token_that_it_is_to_predict() -> None:
    further = FurtherTokens.Config(num_tokens=2, layer=block()).build(dim=DIM)
    params = further.init(jax.random.key(0))
    hidden, embedded = jax.random.normal(jax.random.key(1), (2, 1, LENGTH, DIM), jnp.float32)
    targets = jnp.zeros((1, LENGTH), jnp.int32)
    call = functional(further)

    def at(embedded: jax.Array, k: int, position: int) -> jax.Array:
        parts, _ = call(params, None, hidden, embedded, targets, positions=None, segments=None)
        return parts[k - 1].hidden[0, position].sum()

    for k, position in ((1, 2), (2, 3)):
        seen = np.asarray(jax.grad(at)(embedded, k, position))[0]
        assert np.abs(seen[position + k]).sum() > 0, "it is told the token before"
        np.testing.assert_array_equal(seen[position + k + 1 :], 0.0)


def test_no_prediction_crosses_the_end_of_a_document() -> None:
    further = FurtherTokens.Config(num_tokens=1, layer=block()).build(dim=DIM)
    x = jnp.ones((1, 6, DIM), jnp.float32)
    segments = jnp.asarray([[0, 0, 0, 1, 1, 1]], jnp.int32)
    targets = jnp.asarray([[1, 2, -1, 4, 5, -1]], jnp.int32)
    (part,), _ = functional(further)(
        further.init(jax.random.key(0)), None, x, x, targets, positions=None, segments=segments
    )
    np.testing.assert_array_equal(part.targets, [[2, -1, -1, 5, -1, -1]])


def test_flops_count_the_head_once_a_prediction() -> None:
    for tied in (False, True):
        without = lm(1, tied=tied).training_flops_per_token(LENGTH)
        more = lm(2, tied=tied).training_flops_per_token(LENGTH)
        step = FurtherTokens.Config(layer=block()).build(dim=DIM).training_flops_per_token(LENGTH)
        assert more - without == step + 6 * VOCAB * DIM
