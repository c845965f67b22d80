"""The language model against one written by hand in plain JAX, its decoder, and what a training loop sees of it."""

from __future__ import annotations

from typing import Any

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import REQUIRED, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    Dropout,
    GatedFeedForward,
    Module,
    ModuleModel,
    Remat,
    Repeat,
    as_decoder,
    as_model,
    functional,
    scoped,
)

VOCAB, DIM, LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 23, 16, 3, 4, 2, 4, 20


def block(**changes: object) -> Block.Config:
    attention = Attention.Config(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM)
    return Block.Config(attention=attention, ffn=GatedFeedForward.Config(hidden_dim=HIDDEN)).clone(**changes)


def config(**changes: object) -> CausalLM.Config:
    layers = Repeat.Config(num_layers=LAYERS, layer=block())
    return CausalLM.Config(vocab_size=VOCAB, dim=DIM, layers=layers).clone(**changes)


def batch(length: int = 9) -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCAB, (2, length + 1)).astype(np.int32)
    targets = tokens[:, 1:].copy()
    targets[1, -3:] = -1
    return {"tokens": jnp.asarray(tokens[:, :-1]), "targets": jnp.asarray(targets)}


def llama_loss(params: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """A Llama of these sizes, written out without any of the package, layer by layer."""

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * scale[None, None]

    def rotate(x: jax.Array) -> jax.Array:
        half = HEAD_DIM // 2
        angles = jnp.arange(x.shape[1])[:, None] * (10_000.0 ** (-2 * jnp.arange(half) / HEAD_DIM))[None]
        turned = jax.lax.complex(x[..., :half], x[..., half:]) * jnp.exp(1j * angles)[None, :, None]
        return jnp.concatenate([turned.real, turned.imag], -1)

    with jax.numpy_dtype_promotion("standard"):
        x = params["embedding"]["weight"][tokens]
        causal = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))[None, None]
        for i in range(LAYERS):
            layer = jax.tree.map(lambda stacked, i=i: stacked[i], params["layers"])
            y = norm(x, layer["attention_norm"]["scale"])
            query, key, value = (
                jnp.einsum("btd,dnh->btnh", y, layer["attention"][name]["weight"]) for name in ("query", "key", "value")
            )
            key, value = (jnp.repeat(z, HEADS // KV_HEADS, axis=2) for z in (rotate(key), value))
            scores = jnp.einsum("btnh,bsnh->bnts", rotate(query), key) / HEAD_DIM**0.5
            weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1)
            y = jnp.einsum("bnts,bsnh->btnh", weights, value)
            x = x + jnp.einsum("btnh,nhd->btd", y, layer["attention"]["output"]["weight"])
            y = norm(x, layer["ffn_norm"]["scale"])
            ffn = {name: each["weight"] for name, each in layer["ffn"].items()}
            gate = y @ ffn["gate"]
            x = x + (gate / (1 + jnp.exp(-gate)) * (y @ ffn["up"])) @ ffn["down"]
        log_probabilities = jax.nn.log_softmax(norm(x, params["norm"]["scale"]) @ params["head"]["weight"].T, -1)
        losses = -jnp.take_along_axis(log_probabilities, jnp.maximum(targets, 0)[..., None], -1)[..., 0]
        return jnp.where(targets >= 0, losses, 0).sum() / (targets >= 0).sum()


def assert_trees_close(got: object, wanted: object, tolerance: float = 2e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), got, wanted)


def test_loss_and_gradients_equal_a_hand_written_llama() -> None:
    model, data = as_model(config().build()), batch()
    params = jax.jit(model.init)(jax.random.key(0))

    def loss(params: Any) -> tuple[jax.Array, object]:
        return model.loss(params, data, key=jax.random.key(1), train=True)

    (value, metrics), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    wanted, wanted_grads = jax.jit(jax.value_and_grad(llama_loss))(params, data["tokens"], data["targets"])
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    assert_trees_close(grads, wanted_grads)
    assert set(metrics) == {"loss"}
    np.testing.assert_array_equal(metrics["loss"], (value, 15))


