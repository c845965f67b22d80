"""A model of ours against Hugging Face's of the same family, with the same random weights, in float32 on a CPU.

Both are small. The weights go one way only, through the family's weight map, and so do the gradients: a map that mixed up
two tensors of one shape would show in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import torch
from ax_layers import CausalLM, as_decoder, functional
from ax_recipes.weight_map import Weight, read_weights

NUM_SEQUENCES, LENGTH = 2, 24


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Weights large enough that every part matters: matrices that keep a vector's length, and no norm or bias at rest."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)


def check(
    theirs: torch.nn.Module,
    config: CausalLM.Config,
    weights: Iterable[Weight],
    *,
    ignore: Callable[[str], bool] = lambda _: False,
    published: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]] = lambda tensors: tensors,
) -> None:
    """Compare logits, loss and all gradients; then ours read piece by piece with ours at once.

    Args:
        theirs: A causal language model of transformers; it is given random weights.
        config: Ours.
        weights: The family's map from one to the other.
        ignore: Tells names of their tensors that have no counterpart.
        published: Turns what their model holds into what its checkpoints hold, where that differs.
    """
    randomise(theirs)
    theirs.eval()
    weights, vocab_size = list(weights), theirs.get_input_embeddings().weight.shape[0]
    module = config.build(vocab_size=vocab_size)

    def ours(tensors: Mapping[str, torch.Tensor]) -> dict[str, jax.Array]:
        arrays = {name: tensor.detach().numpy() for name, tensor in published(tensors).items()}
        return jax.tree.map(jnp.asarray, read_weights(weights, arrays, specs=module.specs(), ignore=ignore))

    kept = theirs.state_dict().keys()
    states = {name: buffer for name, buffer in theirs.named_buffers() if name in kept}
    params = ours({**dict(theirs.named_parameters()), **states})
    tokens = np.random.default_rng(0).integers(1, vocab_size, (NUM_SEQUENCES, LENGTH), dtype=np.int32)
    targets = np.concatenate([tokens[:, 1:], np.full((NUM_SEQUENCES, 1), -1, np.int32)], axis=1)

    wanted = theirs(input_ids=torch.tensor(tokens).long(), labels=torch.tensor(tokens).long(), use_cache=False)
    wanted.loss.backward()
    logits = jax.jit(functional(module))(params, None, tokens)[0]
    close(logits, wanted.logits.detach().numpy(), 1e-4, "logits")

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        batch = {"tokens": jnp.asarray(tokens), "targets": jnp.asarray(targets)}
        return functional(module.loss)(params, None, batch, train=True)[0][0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    close(value, wanted.loss.detach().numpy(), 1e-5, "loss")
    unused = [name for name, parameter in theirs.named_parameters() if parameter.grad is None]
    assert not [name for name in unused if not ignore(name)], f"their loss doesn't depend on {unused}"
    slopes = ours(
        {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
        | {name: torch.zeros_like(state) for name, state in states.items()}
    )
    # A gradient that is zero on paper (a key's bias without rotary positions) is mere rounding on both sides.
    rounding = 1e-6 * max(float(jnp.abs(slope).max()) for slope in jax.tree.leaves(slopes))
    for path, slope in jax.tree_util.tree_leaves_with_path(slopes):
        got = gradients
        for key in path:
            got = got[key.key]
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        close(got, slope, 1e-3, f"the gradient for {name}", zero=rounding)

    check_decoding(module, params, tokens, logits)


def check_decoding(module: CausalLM, params: Mapping[str, jax.Array], tokens: np.ndarray, logits: jax.Array) -> None:
    """Prompts of different lengths, then one token at a time, give the logits of the whole sequences."""
    decoder = as_decoder(module)
    lengths = LENGTH // 2 - np.arange(NUM_SEQUENCES, dtype=np.int32)
    rows, decode = np.arange(NUM_SEQUENCES), jax.jit(decoder.decode)
    cache = decoder.init_cache(NUM_SEQUENCES, LENGTH)
    prompts = jnp.asarray(tokens[:, : lengths.max()])
    got, cache = jax.jit(decoder.prefill)(params, prompts, jnp.asarray(lengths), cache)
    close(got, logits[rows, lengths - 1], 1e-5, "after the prompts, logits")
    for at in range(LENGTH - lengths.max()):
        got, cache = decode(params, jnp.asarray(tokens[rows, lengths + at]), cache)
        close(got, logits[rows, lengths + at], 1e-5, f"after {at + 1} tokens more, logits")


def close(got: jax.Array, wanted: object, tolerance: float, what: str, *, zero: float = 0.0) -> None:
    """Equal up to ``tolerance`` times the largest number that is wanted, or both within ``zero`` of zero."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape, f"{what}: the shape is {got.shape}, wanted {wanted.shape}"
    largest, error = np.abs(wanted).max(), np.abs(got - wanted).max()
    if max(largest, np.abs(got).max()) > zero:
        assert error <= tolerance * largest, f"{what}: off by {error / largest:.1e} of the largest, allowed {tolerance}"
