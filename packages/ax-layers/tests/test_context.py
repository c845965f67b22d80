"""Modules, contexts, and what happens when they are misused."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, field, partial_for
from ax_layers import Collected, ContextError, Module, ParamSpec, Unsharded, functional, initializers, scoped
from ax_layers.protocols import ArrayFn


class Scale(Module):
    class Config(ax_config.Config["Scale"]):
        dim: int = 3

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        spec = ParamSpec((cfg.dim,), np.dtype("float32"), ("embed",), initializers.normal)
        self.scale = self.param("scale", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        self.summarise("mean", x.mean(), weight=2)
        return x * self.scale.value

    @scoped
    def write_twice(self, x: jax.Array, /) -> None:
        self.output("x", x)
        self.output("x", x)

    @scoped
    def draw(self) -> jax.Array:
        return jax.random.uniform(self.key("u"))

    @scoped
    def draw_twice(self) -> tuple[jax.Array, jax.Array]:
        return self.key("u"), self.key("u")

    @scoped
    def next_scale(self, value: jax.Array, /) -> None:
        self.update("scale", value)

    @scoped
    def update_unknown(self, value: jax.Array, /) -> None:
        self.update("scales", value)

    def unmarked(self) -> jax.Array:
        return self.scale.value


class Pair(Module):
    """Two children that are modules and one that is a function."""

    class Config(ax_config.Config["Pair"]):
        left: Buildable[Scale] = field(default_factory=Scale.Config)
        right: Buildable[Scale] = field(default_factory=Scale.Config)
        fn: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jnp.tanh))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.left = self.child("left", cfg.left)
        self.right = self.child("right", cfg.right)
        self.fn = self.child("fn", cfg.fn)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        return self.right(self.fn(self.left(x)))

    @scoped
    def draws(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self.left.draw(), self.right.draw(), self.left.draw()

    @scoped
    def left_twice(self, x: jax.Array, /) -> jax.Array:
        return self.left(self.left(x))

    @scoped
    def peek(self) -> jax.Array:
        return self.left.scale.value

    @scoped
    def reach_in(self) -> jax.Array:
        return self.left.unmarked()

    @scoped
    def scan_over_child(self, x: jax.Array, /) -> jax.Array:
        return jax.lax.scan(lambda x, _: (self.left(x), None), x, length=2)[0]

    @scoped
    def write_in_scan(self, x: jax.Array, /) -> jax.Array:
        def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            self.output("inside", x)
            return x, None

        return jax.lax.scan(body, x, length=2)[0]

    @scoped
    def scan_right_way(self, x: jax.Array, /) -> jax.Array:
        call, params = functional(self.left), self.params["left"]
        assert isinstance(params, dict)

        def body(x: jax.Array, _: None) -> tuple[jax.Array, Collected]:
            return call(params, None, x)

        x, collected = jax.lax.scan(body, x, length=2)
        self.absorb(collected, name="left")
        return x


class Stranger(Module):
    """Calls a module that isn't its child."""

    def __init__(self, other: Scale) -> None:
        super().__init__()
        self.other = other

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        return self.other(x)


@pytest.fixture
def pair() -> Pair:
    return Pair.Config().build()


X = jnp.asarray([1.0, 2.0, 3.0], jnp.float32)
KEY = jax.random.key(0)


def test_specs_and_init_are_congruent_and_named(pair: Pair) -> None:
    params = pair.init(KEY)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, pair.specs())
    assert list(params) == ["left", "right"]
    assert (pair.left.path, pair.left.where) == ("left", "'left' (Scale)")


def test_summaries_are_collected_by_path(pair: Pair) -> None:
    params = pair.init(KEY)
    out, collected = jax.jit(functional(pair))(params, KEY, X)
    left, right = jax.tree.leaves(params)
    np.testing.assert_allclose(out, jnp.tanh(X * left) * right, rtol=1e-6)
    assert set(collected.summaries) == {"left/mean", "right/mean"}
    assert collected.summaries["left/mean"] == (2.0, 2.0)
    assert collected.outputs == {}


def test_keys_depend_on_the_name_alone(pair: Pair) -> None:
    (left, right, again), _ = functional(pair.draws)(pair.init(KEY), KEY)
    assert len({float(left), float(right), float(again)}) == 3
    alone, _ = functional(pair.left.draw)({}, jax.random.fold_in(KEY, 0))
    assert float(alone) != float(left)


def test_functional_works_under_every_transform(pair: Pair) -> None:
    params = pair.init(KEY)
    call = functional(pair)
    plain, _ = call(params, KEY, X)
    batch = jnp.stack([X, X + 1])
    stacked, collected = jax.jit(jax.vmap(jax.checkpoint(call), in_axes=(None, None, 0)))(params, KEY, batch)
    np.testing.assert_allclose(stacked[0], plain, rtol=1e-6)
    assert collected.summaries["left/mean"].mean.shape == (2,)
    grads = jax.grad(lambda p: jax.lax.scan(lambda x, _: call(p, None, x), X, length=3)[0].sum())(params)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(grads))


def test_a_transform_inside_a_module(pair: Pair) -> None:
    params = pair.init(KEY)
    out, collected = jax.jit(functional(pair.scan_right_way))(params, KEY, X)
    np.testing.assert_allclose(out, X * jax.tree.leaves(params)[0] ** 2, rtol=1e-6)
    assert collected.summaries["left/mean"].mean.shape == (2,)


