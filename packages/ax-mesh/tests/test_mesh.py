"""The mesh: where arrays go, and that training on many devices is training on one."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_mesh import Mesh, ShardingRuleError
from ax_mesh.testing import ToySpec, check_has_axes
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

_SPECS = {
    "in": {"w": ToySpec((16, 32), ("embed", "mlp")), "b": ToySpec((32,), ("mlp",))},
    "out": {"w": ToySpec((32, 16), ("mlp", "embed"))},
}
_MESHES: list[dict[str, int]] = [
    {"data": 8},
    {"fsdp": -1},
    {"data": 2, "fsdp": 4},
    {"data": 2, "fsdp": 2, "tensor": 2},
]


def _mesh(**axes: int) -> Mesh:
    return Mesh.Config(axes=axes).build()


def _single() -> Mesh:
    return Mesh.Config().build(devices=jax.devices()[:1])


def test_parameters_go_where_the_rules_say() -> None:
    check_has_axes(_SPECS)

    def specs(mesh: Mesh) -> object:
        return jax.tree.map(lambda sharding: sharding.spec, mesh.shardings(_SPECS))

    assert specs(_mesh(data=8)) == {
        "in": {"w": PartitionSpec(None, None), "b": PartitionSpec(None)},
        "out": {"w": PartitionSpec(None, None)},
    }
    assert specs(_mesh(data=2, fsdp=2, tensor=2)) == {
        "in": {"w": PartitionSpec("fsdp", "tensor"), "b": PartitionSpec("tensor")},
        "out": {"w": PartitionSpec("tensor", "fsdp")},
    }
    assert Mesh.Config().build().axes == {"data": 1, "fsdp": 8}


def test_one_device_is_left_alone() -> None:
    mesh = _single()
    sharding = SingleDeviceSharding(jax.devices()[0])
    assert jax.tree.leaves(mesh.shardings(_SPECS)) == [sharding] * 3
    assert mesh.replicated() == sharding

    def ours(x: jax.Array) -> jax.Array:
        y = mesh.constrain(x, ("batch", "embed"))
        return mesh.shard_map(jnp.tanh, in_axes=[("batch", "embed")], out_axes=("batch", "embed"))(y)

    def program(fn: Callable[[jax.Array], jax.Array]) -> str:
        with mesh.activate():
            return str(jax.jit(lambda x: fn(x)).lower(jnp.ones((4, 4))).as_text())

    assert program(ours) == program(jnp.tanh)
    with pytest.raises(ShardingRuleError, match="'embd'"):
        mesh.constrain(jnp.ones((4, 4)), ("batch", "embd"))


def test_batches_are_split_along_their_first_dim() -> None:
    mesh = _mesh(data=2, fsdp=4)
    batch = {"tokens": np.arange(48, dtype=np.int32).reshape(16, 3), "scale": np.float32(2) * np.ones((), np.float32)}
    put = mesh.put(batch)
    assert put["tokens"].sharding == NamedSharding(mesh.jax_mesh, PartitionSpec(("data", "fsdp")))
    assert put["tokens"].addressable_shards[0].data.shape == (2, 3)
    np.testing.assert_array_equal(put["tokens"], batch["tokens"])
    assert put["scale"].sharding.is_fully_replicated
    lenient = Mesh.Config(axes={"data": 8}, indivisible="replicate").build()
    with pytest.raises(ShardingRuleError, match=r"batch\['tokens'\]: dim 0 .* 12 can't be split 8 ways over data"):
        lenient.put({"tokens": np.zeros((12, 3), np.int32)})


def test_constrain_under_jit() -> None:
    mesh = _mesh(data=2, fsdp=4)
    with mesh.activate():
        y = jax.jit(lambda x: mesh.constrain(x + 1, ("batch", None, "embed")))(jnp.zeros((8, 3, 4)))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh.jax_mesh, PartitionSpec(("data", "fsdp"))), 3)


def test_shard_map_gives_each_device_its_shard() -> None:
    mesh = _mesh(data=2, fsdp=2, tensor=2)
    shapes = []

    def attend(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        shapes.append((q.shape, k.shape))
        return jnp.einsum("btnh,bsnh->bnts", q, k), q

    sharded = mesh.shard_map(
        attend,
        in_axes=[("batch", "seq", "heads", None), ("batch", None, "heads", None)],
        out_axes=[("batch", "heads", "seq", None), ("batch", "seq", "heads", None)],
    )
    keys = jax.random.split(jax.random.key(0))
    q, k = jax.random.normal(keys[0], (8, 5, 4, 3)), jax.random.normal(keys[1], (8, 6, 4, 3))
    logits, same = jax.jit(sharded)(q, k)
    assert shapes[0] == ((2, 5, 2, 3), (2, 6, 2, 3))
    np.testing.assert_allclose(logits, attend(q, k)[0], rtol=1e-5)
    np.testing.assert_array_equal(same, q)


def test_a_sharded_call_over_one_name_leaves_the_others_to_the_compiler() -> None:
    """And within it, constraints and further calls see the axes that are left."""
    mesh = _mesh(data=2, fsdp=2, tensor=2)
    axes = ("batch", None, "heads")

    def inner(x: jax.Array) -> jax.Array:
        assert x.shape == (4, 4, 3)  # of the outer call's (4, 4, 6)
        return x * float(jax.lax.psum(1, "tensor"))

    def outer(x: jax.Array) -> jax.Array:
        assert x.shape == (4, 4, 6)  # of (16, 4, 6)
        assert mesh.split([axes], [x.shape]) == {"heads": ("tensor",)}
        x = mesh.constrain(x + jax.lax.axis_index(("data", "fsdp")).astype(x.dtype), axes)
        return mesh.shard_map(inner, in_axes=[axes], out_axes=axes)(x)

    x = jax.random.normal(jax.random.key(0), (16, 4, 6))
    assert mesh.split([axes], [x.shape]) == {"batch": ("data", "fsdp"), "heads": ("tensor",)}
    with mesh.activate():
        y = jax.jit(mesh.shard_map(outer, in_axes=[axes], out_axes=axes, over=["batch"]))(x)
    np.testing.assert_allclose(y, 2 * (np.asarray(x) + np.repeat(np.arange(4), 4)[:, None, None]), rtol=1e-5)
    alone = mesh.shard_map(jnp.tanh, in_axes=[(None, None, "norm")], out_axes=(None, None, "norm"), over=["norm"])
    np.testing.assert_array_equal(alone(x), jnp.tanh(x))  # "norm" isn't split: nothing is done by shards


def test_a_name_means_one_split_throughout_a_sharded_call() -> None:
    """The batch has taken the axis that the weight's "embed" would take alone: both see the whole "embed"."""
    mesh = _mesh(fsdp=8)
    sharded = mesh.shard_map(jnp.matmul, in_axes=[("batch", "embed"), ("embed", "mlp")], out_axes=("batch", "mlp"))
    x, w = jax.random.normal(jax.random.key(0), (8, 16)), jax.random.normal(jax.random.key(1), (16, 4))
    np.testing.assert_allclose(sharded(x, w), x @ w, rtol=1e-5)
    with pytest.raises(ShardingRuleError, match="twice in one array"):
        mesh.shard_map(jnp.tanh, in_axes=[("batch", "batch")], out_axes=("batch", None))(jnp.ones((8, 8)))
    with pytest.raises(TypeError, match="takes 2 arrays"):
        sharded(x)  # type: ignore[call-arg]


