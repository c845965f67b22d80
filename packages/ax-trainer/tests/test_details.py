"""The norms of each parameter, its gradient and its update, when asked for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_trainer import compile_step, init_state
from ax_trainer.protocols import Batch, Metrics
from ax_trainer.testing import ArraySpec, SingleDevice


class Stacked:
    """``x`` times a matrix a layer, added up."""

    def specs(self) -> dict[str, dict[str, ArraySpec]]:
        return {
            "layers": {"weight": ArraySpec((3, 2, 4), ("layers", "in", "out"))},
            "norm": {"scale": ArraySpec((4,), ("out",))},
        }

    def init(self, key: jax.Array, /) -> dict[str, dict[str, jax.Array]]:
        return {"layers": {"weight": jax.random.normal(key, (3, 2, 4))}, "norm": {"scale": jnp.ones(4)}}

    def loss(
        self, params: dict[str, dict[str, jax.Array]], batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Metrics]:
        layers = jnp.einsum("bi,lio->blo", batch["x"], params["layers"]["weight"])
        loss = jnp.square(layers * params["norm"]["scale"][None, None]).mean()
        return loss, {"loss": (loss, jnp.ones(()))}


def test_norms_of_parameters_and_of_layers() -> None:
    model, place, optimizer = Stacked(), SingleDevice(), optax.sgd(0.1)
    batch = {"x": np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)}
    shapes = {"x": jax.ShapeDtypeStruct((5, 2), jnp.float32)}
    before = jax.device_get(init_state(model, optimizer, place, seed=0).params)

    def run(details: bool) -> tuple[object, Metrics]:
        step = compile_step(model, optimizer, place, shapes, details=details)
        return step(init_state(model, optimizer, place, seed=0), place.put(batch))

    (plain, few), (state, metrics) = run(False), run(True)
    assert few.keys() == {"loss", "grad_norm"}
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other, "to look changes nothing")

    params = jax.device_get(state.params)  # type: ignore[attr-defined]
    grads = jax.tree.map(lambda old, new: (old - new) / 0.1, before, params)
    for kind, tree in (("grad_norm", grads), ("param_norm", params)):
        weight = tree["layers"]["weight"]
        got = {name: float(value) for name, (value, _) in metrics.items() if name.startswith(kind + "/")}
        want = {f"{kind}/layers/weight.{i}": np.linalg.norm(weight[i]) for i in range(3)}
        want |= {
            f"{kind}/layers/weight": np.linalg.norm(weight),
            f"{kind}/norm/scale": np.linalg.norm(tree["norm"]["scale"]),
        }
        assert got.keys() == want.keys()
        for name, norm in want.items():
            np.testing.assert_allclose(got[name], norm, rtol=1e-4, err_msg=name)
    for name in ("layers/weight", "layers/weight.2", "norm/scale"):
        np.testing.assert_allclose(metrics[f"update_norm/{name}"][0], 0.1 * metrics[f"grad_norm/{name}"][0], rtol=1e-5)