def test_state_updates(pair: Pair) -> None:
    _, collected = functional(pair.left.next_scale)(pair.left.init(KEY), None, X)
    np.testing.assert_array_equal(collected.updates["scale"], X)
    with pytest.raises(ContextError, match=r"'left' \(Scale\) updates 'scale' of shape \(3,\)"):
        functional(pair.left.next_scale)(pair.left.init(KEY), None, X[:2])
    with pytest.raises(ContextError, match="updates 'scales', but its parameters are"):
        functional(pair.left.update_unknown)(pair.left.init(KEY), None, X)


def test_called_outside_any_context(pair: Pair) -> None:
    with pytest.raises(ContextError, match=r"'left' \(Scale\) was called outside any context"):
        pair.left(X)
    with pytest.raises(ContextError, match="read outside any context"):
        _ = pair.left.scale.value


def test_a_name_is_written_once(pair: Pair) -> None:
    with pytest.raises(ContextError, match=r"'left' \(Scale\) writes 'x' twice"):
        functional(pair.left.write_twice)(pair.left.init(KEY), None, X)
    with pytest.raises(ContextError, match=r"the root module \(Pair\) writes 'left/mean' twice"):
        functional(pair.left_twice)(pair.init(KEY), None, X)


def test_a_key_is_used_once_and_has_to_be_there(pair: Pair) -> None:
    with pytest.raises(ContextError, match="asks for the key 'u' twice"):
        functional(pair.left.draw_twice)({}, KEY)
    with pytest.raises(ContextError, match="was called without one"):
        functional(pair.left.draw)({}, None)


def test_missing_and_misshapen_parameters(pair: Pair) -> None:
    params = dict(pair.init(KEY))
    with pytest.raises(ContextError, match=r"no parameters for 'right' \(Scale\).*given \['left'\]"):
        functional(pair)({"left": params["left"]}, None, X)
    with pytest.raises(ContextError, match=r"parameter 'scale' of 'right' .* is missing"):
        functional(pair)({**params, "right": {"scales": X}}, None, X)
    with pytest.raises(ContextError, match=r"has shape \(3,\), got ArrayImpl of shape \(2,\)"):
        functional(pair)({**params, "right": {"scale": X[:2]}}, None, X)


def test_only_parents_call_and_only_owners_read(pair: Pair) -> None:
    with pytest.raises(ContextError, match=r"'left' \(Scale\) was called by the root module \(Stranger\)"):
        functional(Stranger(pair.left))({}, None, X)
    with pytest.raises(ContextError, match="is read by the root module"):
        functional(pair.peek)(pair.init(KEY), None)
    with pytest.raises(ContextError, match="is read by the root module"):
        functional(pair.reach_in)(pair.init(KEY), None)


def test_a_context_does_not_leak_into_another_trace(pair: Pair) -> None:
    with pytest.raises(ContextError, match=r"'left' \(Scale\) was called within a JAX transform"):
        functional(pair.scan_over_child)(pair.init(KEY), None, X)
    with pytest.raises(ContextError, match="writes 'inside' within a JAX transform"):
        jax.jit(functional(pair.write_in_scan))(pair.init(KEY), None, X)


def test_a_failed_call_leaves_no_context_behind(pair: Pair) -> None:
    with pytest.raises(ContextError):
        functional(pair.left.write_twice)(pair.left.init(KEY), None, X)
    with pytest.raises(ContextError, match="outside any context"):
        pair.left(X)


def test_declarations_are_checked() -> None:
    module = Module()
    spec = ParamSpec((1,), np.dtype("float32"), (None,), initializers.ones)
    module.param("a", spec)
    with pytest.raises(ValueError, match="'a' is declared twice"):
        module.child("a", Scale.Config())
    with pytest.raises(ValueError, match="has no '/'"):
        module.param("a/b", spec)
    with pytest.raises(ValueError, match="needs 1 axes"):
        ParamSpec((1,), np.dtype("float32"), (), initializers.ones)
    with pytest.raises(ValueError, match="from the end"):
        ParamSpec((1,), np.dtype("float32"), (None,), initializers.ones, fan_in=(0,))
    with pytest.raises(TypeError, match="a Module or a method of one"):
        functional(jnp.tanh)


def test_functional_hands_the_sharder_on() -> None:
    class Recorder(Unsharded):
        seen: list[object] = []  # noqa: RUF012  # one for the test

        def constrain(self, x: jax.Array, axes: object, /) -> jax.Array:
            self.seen.append(axes)
            return x

    class Placed(Module):
        @scoped
        def __call__(self, x: jax.Array, /) -> jax.Array:
            return self.constrain(x, ("embed",))

    class Outer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = self.child("inner", ax_config.config_for(Placed)())

        @scoped
        def __call__(self, x: jax.Array, /) -> jax.Array:
            return self.inner(x) + functional(self.inner)({}, None, x)[0]

    functional(Outer(), sharder=Recorder())({}, None, X)
    assert Recorder.seen == [("embed",), ("embed",)]

    class ByPath(Recorder):
        def at(self, path: str, /) -> Recorder:
            self.seen.append(path)
            return self

    Recorder.seen.clear()
    functional(Outer(), sharder=ByPath())({}, None, X)
    assert Recorder.seen == ["inner", ("embed",)] * 2