def test_a_name_may_share_mesh_axes_with_those_that_it_never_meets() -> None:
    rules = (("batch", ("fsdp", "expert")), ("mlp", "expert"), ("expert", "expert"))
    mesh = Mesh.Config(axes={"fsdp": 2, "expert": 4}, rules=rules).build()
    tokens, weights = ("batch", None), ("expert", "mlp")
    x, w = jnp.arange(32.0).reshape(8, 4), jnp.arange(32.0).reshape(8, 4)
    shapes = [x.shape, w.shape]
    assert mesh.split([tokens, weights], shapes) == {"batch": ("fsdp", "expert")}
    assert mesh.split([tokens, weights], shapes, sharing=["expert"]) == {
        "batch": ("fsdp", "expert"),
        "expert": ("expert",),
    }
    assert mesh.split([weights], [w.shape], sharing=["expert"]) == {"expert": ("expert",)}, "mlp gives way"

    def turned(x: jax.Array, w: jax.Array) -> jax.Array:
        assert x.shape == (1, 4)
        assert w.shape == (2, 4)
        sent: jax.Array = jax.lax.all_to_all(jnp.concatenate([x] * 4) * w[:1], "expert", 0, 0, tiled=True)
        return sent.sum(axis=0, keepdims=True)

    call = mesh.shard_map(turned, in_axes=[tokens, weights], out_axes=tokens, sharing=["expert"])
    scaled = (x.reshape(2, 4, 4) * w[None, ::2]).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(jax.jit(call)(x, w), jnp.repeat(scaled, 4, axis=1).reshape(8, 4), rtol=1e-6)


