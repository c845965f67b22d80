"""SOAP: Adam in the eigenbasis of Shampoo (Vyas et al. 2024, arXiv:2409.11321), for the matrices of a model.

Of a matrix's gradients ``G`` the moving means of ``G Gᵀ`` and ``Gᵀ G`` are kept, and their eigenvectors, the bases. Adam's second moment is kept
of gradients turned into these bases; the direction is Adam's there, turned back. The bases follow slowly: every few steps by one
power iteration, made orthonormal again (Algorithm 4 there); the first time they are computed outright. The first gradient makes the
bases and nothing else, as in the paper's own code: in its own bases it is diagonal, so a direction would be mostly noise. Without
bases it is Adam.

Which dims make a matrix, and what is for another rule, is as in ``Muon``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import ax_config
import jax
import jax.numpy as jnp
from ax_config import field

from ._groups import path_of
from ._matrices import MatrixDims, for_matrices
from ._rules import Rule, adam, made
from ._skipping import chosen
from .protocols import Optimizer

# Letters of dims: s stack, m inputs, n outputs, j and k their bases.


class SOAPState(NamedTuple):
    """What is remembered of gradients; all but the number of updates are trees like the parameters."""

    num_updates: jax.Array
    mu: object
    """Their mean."""
    nu: object
    """The mean of their squares, in the bases."""
    input_covariance: object
    """The mean of ``G Gᵀ``, ``[…, m, m]``; empty where this side has no basis."""
    output_covariance: object
    """The mean of ``Gᵀ G``, ``[…, n, n]``."""
    input_basis: object
    """Eigenvectors, in columns."""
    output_basis: object


class Remembered(NamedTuple):
    """The same of one parameter."""

    mu: jax.Array
    nu: jax.Array
    input_covariance: jax.Array
    output_covariance: jax.Array
    input_basis: jax.Array
    output_basis: jax.Array


class SOAP:
    """A rule for a ``Learner``; fits ``SupportsSpecs``."""

    class Config(ax_config.Config["SOAP"]):
        """The numbers, with the paper's defaults, and what isn't for it."""

        b1: float = 0.95
        b2: float = 0.95
        """Of the second moment and of the covariances."""
        eps: float = 1e-8
        refresh_every: int = 10
        """Steps between iterations of the bases."""
        max_dim: int = 10_000
        """A larger side has no basis, which would take as much as the square of it."""
        others: Rule = field(default_factory=adam)
        """For vectors, and parameters with one of the ``others_axes``."""
        others_axes: tuple[str, ...] = ("vocab",)
        stacking_axes: tuple[str, ...] = ("layers", "expert")
        """Along which there are several matrices."""

    def __init__(self, cfg: Config, /) -> None:
        if cfg.refresh_every < 1:
            raise ValueError(f"SOAP refreshes its bases every 1 or more steps, got {cfg.refresh_every}")
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
        import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

        def split(params: object) -> tuple[list[tuple[MatrixDims, jax.Array]], object]:
            leaves, structure = jax.tree_util.tree_flatten_with_path(params)
            return [(matrices[path_of(path)], x) for path, x in leaves], structure

        def joined(structure: object, count: jax.Array, each: list[Remembered]) -> SOAPState:
            columns = zip(*each, strict=True) if each else [()] * len(Remembered._fields)
            return SOAPState(count, *(jax.tree.unflatten(structure, column) for column in columns))

        def init(params: object) -> SOAPState:
            if not jax.tree.leaves(params):  # such as optax's stand-in for all parameters
                return SOAPState(jnp.zeros((), jnp.int32), *[params] * len(Remembered._fields))
            leaves, structure = split(params)
            return joined(structure, jnp.zeros((), jnp.int32), [self._first(dims, x) for dims, x in leaves])

        def update(updates: object, state: SOAPState, _params: object = None) -> tuple[object, SOAPState]:
            leaves, structure = split(updates)
            remembered = [Remembered(*each) for each in zip(*map(jax.tree.leaves, state[1:]), strict=True)]
            done = [
                self._step(dims, x, before, state.num_updates)
                for (dims, x), before in zip(leaves, remembered, strict=True)
            ]
            directions = jax.tree.unflatten(structure, [direction for direction, _ in done])
            return directions, joined(structure, optax.safe_increment(state.num_updates), [after for _, after in done])

        return cast("Optimizer", optax.GradientTransformation(init, update))

    def _first(self, dims: MatrixDims, x: jax.Array) -> Remembered:
        stack = [x.shape[dim] for dim in dims.stacked]

        def square(side: tuple[int, ...]) -> jax.Array:
            size = math.prod(x.shape[dim] for dim in side)
            return jnp.zeros((*stack, size, size) if size <= self.cfg.max_dim else (0,), jnp.float32)

        moment, sides = jnp.zeros(x.shape, jnp.float32), [square(dims.inputs), square(dims.outputs)]
        return Remembered(moment, moment, *sides, *sides)

    def _step(
        self, dims: MatrixDims, x: jax.Array, before: Remembered, count: jax.Array
    ) -> tuple[jax.Array, Remembered]:
        """The direction, and what is remembered next."""
        cfg, gradient = self.cfg, x.astype(jnp.float32)
        g_smn = dims.as_matrices(gradient)
        covariances = (
            self._averaged(before.input_covariance, "smn,sjn->smj", g_smn),
            self._averaged(before.output_covariance, "smn,smk->snk", g_smn),
        )
        bases = [
            self._refreshed(basis, covariance, count)
            for basis, covariance in zip((before.input_basis, before.output_basis), covariances, strict=True)
        ]
        has_basis = any(basis.size for basis in bases)
        num_gradients = (count if has_basis else count + 1).astype(jnp.float32)  # of which there is an average
        mu = cfg.b1 * before.mu + (1 - cfg.b1) * gradient
        nu_sjk = cfg.b2 * dims.as_matrices(before.nu) + (1 - cfg.b2) * jnp.square(_into(bases, g_smn))
        mean_sjk = _into(bases, dims.as_matrices(mu)) / (1 - cfg.b1**num_gradients)
        direction = _out_of(bases, mean_sjk / (jnp.sqrt(nu_sjk / (1 - cfg.b2**num_gradients)) + cfg.eps))
        now = dims.as_it_was(direction, x.shape), mu, dims.as_it_was(nu_sjk, x.shape)
        if has_basis:
            nothing = jnp.zeros_like(gradient), before.mu, before.nu
            now = chosen(count == 0, nothing, now)
        return now[0].astype(x.dtype), Remembered(now[1], now[2], *covariances, *bases)

    def _averaged(self, covariance: jax.Array, product: str, g_smn: jax.Array) -> jax.Array:
        if not covariance.size:
            return covariance
        now = _einsum(product, g_smn, g_smn).reshape(covariance.shape)
        return self.cfg.b2 * covariance + (1 - self.cfg.b2) * now

    def _refreshed(self, basis: jax.Array, covariance: jax.Array, count: jax.Array) -> jax.Array:
        if not basis.size:
            return basis

        def outright() -> jax.Array:
            vectors: jax.Array = jnp.linalg.eigh(covariance)[1]
            return vectors

        def iterated() -> jax.Array:
            turned = jnp.matmul(covariance, basis, precision=jax.lax.Precision.HIGHEST)
            orthonormal: jax.Array = jnp.linalg.qr(turned)[0]
            return orthonormal

        def follow() -> jax.Array:
            kept: jax.Array = jax.lax.cond(count % self.cfg.refresh_every == 0, iterated, lambda: basis)
            return kept

        refreshed: jax.Array = jax.lax.cond(count == 0, outright, follow)
        return refreshed


def _einsum(product: str, left: jax.Array, right: jax.Array) -> jax.Array:
    made: jax.Array = jnp.einsum(product, left, right, precision=jax.lax.Precision.HIGHEST)
    return made


def _into(bases: Sequence[jax.Array], x_smn: jax.Array) -> jax.Array:
    """Matrices as they are in the bases, on each side that has one."""
    for basis, product in zip(bases, ("smj,smn->sjn", "snk,smn->smk"), strict=True):
        x_smn = _einsum(product, _flat(basis), x_smn) if basis.size else x_smn
    return x_smn


def _out_of(bases: Sequence[jax.Array], x_sjk: jax.Array) -> jax.Array:
    """The way back."""
    for basis, product in zip(bases, ("smj,sjn->smn", "snk,smk->smn"), strict=True):
        x_sjk = _einsum(product, _flat(basis), x_sjk) if basis.size else x_sjk
    return x_sjk


def _flat(basis: jax.Array) -> jax.Array:
    return basis.reshape(-1, *basis.shape[-2:])
