"""Muon: momentum made orthogonal (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon), for the matrices of a model.

The iteration is optax's (``optax.contrib.scale_by_muon``). Which dims of a parameter make a matrix, and which parameters are for
another rule, is read from the specs: layers and experts are stacks of matrices, attention's heads are one dim with theirs; vectors,
embeddings and heads of a vocabulary are the other rule's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import ax_config
import jax
from ax_config import field

from ._groups import path_of
from ._matrices import MatrixDims, for_matrices
from ._rules import Rule, adam, made
from .protocols import Optimizer


class Muon:
    """A rule for a ``Learner``; fits ``SupportsSpecs``.

    A matrix's direction has a root mean square of about ``rms``, whatever its shape, so that the learning rate and the weight decay of
    AdamW go on to fit (Liu et al. 2025, arXiv:2502.16982, §2.2: 0.2).
    """

    class Config(ax_config.Config["Muon"]):
        """The momentum, and what isn't for it."""

        momentum: float = 0.95
        nesterov: bool = True
        num_iterations: int = 5
        """Of Newton and Schulz."""
        rms: float = 0.2
        dtype: str | None = None
        """Of the momentum; None is the parameter's."""
        others: Rule = field(default_factory=adam)
        """For vectors, and parameters with one of the ``others_axes``."""
        others_axes: tuple[str, ...] = ("vocab",)
        stacking_axes: tuple[str, ...] = ("layers", "expert")
        """Along which there are several matrices."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def for_specs(self, specs: object, /) -> Optimizer:
        """The optimizer for parameters of these specs."""
        cfg = self.cfg
        return for_matrices(
            specs,
            rule=self._rule,
            others=made(cfg.others, specs),
            others_axes=cfg.others_axes,
            stacking_axes=cfg.stacking_axes,
        )

    def _rule(self, matrices: Mapping[str, MatrixDims]) -> Optimizer:
        import optax.contrib  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

        cfg = self.cfg

        def numbers(tree: object) -> object:
            def of_one(path: tuple[object, ...], _: object) -> optax.contrib.MuonDimensionNumbers:
                dims = matrices[path_of(path)]
                return optax.contrib.MuonDimensionNumbers(dims.inputs, dims.outputs)

            return jax.tree_util.tree_map_with_path(of_one, tree)

        def sized(tree: object, _: object = None) -> object:
            def of_one(path: tuple[object, ...], x: jax.Array) -> jax.Array:
                dims = matrices[path_of(path)]
                larger = max(math.prod(x.shape[dim] for dim in part) for part in (dims.inputs, dims.outputs))
                return x * (cfg.rms * math.sqrt(larger))

            return jax.tree_util.tree_map_with_path(of_one, tree)

        muon = optax.contrib.scale_by_muon(
            beta=cfg.momentum,
            nesterov=cfg.nesterov,
            ns_steps=cfg.num_iterations,
            mu_dtype=cfg.dtype,
            weight_dimension_numbers=numbers,
        )
        return cast("Optimizer", optax.chain(muon, optax.stateless(sized)))
