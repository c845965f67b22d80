"""Distillation: the loss against a closed form, a teacher that stays as it is, and the student that answers for it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    Distillation,
    GatedFeedForward,
    ParamSpec,
    Repeat,
    as_decoder,
    as_model,
    functional,
)

VOCAB = 17


def lm(dim: int) -> CausalLM.Config:
    block = Block.Config(
        attention=Attention.Config(num_heads=2, head_dim=8), ffn=GatedFeedForward.Config(hidden_dim=2 * dim)
    )
    return CausalLM.Config(dim=dim, layers=Repeat.Config(num_layers=1, layer=block))


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


@pytest.mark.parametrize(("weight", "temperature"), [(0.0, 1.0), (0.7, 1.0), (0.3, 2.5), (1.0, 0.5)])
def test_the_loss_is_that_of_the_paper(weight: float, temperature: float) -> None:
    config = Distillation.Config(student=lm(16), teacher=lm(24), weight=weight, temperature=temperature)
    module = config.build(vocab_size=VOCAB)
    model = as_model(module)
    params = jax.jit(model.init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 6), 0, VOCAB, jnp.int32)
    targets = tokens.at[0, :3].set(-1)
    batch = {"tokens": tokens, "targets": targets}
    loss, metrics = jax.jit(lambda p: model.loss(p, batch, key=jax.random.key(2), train=True))(params)

    student, teacher = (
        np.asarray(functional(each)(params[name], None, tokens)[0])
        for name, each in (("student", module.student), ("teacher", module.teacher))
    )
    counted = np.asarray(targets) >= 0
    picked = np.take_along_axis(log_softmax(student), np.where(counted, targets, 0)[..., None], -1)[..., 0]
    nll = -picked[counted].mean()
    p, q = log_softmax(teacher / temperature), log_softmax(student / temperature)
    kl = (np.exp(p) * (p - q)).sum(-1)[counted].mean()
    np.testing.assert_allclose(metrics["loss"][0], nll, rtol=1e-5)
    np.testing.assert_allclose(metrics["divergence"][0], kl, rtol=1e-4)
    np.testing.assert_allclose(loss, (1 - weight) * nll + weight * temperature**2 * kl, rtol=1e-4)


def test_the_teacher_is_not_learnt_and_the_student_answers() -> None:
    module = Distillation.Config(student=lm(16), teacher=lm(24)).build(vocab_size=VOCAB)
    specs = module.specs()
    learnt = {
        name: {spec.trainable for spec in jax.tree.leaves(specs[name]) if isinstance(spec, ParamSpec)} for name in specs
    }
    assert learnt == {"student": {True}, "teacher": {False}}
    model = as_model(module)
    params = jax.jit(model.init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 5), 0, VOCAB, jnp.int32)
    batch = {"tokens": tokens, "targets": tokens}
    gradients = jax.jit(jax.grad(lambda p: model.loss(p, batch, key=jax.random.key(2), train=True)[0]))(params)
    assert all(float(jnp.abs(g).max()) == 0 for g in jax.tree.leaves(gradients["teacher"]))
    assert all(float(jnp.abs(g).max()) > 0 for g in jax.tree.leaves(gradients["student"]["layers"]))

    whole, _ = functional(module)(params, None, tokens)
    decoder = as_decoder(module)
    logits, cache = decoder.prefill(params, tokens[:, :4], jnp.asarray([4, 4], jnp.int32), decoder.init_cache(2, 8))
    np.testing.assert_allclose(logits, whole[:, 3], atol=1e-5)
    logits, _ = decoder.decode(params, tokens[:, 4], cache)
    np.testing.assert_allclose(logits, whole[:, 4], atol=1e-5)
    student = lm(16).build(vocab_size=VOCAB).training_flops_per_token(6)
    teacher = lm(24).build(vocab_size=VOCAB).training_flops_per_token(6)
    assert module.training_flops_per_token(6) == student + teacher / 3
    with pytest.raises(ValueError, match="between 0 and 1"):
        Distillation.Config(student=lm(16), teacher=lm(24), weight=1.5).build(vocab_size=VOCAB)
