"""Where arrays go on a mesh of given sizes: the page of rules, and what stands before it for some of them.

Overrides are rules for parameters and activations by path: a pattern, in which ``*`` stands for anything, matches a parameter's
path ("layers/attention/query/weight"), and the path of the module that places an activation ("layers/attention"). Its
rules stand before the page's. What the optimizer remembers of parameters may have rules of its own before both.

Nothing here knows a device.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

import jax
import numpy as np

from ._rules import DimChoice, Indivisible, Rule, ShardingRuleError, check_rules, choose, nearest
from .protocols import HasAxes

Overrides: TypeAlias = Mapping[str, tuple[Rule, ...]]


@dataclass(frozen=True)
class Placement:
    """One array and what the rules chose for its dims."""

    path: str
    spec: HasAxes
    choices: tuple[DimChoice, ...]

    def num_bytes(self) -> int:
        """Of the whole array."""
        return math.prod(self.spec.shape) * np.dtype(self.spec.dtype).itemsize

    def num_shards(self, mesh: Mapping[str, int]) -> int:
        """Into how many different parts it is split."""
        return math.prod(mesh[axis] for choice in self.choices for axis in choice.mesh_axes)


@dataclass(frozen=True)
class Layout:
    """The sizes of a mesh's axes, and the rules.

    Raises ShardingRuleError when a rule names an unknown mesh axis, or one that stands before the page a name that isn't on it.
    """

    mesh: Mapping[str, int]
    rules: tuple[Rule, ...]
    overrides: Overrides
    optimizer_rules: tuple[Rule, ...]
    _: KW_ONLY
    indivisible: Indivisible

    def __post_init__(self) -> None:
        for rules in (self.rules, self.optimizer_rules, *self.overrides.values()):
            check_rules(rules, self.mesh)
        known = dict.fromkeys(name for name, _ in self.rules)
        before = {"optimizer_rules": self.optimizer_rules}
        before |= {f"the overrides for {pattern!r}": rules for pattern, rules in self.overrides.items()}
        for what, rules in before.items():
            for name, _ in rules:
                if name not in known:
                    raise ShardingRuleError(
                        f"{what} have a rule for {name!r}, for which the page has none ({nearest(name, known)})"
                    )

    def choose(
        self,
        axes: Sequence[str | None],
        shape: Sequence[int],
        /,
        *,
        path: str,
        what: str,
        taken: Collection[str] = (),
        first: tuple[Rule, ...] = (),
        indivisible: Indivisible | None = None,
    ) -> tuple[DimChoice, ...]:
        """The choice for each dim of an array at ``path``; without the mesh axes in ``taken``, with ``first`` before all rules.

        ``indivisible`` is this layout's policy unless given.
        """
        before = [rule for pattern, rules in self.overrides.items() if fnmatchcase(path, pattern) for rule in rules]
        return choose(
            axes,
            shape,
            rules=(*first, *before, *self.rules),
            mesh={name: size for name, size in self.mesh.items() if name not in taken},
            indivisible=self.indivisible if indivisible is None else indivisible,
            what=what,
        )

    def parameters(self, specs: object, /, *, modules: Collection[str]) -> object:
        """Each leaf of ``specs``, a model's parameters, as a ``Placement``.

        ``modules`` are paths of modules known to have placed an activation. Raises ShardingRuleError when an override's
        pattern matches none of them, no parameter, and no module that has one.
        """
        placements = self._placements(specs, ())
        paths = [path for path, _ in _leaves(specs)]
        above = {path.rsplit("/", depth)[0] for path in paths for depth in range(1, path.count("/") + 1)}
        for pattern in self.overrides:
            if not any(fnmatchcase(path, pattern) for path in (*paths, *above, *modules)):
                raise ShardingRuleError(
                    f"the overrides for {pattern!r} match no parameter and no module with parameters "
                    f"({nearest(pattern, [*paths, *sorted(above)])}). A module without any is matched by a pattern that begins "
                    'with one above it, such as "layers/ffn*"'
                )
        return placements

    def optimizer_state(self, specs: object, /) -> object:
        """Each leaf of ``specs`` as a ``Placement`` of what the optimizer remembers of it."""
        return self._placements(specs, self.optimizer_rules)

    def _placements(self, specs: object, first: tuple[Rule, ...]) -> object:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: self._placement(_name(path), leaf, first), specs, is_leaf=_is_spec
        )

    def _placement(self, path: str, leaf: object, first: tuple[Rule, ...]) -> Placement:
        if not isinstance(leaf, HasAxes):
            raise ShardingRuleError(f"{path}: wanted something with shape, dtype and axes, got {type(leaf).__name__}")
        return Placement(path, leaf, self.choose(leaf.axes, leaf.shape, path=path, what=path, first=first))


def _leaves(specs: object) -> list[tuple[str, object]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(specs, is_leaf=_is_spec)
    return [(_name(path), leaf) for path, leaf in leaves]


def _is_spec(node: object) -> bool:
    return isinstance(node, HasAxes)


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
