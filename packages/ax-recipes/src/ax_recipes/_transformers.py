"""A causal language model of Hugging Face's transformers, as a record to compare ours with: ``ax diverge llama-3.2-1b ./folder``.

The family's weight map says which tensor is which parameter, and so which of their modules is which of ours: the one that
holds the parameter, and those above it as long as both sides agree. Their outputs are taken by hooks, their gradients by the
same map. PyTorch and transformers are asked for when they are needed; no package depends on them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import jax
import numpy as np
from ax_layers import CausalLM, SpecTree
from ax_layers.protocols import ArrayTree
from ax_trainer import layer_by_layer

from ._experiment import ExperimentError
from ._records import Batch, Record, record_model
from .weight_map import Weight, read_weights


class Tensor(Protocol):
    """What is used of ``torch.Tensor``."""

    @property
    def grad(self) -> Tensor | None: ...
    @property
    def shape(self) -> Sequence[int]: ...
    def detach(self) -> Tensor: ...
    def float(self) -> Tensor: ...
    def numpy(self) -> np.ndarray: ...
    def backward(self) -> None: ...


class Hook(Protocol):
    """A hook that has been registered."""

    def remove(self) -> None: ...


class TorchModule(Protocol):
    """What is used of ``torch.nn.Module``."""

    def eval(self) -> TorchModule: ...
    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...
    def get_submodule(self, name: str, /) -> TorchModule: ...
    def register_forward_hook(self, hook: Callable[[object, object, object], None], /) -> Hook: ...
    def __call__(self, **inputs: object) -> Mapping[str, Tensor]: ...


def load(folder: Path) -> TorchModule:
    """The causal language model in a folder, in float32. Raises ExperimentError when PyTorch or transformers isn't there."""
    try:
        transformers = importlib.import_module("transformers")
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise ExperimentError(f"{folder} is to be read by transformers: pip install torch transformers") from error
    return cast("TorchModule", transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def record_both(
    theirs: TorchModule,
    ours: CausalLM.Config,
    weights: Iterable[Weight],
    batch: Batch,
    *,
    published: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = lambda tensors: tensors,
) -> tuple[Record, Record]:
    """Our record and theirs, of the same batch with the same weights, which are theirs; without dropout.

    Args:
        theirs: A causal language model of transformers.
        ours: The same model as a config, its vocabulary included.
        weights: The family's map from theirs to ours.
        batch: ``tokens`` and ``targets``.
        published: Turns the tensors that their model holds into those of its checkpoints, where they differ.
    """
    torch = importlib.import_module("torch")
    weights, specs = list(weights), ours.build().specs()
    pairs = module_pairs(weights)
    taken: dict[str, np.ndarray] = {}
    hooks = [theirs.get_submodule(their).register_forward_hook(_taking(taken, our)) for our, their in pairs.items()]
    theirs.eval()
    try:
        logits = theirs(input_ids=torch.tensor(batch["tokens"]).long(), use_cache=False)["logits"]
    finally:
        for hook in hooks:
            hook.remove()
    targets = torch.tensor(batch["targets"]).long()
    loss: Tensor = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1),  # type: ignore[attr-defined]
        targets.flatten(),
        ignore_index=-1,
    )
    loss.backward()

    def as_ours(tensors: Mapping[str, np.ndarray]) -> ArrayTree:
        return cast("ArrayTree", read_weights(weights, published(tensors), specs=specs, ignore=lambda _: True))

    values = {name: _array(tensor) for name, tensor in theirs.named_parameters()}
    slopes = {
        name: np.zeros(tensor.shape, np.float32) if tensor.grad is None else _array(tensor.grad)
        for name, tensor in theirs.named_parameters()
    }
    params = as_ours(values)
    record = record_model(ours, jax.tree.map(jax.numpy.asarray, params), batch)
    forward = {f"forward/{name}": array for name, array in taken.items()}
    return record, Record(
        batch,
        {
            **{f"params/{name}": array for name, array in _by_layer(specs, params)},
            **forward,
            "loss": _array(loss),
            **{f"gradients/{name}": array for name, array in _by_layer(specs, as_ours(slopes))},
        },
    )


def module_pairs(weights: Iterable[Weight]) -> dict[str, str]:
    """Which of their modules is which of ours: ``{"layers/ffn/up.3": "model.layers.3.mlp.up_proj"}``.

    Modules that hold a parameter of the map, and those above them where everything below one is below the other, and the
    other way round.
    """
    paths = [
        (weight.ours.split("/")[:-1], weight.theirs.split(".")[:-1], weight.layers)
        for weight in weights
        if weight.experts is None
    ]
    found: dict[str, set[tuple[str, tuple[int, ...] | None]]] = {}
    for ours, theirs, layers in paths:
        numbers = None if layers is None else tuple(layers)
        for up in range(min(len(ours), len(theirs))):
            above = (".".join(theirs[: len(theirs) - up]), numbers)
            found.setdefault("/".join(ours[: len(ours) - up]), set()).add(above)
    pairs: dict[str, str] = {}
    for our, candidates in found.items():
        ((their, numbers), *others) = candidates
        holders = {name for name, each in found.items() if (their, numbers) in each}
        if not others and len(holders) == 1 and their:
            for number in numbers if numbers is not None else (None,):
                pairs[our if number is None else f"{our}.{number}"] = their.format(layer=number)
    return pairs


def _taking(taken: dict[str, np.ndarray], name: str) -> Callable[[object, object, object], None]:
    def take(_module: object, _inputs: object, output: object) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        taken[name] = _array(cast("Tensor", tensor))

    return take


def _array(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.detach().float().numpy())


def _by_layer(specs: SpecTree, tree: ArrayTree) -> Iterable[tuple[str, np.ndarray]]:
    return layer_by_layer(specs, tree, ("layers",))