@pytest.mark.parametrize("policy", [{"save": ("query", "ffn_gate")}, {"offload": ("query",), "save_matmuls": True}])
def test_remat_changes_neither_parameters_nor_gradients(policy: dict[str, Any]) -> None:
    layer = Remat.Config(layer=block(dropout=Dropout.Config(rate=0.2)), prevent_cse=False, **policy)
    plain = as_model(config(layers=Repeat.Config(num_layers=2, layer=layer.layer)).build())
    remat = as_model(config(layers=Repeat.Config(num_layers=2, layer=layer)).build())
    assert plain.specs() == remat.specs()
    params = jax.jit(plain.init)(jax.random.key(0))

    def gradients(model: ModuleModel) -> object:
        return jax.jit(jax.grad(lambda p: model.loss(p, batch(), key=jax.random.key(1), train=True)[0]))(params)

    assert_trees_close(gradients(remat), gradients(plain))


def test_remat_forgets_what_it_is_not_told_to_save() -> None:
    def saved(**policy: Any) -> int:
        layer = Remat.Config(dim=DIM, layer=block(), **policy).build()
        params = jax.jit(layer.init)(jax.random.key(0))
        _, pull_back = jax.vjp(
            lambda p, x: functional(layer)(p, None, x)[0], params, jnp.ones((2, 5, DIM), jnp.float32)
        )
        return sum(leaf.size for leaf in jax.tree.leaves(pull_back))

    nothing, query, matmuls = saved(), saved(save=("query",)), saved(save_matmuls=True)
    assert query == nothing + 2 * 5 * HEADS * HEAD_DIM
    assert matmuls > query


def test_metrics_of_an_evaluation() -> None:
    module, data = config().build(), batch()
    model, params = as_model(module), jax.jit(module.init)(jax.random.key(0))
    loss, metrics = model.loss(params, data, key=jax.random.key(1), train=False)
    logits, _ = functional(module)(params, None, data["tokens"])
    right = np.asarray(logits.argmax(-1) == data["targets"])[np.asarray(data["targets"]) >= 0]
    np.testing.assert_allclose(metrics["accuracy"], (right.mean(), 15), rtol=1e-6)
    np.testing.assert_array_equal(metrics["loss"], (loss, 15))
    assert set(
        as_model(config(eval_accuracy=False).build()).loss(params, data, key=jax.random.key(1), train=False)[1]
    ) == {"loss"}
    none = {**data, "targets": jnp.full_like(data["targets"], -1)}
    assert model.loss(params, none, key=jax.random.key(1), train=True)[0] == 0.0


def test_segments_keep_packed_documents_apart() -> None:
    module, data = config().build(), batch(8)
    params, tokens = jax.jit(module.init)(jax.random.key(0)), data["tokens"]
    segments = jnp.asarray([[0] * 3 + [1] * 5] * 2, jnp.int32)
    positions = jnp.asarray([[0, 1, 2, 0, 1, 2, 3, 4]] * 2, jnp.int32)
    packed, _ = functional(module)(params, None, tokens, positions=positions, segments=segments)
    apart = [functional(module)(params, None, part)[0] for part in (tokens[:, :3], tokens[:, 3:])]
    np.testing.assert_allclose(packed, jnp.concatenate(apart, axis=1), atol=1e-5)


@pytest.mark.parametrize("head", ["untied", "tied"])
def test_prefill_and_decode_equal_forward(head: str) -> None:
    module = config(**({"head": None} if head == "tied" else {})).build()
    params = jax.jit(module.init)(jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, VOCAB, (3, 10)), jnp.int32)
    whole, _ = functional(module)(params, None, tokens)
    decoder = as_decoder(module)
    lengths = jnp.asarray([5, 1, 3], jnp.int32)
    cache = decoder.init_cache(3, 10)
    logits, cache = jax.jit(decoder.prefill)(params, tokens[:, :6], lengths, cache)
    np.testing.assert_allclose(logits, whole[jnp.arange(3), lengths - 1], atol=1e-5)
    decode = jax.jit(decoder.decode)
    for step in range(5):
        at = lengths + step
        logits, cache = decode(params, tokens[jnp.arange(3), at], cache)
        np.testing.assert_allclose(logits, whole[jnp.arange(3), at], atol=1e-5)
    assert cache["lengths"].tolist() == [10, 6, 8]