@pytest.mark.parametrize("axes", _MESHES, ids=lambda axes: "×".join(axes))
def test_training_equals_that_of_one_device(axes: dict[str, int]) -> None:
    numbers = np.random.default_rng(0)
    params = jax.tree.map(lambda s: numbers.standard_normal(s.shape, np.float32) * np.float32(0.2), _SPECS)
    batches = [{name: numbers.standard_normal((16, 16), np.float32) for name in ("x", "y")} for _ in range(3)]

    def train(mesh: Mesh) -> tuple[list[float], object]:
        def loss(params: dict[str, dict[str, jax.Array]], batch: dict[str, jax.Array]) -> jax.Array:
            hidden = jnp.tanh(batch["x"] @ params["in"]["w"] + params["in"]["b"][None])
            hidden = mesh.constrain(hidden, ("batch", "mlp"))
            return jnp.mean((mesh.constrain(hidden @ params["out"]["w"], ("batch", "embed")) - batch["y"]) ** 2)

        shardings = mesh.shardings(_SPECS)

        def step(params: object, batch: dict[str, jax.Array]) -> tuple[object, jax.Array]:
            value, grads = jax.value_and_grad(loss)(params, batch)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

        losses = []
        with mesh.activate():
            run = jax.jit(step, donate_argnums=0, out_shardings=(shardings, mesh.replicated()))
            state = jax.tree.map(lambda p, s: jax.device_put(p.copy(), s), params, shardings)
            for batch in batches:
                state, value = run(state, mesh.put(batch))
                losses.append(float(value))
        assert jax.tree.leaves(jax.tree.map(lambda x: x.sharding, state)) == jax.tree.leaves(shardings)
        return losses, jax.tree.map(np.asarray, state)

    want_losses, want = train(_single())
    losses, got = train(Mesh.Config(axes=axes).build())
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), got, want)


def test_describe_tells_where_everything_is_and_why() -> None:
    text = (
        Mesh.Config(axes={"data": 2, "fsdp": 4}, indivisible="replicate")
        .build()
        .describe({"w": ToySpec((3, 16, 32), ("layers", "embed", "mlp")), "odd": ToySpec((6,), ("embed",))})
    )
    head, odd, weight, total = text.splitlines()
    assert head.split("  ")[0] == "parameter"
    assert "24" in odd
    assert "embed: 6 can't be split 4 ways over fsdp" in odd
    assert "float32[3,16,32]" in weight
    assert "1,536" in weight
    assert "layers: the mesh isn't split along pipeline | mlp: the mesh isn't split along tensor" in weight
    assert total == (
        "2 parameters, 6,168 bytes; on each of the 8 devices (data=2, fsdp=4) 1,560 bytes, 24 of them replicated"
    )


def test_what_is_no_spec_is_named() -> None:
    with pytest.raises(ShardingRuleError, match="a/b: wanted something with shape, dtype and axes, got str"):
        _mesh(data=8).shardings({"a": {"b": "w"}})


