"""What a module does, draws, reports and hands out is the same under every nesting of JAX's transforms."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import TypeAlias, cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import field
from ax_layers import Collected, Dropout, Module, ParamSpec, StochasticDepth, functional, initializers, scoped
from ax_layers.protocols import ArrayTree
from jax.sharding import PartitionSpec

Result: TypeAlias = tuple[jax.Array, Collected]
Pure: TypeAlias = Callable[[ArrayTree, jax.Array, jax.Array], Result]


class Counter(Module):
    """Uses all that a context offers: parameters, a key, a summary, an output, the update of a state."""

    class Config(ax_config.Config["Counter"]):
        dropout: Dropout.Config = field(default_factory=lambda: Dropout.Config(rate=0.5))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.scale = self.param("scale", ParamSpec((4,), np.dtype("float32"), (None,), initializers.normal))
        self.count = self.param("count", ParamSpec((), np.dtype("float32"), (), initializers.ones))
        self.dropout = self.child("dropout", cfg.dropout)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        y = self.dropout(x * self.scale.value) + jax.random.normal(self.key("noise"), x.shape)
        self.summarise("mean", y.mean(), weight=2.0)
        self.output("largest", y.max())
        self.update("count", self.count.value + 1)
        return jnp.tanh(y)


class Nest(Module):
    """Two of them, one inside a transform of its own."""

    class Config(ax_config.Config["Nest"]):
        part: Counter.Config = field(default_factory=Counter.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.first = self.child("first", cfg.part)
        self.second = self.child("second", cfg.part)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        x = self.first(x)
        params = self.params["second"]
        assert isinstance(params, dict)
        again = jax.checkpoint(functional(self.second))
        x, collected = again(params, self.random, x)
        self.absorb(collected, name="second")
        return x


def first_of(tree: Result) -> Result:
    return cast("Result", jax.tree.map(lambda a: a[0], tree))


def under_vmap(f: Pure) -> Pure:
    return lambda p, k, x: first_of(jax.vmap(f, in_axes=(None, None, 0))(p, k, x[None]))


def under_scan(f: Pure) -> Pure:
    return lambda p, k, x: first_of(jax.lax.scan(lambda c, x: (c, f(p, k, x)), None, x[None])[1])


def under_grad(f: Pure) -> Pure:
    def scalar(p: ArrayTree, k: jax.Array, x: jax.Array) -> tuple[jax.Array, Result]:
        result = f(p, k, x)
        return result[0].sum(), result

    def run(p: ArrayTree, k: jax.Array, x: jax.Array) -> Result:
        (_, (y, collected)), gradients = jax.value_and_grad(scalar, has_aux=True)(p, k, x)
        right = [jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]
        return jnp.where(jnp.stack(right).all(), y, jnp.nan), collected

    return run


def under_cond(f: Pure) -> Pure:
    return lambda p, k, x: jax.lax.cond(x.sum() > -1e9, f, f, p, k, x)


def under_shard_map(f: Pure) -> Pure:
    mesh = jax.make_mesh((1,), ("x",), devices=jax.devices()[:1])
    spec = PartitionSpec()
    return jax.shard_map(f, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec, check_vma=False)


def under_custom_vjp(f: Pure) -> Pure:
    wrapped = jax.custom_vjp(f)
    wrapped.defvjp(lambda *args: jax.vjp(f, *args), lambda pullback, cotangents: pullback(cotangents))
    return wrapped


TRANSFORMS: dict[str, Callable[[Pure], Pure]] = {
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "vmap": under_vmap,
    "scan": under_scan,
    "grad": under_grad,
    "cond": under_cond,
    "shard_map": under_shard_map,
    "custom_vjp": under_custom_vjp,
}
PAIRS = list(itertools.permutations(TRANSFORMS, 2))
TRIPLES = random.Random(0).sample(list(itertools.permutations(TRANSFORMS, 3)), 6)


@pytest.fixture(scope="module")
def plain() -> tuple[Nest, ArrayTree, Result]:
    nest = Nest.Config().build()
    params = nest.init(jax.random.key(1))
    return nest, params, jax.jit(functional(nest))(params, jax.random.key(2), X)


X = jnp.linspace(-1.0, 1.0, 4, dtype=jnp.float32)


@pytest.mark.parametrize("order", [*PAIRS, *TRIPLES], ids="-".join)
def test_every_nesting_gives_the_same(order: tuple[str, ...], plain: tuple[Nest, ArrayTree, Result]) -> None:
    nest, params, wanted = plain
    call: Pure = functional(nest)
    for name in reversed(order):
        call = TRANSFORMS[name](call)
    got = jax.jit(call)(params, jax.random.key(2), X)
    assert set(got[1].updates) == {"first/count", "second/count"}
    assert str(jax.tree.structure(got)) == str(jax.tree.structure(wanted))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, wanted)


def test_stochastic_depth_drops_whole_rows_and_keeps_the_mean() -> None:
    layer = StochasticDepth.Config(rate=0.25).build()
    x = jnp.ones((4_000, 3), jnp.float32)
    out, _ = functional(layer)({}, jax.random.key(0), x)
    np.testing.assert_allclose(np.unique(out), [0.0, 4 / 3], rtol=1e-6)
    assert bool((out == out[:, :1]).all())
    np.testing.assert_allclose(out.mean(), 1.0, atol=0.03)
    np.testing.assert_array_equal(functional(layer)({}, None, x)[0], x)
    with pytest.raises(ValueError, match="at least 0 and below 1, got 1"):
        StochasticDepth.Config(rate=1.0).build()