def test_prompts_may_come_in_pieces() -> None:
    module = config().build()
    params, decoder = jax.jit(module.init)(jax.random.key(0)), as_decoder(module)
    tokens = batch()["tokens"]
    full = jnp.asarray([9, 9], jnp.int32)
    wanted, _ = decoder.prefill(params, tokens, full, decoder.init_cache(2, 9))
    _, cache = decoder.prefill(params, tokens[:, :4], full - 5, decoder.init_cache(2, 9))
    logits, _ = decoder.prefill(params, tokens[:, 4:], full - 4, cache)
    np.testing.assert_allclose(logits, wanted, atol=1e-5)


def test_repeat_equals_its_layers_one_by_one() -> None:
    stack = Repeat.Config(dim=DIM, num_layers=LAYERS, layer=block(dropout=Dropout.Config(rate=0.3))).build()
    single = block(dim=DIM, dropout=Dropout.Config(rate=0.3)).build()
    key, x = jax.random.key(2), jnp.ones((2, 5, DIM), jnp.float32)
    params = jax.jit(stack.init)(key)
    assert_trees_close(jax.tree.map(lambda p: p[1], params), jax.jit(single.init)(jax.random.fold_in(key, 1)))
    out, _ = jax.jit(functional(stack))(params, key, x)
    for i in range(LAYERS):
        x, _ = functional(single)(jax.tree.map(lambda p, i=i: p[i], params), jax.random.fold_in(key, i), x)
    np.testing.assert_allclose(out, x, atol=1e-5)


class Noted(Module):
    """A feed-forward that tells a mean and an auxiliary loss; and may have a sibling of the usual one."""

    class Config(ax_config.Config["Noted"]):
        dim: int = REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.ffn = self.child("ffn", GatedFeedForward.Config(hidden_dim=HIDDEN), dim=cfg.dim)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        self.output("aux_loss", jnp.float32(0.25))
        self.summarise("two", jnp.float32(2), weight=3)
        return self.ffn(x)


def test_auxiliary_losses_and_summaries_of_all_layers() -> None:
    noted = config(layers=Repeat.Config(num_layers=LAYERS, layer=block(ffn=Noted.Config()))).build()
    params = jax.jit(noted.init)(jax.random.key(0))
    loss, metrics = as_model(noted).loss(params, batch(), key=jax.random.key(1), train=True)
    np.testing.assert_allclose(loss, metrics["loss"][0] + 0.25 * LAYERS, rtol=1e-6)
    np.testing.assert_allclose(metrics["aux_loss"], (0.25 * LAYERS, 15))
    np.testing.assert_allclose(metrics["layers/ffn/two"], (2, 3 * LAYERS))


def test_a_new_sibling_changes_nobody_else() -> None:
    """Init values and dropout depend on a module's own path only."""
    rate = Dropout.Config(rate=0.5)
    with_few = block(dim=DIM, dropout=rate).build()
    attention = Attention.Config(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM)
    changed = block(dim=DIM, dropout=rate, ffn=Noted.Config(), attention=attention).build()
    # Not jitted: as parts of different programs the same values may differ in their last bit.
    few, many = with_few.init(jax.random.key(0)), changed.init(jax.random.key(0))
    assert_trees_close(few["attention"], many["attention"], 0)

    class Before(Module):
        def __init__(self, *, more: bool) -> None:
            super().__init__()
            if more:
                self.other = self.child("other", rate)
            self.dropout = self.child("dropout", rate)

        @scoped
        def __call__(self, x: jax.Array, /) -> jax.Array:
            if hasattr(self, "other"):
                self.other(x)
            return self.dropout(x)

    x = jnp.ones(64, jnp.float32)
    alone, together = (functional(Before(more=more))({}, jax.random.key(1), x)[0] for more in (False, True))
    np.testing.assert_array_equal(alone, together)


