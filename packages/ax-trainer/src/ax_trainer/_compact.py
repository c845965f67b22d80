"""What an optimizer remembers, in fewer bits: bfloat16, or eight bits a number. It computes in its own type all the same.

Any rule can be wrapped: the arrays in its state are packed between steps, and unpacked for its update. Small arrays stay as they
are. A packed array has the shape of what it stands for, so it lies where the parameter lies.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, cast

import ax_config
import jax
import jax.numpy as jnp

from ._eight_bits import decoded, encoded
from ._rules import Rule, made
from .protocols import Optimizer

Path: TypeAlias = tuple[object, ...]


class CompactState(NamedTuple):
    """The state of a rule, packed."""

    values: object
    """The rule's state, with other arrays in the places of its large ones."""
    scales: object
    """The same, with the scales of blocks in these places, and none elsewhere."""
    num_updates: jax.Array


class Compact:
    """A rule whose state takes less memory; fits ``SupportsSpecs``.

    "bfloat16" is rounded at random, up or down by how near the two neighbours are, so that changes too small for it add up in the
    mean; the draws depend on the number of updates alone. "int8" is the eight bits of ``_eight_bits``: a byte a number, and four for
    each block. Packing them searches tables, which takes time where the chip has no fast gather.
    """

    class Config(ax_config.Config["Compact"]):
        """Around what, and how few bits."""

        rule: Rule
        dtype: Literal["bfloat16", "int8"] = "bfloat16"
        block: int = 256
        """Numbers of the last dim that share a scale, in "int8"."""
        min_size: int = 4_096
        """Arrays of fewer numbers stay as they are."""
        unsigned: tuple[str, ...] = ("nu", "v")
        """Fields of the rule's state whose numbers are never negative, for "int8": second moments."""

    def __init__(self, cfg: Config, /) -> None:
        if cfg.block < 1:
            raise ValueError(f"a block has at least 1 number, got {cfg.block}")
        self.cfg = cfg

    def for_specs(self, specs: object, /) -> Optimizer:
        """The optimizer for parameters of these specs."""
        import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

        inner = optax.with_extra_args_support(made(self.cfg.rule, specs))

        def init(params: object) -> CompactState:
            return self._packed(inner.init(params), jnp.zeros((), jnp.int32))

        def update(
            updates: object, state: CompactState, params: object = None, **extra: object
        ) -> tuple[object, CompactState]:
            like = jax.eval_shape(inner.init, params)
            updates, inner_state = inner.update(updates, self._unpacked(state, like), params, **extra)
            return updates, self._packed(inner_state, optax.safe_increment(state.num_updates))

        return cast("Optimizer", optax.GradientTransformationExtraArgs(init, update))

    def _packed(self, state: object, num_updates: jax.Array) -> CompactState:
        import optax

        cfg, key = self.cfg, jax.random.fold_in(jax.random.key(0), num_updates)
        leaves, structure = jax.tree_util.tree_flatten_with_path(state)
        values: list[object] = []
        scales: list[object] = []
        for number, (path, x) in enumerate(leaves):
            value, scale = x, optax.MaskedNode()
            if self._is_large(x) and cfg.dtype == "int8":
                value, scale = encoded(x, block=cfg.block, signed=self._is_signed(path))
            elif self._is_large(x):
                value = rounded(x, jax.random.fold_in(key, number))
            values.append(value)
            scales.append(scale)
        return CompactState(jax.tree.unflatten(structure, values), jax.tree.unflatten(structure, scales), num_updates)

    def _unpacked(self, state: CompactState, like: object) -> object:
        def of_one(path: Path, x: jax.ShapeDtypeStruct, value: jax.Array, scale: object) -> jax.Array:
            if self._is_large(x) and self.cfg.dtype == "int8":
                value = decoded(value, cast("jax.Array", scale), block=self.cfg.block, signed=self._is_signed(path))
            return value.astype(x.dtype)

        return jax.tree_util.tree_map_with_path(of_one, like, state.values, state.scales)

    def _is_large(self, x: jax.Array | jax.ShapeDtypeStruct) -> bool:
        return jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 0 and x.size >= self.cfg.min_size

    def _is_signed(self, path: Path) -> bool:
        return not {getattr(key, "name", None) for key in path} & set(self.cfg.unsigned)


def rounded(x: jax.Array, key: jax.Array) -> jax.Array:
    """In bfloat16: one of the two neighbours, each the likelier the nearer it is, so that the mean is ``x``."""
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    noise = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    up_or_down = jax.lax.bitcast_convert_type((bits + noise) & jnp.uint32(0xFFFF0000), jnp.float32)
    return jnp.where(jnp.isfinite(x), up_or_down, x.astype(jnp.float32)).astype(jnp.bfloat16)
