"""Cross-attention, against PyTorch's multi-head attention: outputs and all gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from ax_layers import CrossAttention, Linear, functional

from .against import close, randomise

DIM, CONTEXT_DIM, HEADS, HEAD_DIM = 16, 12, 4, 4


def test_cross_attention() -> None:
    theirs = torch.nn.MultiheadAttention(DIM, HEADS, kdim=CONTEXT_DIM, vdim=CONTEXT_DIM, batch_first=True)
    randomise(theirs)
    biased = Linear.Config(use_bias=True)
    ours = CrossAttention.Config(
        dim=DIM,
        context_dim=CONTEXT_DIM,
        num_heads=HEADS,
        head_dim=HEAD_DIM,
        query=biased,
        key=biased,
        value=biased,
        output=biased,
    ).build()
    x, context = (torch.randn(2, *shape, requires_grad=True) for shape in ((5, DIM), (7, CONTEXT_DIM)))
    padded = torch.zeros(2, 7, dtype=torch.bool)
    padded[1, 4:] = True
    wanted, _ = theirs(x, context, context, key_padding_mask=padded)
    wanted.square().sum().backward()

    def params(of: str) -> dict[str, dict[str, jax.Array]]:
        def tensor(name: str) -> np.ndarray:
            parameter = theirs.get_parameter(name)
            return (parameter.grad if of == "gradients" else parameter.detach()).numpy()

        biases = np.split(tensor("in_proj_bias"), 3)
        tree = {
            "query": {"weight": tensor("q_proj_weight").T.reshape(DIM, HEADS, HEAD_DIM), "bias": biases[0]},
            "key": {"weight": tensor("k_proj_weight").T.reshape(CONTEXT_DIM, HEADS, HEAD_DIM), "bias": biases[1]},
            "value": {"weight": tensor("v_proj_weight").T.reshape(CONTEXT_DIM, HEADS, HEAD_DIM), "bias": biases[2]},
            "output": {
                "weight": tensor("out_proj.weight").T.reshape(HEADS, HEAD_DIM, DIM),
                "bias": tensor("out_proj.bias"),
            },
        }
        for name in ("query", "key", "value"):
            tree[name]["bias"] = tree[name]["bias"].reshape(HEADS, HEAD_DIM)
        return jax.tree.map(jnp.asarray, tree)

    positions = jnp.where(jnp.asarray(padded.numpy()), -1, jnp.arange(7)[None])
    inputs = tuple(jnp.asarray(tensor.detach().numpy()) for tensor in (x, context))

    def run(params: dict[str, dict[str, jax.Array]], x: jax.Array, context: jax.Array) -> tuple[jax.Array, jax.Array]:
        out, _ = functional(ours)(params, None, x, context, context_positions=positions)
        return jnp.square(out).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2), has_aux=True))(params("values"), *inputs)
    close(out, wanted.detach().numpy(), 1e-5, "the output")
    slopes = (params("gradients"), jnp.asarray(x.grad.numpy()), jnp.asarray(context.grad.numpy()))
    for (path, slope), got in zip(jax.tree_util.tree_leaves_with_path(slopes), jax.tree.leaves(gradients), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        close(got, slope, 1e-4, f"the gradient for {name}", zero=1e-3)  # a key's bias moves all its logits alike