def test_overrides_stand_before_the_page_for_parameters_and_modules_by_path() -> None:
    config = Mesh.Config(axes={"fsdp": 2, "tensor": 4}, overrides={"out*": (("mlp", None), ("embed", "tensor"))})
    mesh = config.build()
    shardings = mesh.shardings(_SPECS)
    assert jax.tree.map(lambda sharding: sharding.spec, shardings) == {
        "in": {"w": PartitionSpec("fsdp", "tensor"), "b": PartitionSpec("tensor")},
        "out": {"w": PartitionSpec(None, "tensor")},
    }
    x = jnp.zeros((8, 16, 32))
    for path, spec in (("in", PartitionSpec("fsdp", None, "tensor")), ("out", PartitionSpec("fsdp", "tensor"))):
        y = jax.jit(lambda x, path=path: mesh.at(path).constrain(x + 1, ("batch", "seq", "mlp")))(x)
        assert y.sharding.is_equivalent_to(NamedSharding(mesh.jax_mesh, spec), 3), path
    with pytest.raises(
        ShardingRuleError, match=r"in/proj: an activation .*dim 1 \('mlp'\) .* 30 can't be split 4 ways"
    ):
        mesh.at("in/proj").constrain(jnp.zeros((8, 30)), ("batch", "mlp"))


def test_an_override_that_matches_nothing_is_an_error() -> None:
    def mesh(pattern: str) -> Mesh:
        return Mesh.Config(axes={"fsdp": 8}, overrides={pattern: (("mlp", None),)}).build()

    for pattern in ("out/w", "out", "*/w", "in*"):
        mesh(pattern).shardings(_SPECS)
    with pytest.raises(ShardingRuleError, match=r"'ot/w' match no parameter .*did you mean 'out/w'"):
        mesh("ot/w").shardings(_SPECS)
    without_parameters = mesh("out/act")
    without_parameters.at("out/act")
    without_parameters.shardings(_SPECS)
    with pytest.raises(ShardingRuleError, match=r"optimizer_rules have a rule for 'embd'.*did you mean 'embed'"):
        Mesh.Config(axes={"fsdp": 8}, optimizer_rules=(("embd", "fsdp"),)).build()
    with pytest.raises(ShardingRuleError, match=r"the overrides for 'out' have a rule for 'mpl'.*did you mean 'mlp'"):
        Mesh.Config(axes={"fsdp": 8}, overrides={"out": (("mpl", "fsdp"),)}).build()
    with pytest.raises(ShardingRuleError, match=r"names the mesh axis 'fdsp'.*did you mean 'fsdp'"):
        Mesh.Config(axes={"fsdp": 8}, overrides={"out": (("mlp", "fdsp"),)}).build()


def test_the_optimizers_rules_stand_before_all_others() -> None:
    hybrid = Mesh.Config(axes={"data": 2, "fsdp": 4}, optimizer_rules=(("embed", ("fsdp", "data")),)).build()
    assert hybrid.shardings(_SPECS)["in"]["w"].spec == PartitionSpec("fsdp", None)  # type: ignore[index]
    assert hybrid.optimizer_shardings(_SPECS)["in"]["w"].spec == PartitionSpec(("fsdp", "data"), None)  # type: ignore[index]
    assert _mesh(fsdp=8).optimizer_shardings(_SPECS) == _mesh(fsdp=8).shardings(_SPECS)


def test_a_mesh_of_devices_that_are_nowhere_places_and_lowers() -> None:
    mesh = Mesh.Config(axes={"fsdp": -1, "tensor": 8}, between={"data": -1}).build(devices=4096, num_groups=16)
    assert mesh.axes == {"data": 16, "fsdp": 32, "tensor": 8}
    specs = {"w": ToySpec((512, 64), ("embed", "mlp"))}
    assert mesh.shardings(specs)["w"].shard_shape((512, 64)) == (16, 8)  # type: ignore[index]
    assert mesh.describe(specs).endswith(
        "on each of the 4096 devices (data=16, fsdp=32, tensor=8) 512 bytes, 0 of them replicated"
    )
    x = jax.ShapeDtypeStruct((512, 4, 64), jnp.float32)
    with mesh.activate():
        program = (
            jax.jit(lambda x: mesh.constrain(x, ("batch", "seq", "mlp"))).trace(x).lower(lowering_platforms=("tpu",))
        )
    assert '[{"data", "fsdp"}, {}, {"tensor"}]' in program.as_text()