def test_layers_and_sites_drop_differently() -> None:
    seen: list[jax.Array] = []

    def ones(x: jax.Array, /, *, dim: int) -> jax.Array:
        return jnp.ones_like(x)

    layer = block(ffn=partial_for(ones), dropout=Dropout.Config(rate=0.5))
    stack = Repeat.Config(dim=DIM, num_layers=2, layer=layer).build()
    params = jax.jit(stack.init)(jax.random.key(0))
    zero = jax.tree.map(jnp.zeros_like, params)
    for key in (0, 1):
        out, _ = functional(stack)(zero, jax.random.key(key), jnp.zeros((1, 8, DIM), jnp.float32))
        seen.append(out)
    assert set(np.unique(np.asarray(seen[0]))) == {0.0, 2.0, 4.0}, "two layers, each with a mask of its own"
    assert not np.array_equal(seen[0], seen[1])


def test_training_without_dropout_draws_nothing_and_converts_nothing() -> None:
    model = as_model(config().build())
    params, data = jax.jit(model.init)(jax.random.key(0)), batch()
    step = jax.make_jaxpr(jax.value_and_grad(lambda p, k: model.loss(p, data, key=k, train=True)[0]))
    text = str(step(params, jax.random.key(0)))
    assert "random_" not in text
    assert "threefry" not in text
    floats = [
        line for line in text.splitlines() if "convert_element_type[new_dtype=float" in line and "f32[2,9" in line
    ]
    assert floats == []


def test_tracing_does_not_grow_with_depth() -> None:
    def size(num_layers: int) -> int:
        model = as_model(config(layers=Repeat.Config(num_layers=num_layers, layer=block())).build())
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        step = jax.jit(jax.grad(lambda p: model.loss(p, batch(), key=jax.random.key(0), train=True)[0]))
        return len(step.lower(shapes).as_text().splitlines())

    assert size(2) == size(50)


def test_flops_of_llama2_7b() -> None:
    attention, ffn = Attention.Config(num_heads=32, head_dim=128), GatedFeedForward.Config(hidden_dim=11_008)
    layers = Repeat.Config(num_layers=32, layer=Remat.Config(layer=Block.Config(attention=attention, ffn=ffn)))
    cfg = CausalLM.Config(vocab_size=32_000, dim=4096, layers=layers)
    matmuls = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008) + 32_000 * 4096
    wanted = 6 * matmuls + 12 * 32 * 32 * 128 * 4096
    assert cfg.build().training_flops_per_token(4096) == wanted
    assert cfg.clone(head=None).build().training_flops_per_token(4096) == wanted


def test_bfloat16_computes_near_float32() -> None:
    half = config()
    for name in ("query", "key", "value", "output"):
        setattr(getattr(half.layers.layer.attention, name), "compute_dtype", "bfloat16")  # type: ignore[attr-defined]  # noqa: B010
    for part in (half.embedding, half.head):
        part.compute_dtype = "bfloat16"  # type: ignore[union-attr]
    for name in ("gate", "up", "down"):
        getattr(half.layers.layer.ffn, name).compute_dtype = "bfloat16"  # type: ignore[attr-defined]
    params = config().build().init(jax.random.key(0))
    models = [as_model(cfg.build()) for cfg in (config(), half)]
    wanted, got = (
        jax.jit(jax.value_and_grad(lambda p, m=m: m.loss(p, batch(), key=jax.random.key(0), train=True)[0]))(params)
        for m in models
    )
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-2)
    assert jax.tree.map(lambda g: g.dtype, got[1]) == jax.tree.map(lambda g: g.dtype, wanted[1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="as_model takes a Module"):
        as_model(object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiple of num_kv_heads, got 4 and 3"):
        Attention.Config(dim=DIM, num_heads=4, num_kv_heads=3, head_dim=2).build()
