"""What a module is made of: parameters, bytes and FLOPs of each part, as the parts themselves tell.

Nothing is allocated or compiled. A wrapper and what it stands for are one row; a repeated layer's parts are counted as
often as it is repeated, which is told by the wrapper's own answers, not by looking at how it works.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax

from ._module import Module
from ._param_spec import ParamSpec, SpecTree
from ._wrapper import Wrapper


class Row(NamedTuple):
    """One module, everything below it included."""

    path: str
    """From the root, joined by "/"; empty for the root."""
    kind: str
    """Its class; of wrappers also what they stand for: ``Repeat of Block``."""
    depth: int
    """How far below the root it stands."""
    num_params: int
    num_bytes: int
    training_flops: float
    """Forward and backward, for one token; see ``Module.training_flops_per_token``."""


def inventory(module: Module, /, *, seq_length: int) -> list[Row]:
    """A row for each module, parents before children.

    Args:
        module: The root.
        seq_length: Tokens of a sequence, which attention's FLOPs depend on.
    """
    return list(_rows(module, module.specs(), "", 0, 1.0, seq_length))


def _rows(module: Module, specs: SpecTree, path: str, depth: int, times: float, seq_length: int) -> Iterator[Row]:
    leaves = [leaf for leaf in jax.tree.leaves(specs) if isinstance(leaf, ParamSpec)]
    sizes = [math.prod(spec.shape) for spec in leaves]
    num_bytes = sum(size * spec.dtype.itemsize for size, spec in zip(sizes, leaves, strict=True))
    flops = module.training_flops_per_token(seq_length)
    chain = [module]
    while isinstance(chain[-1], Wrapper):
        chain.append(chain[-1].inner)
    kind = " of ".join(type(each).__qualname__ for each in chain)
    yield Row(path, kind, depth, sum(sizes), num_bytes, times * flops)
    inner = chain[-1]
    own = inner.training_flops_per_token(seq_length)
    inner_times = times * flops / own if own else times
    for name, child in inner.children.items():
        below = specs.get(name, {})
        assert isinstance(below, dict)
        yield from _rows(child, below, f"{path}/{name}" if path else name, depth + 1, inner_times, seq_length)
