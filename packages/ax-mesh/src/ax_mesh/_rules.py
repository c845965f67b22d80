"""Rules from the logical names of an array's dims to the axes of a mesh.

A rule is ``(logical name, mesh axes)``; the mesh axes are one name, several, or None for "whole on every device". Rules
are ordered by priority, and a logical name may have several. From the first rule on, each takes its mesh axes for the
array's first dim of its name that no earlier rule has placed, if it fits: none of its mesh axes may be taken, and their
sizes' product must divide the dim; a rule is never applied in part. So of two names that want one mesh axis the one whose
rule stands first gets it, whichever dim comes first. Mesh axes of size 1, and those the mesh lacks, are passed over: one page
of rules serves every mesh.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Rule: TypeAlias = tuple[str, str | tuple[str, ...] | None]
Indivisible: TypeAlias = Literal["replicate", "error"]

DEFAULT_RULES: tuple[Rule, ...] = (
    ("expert", "expert"),
    ("batch", ("data", "fsdp", "expert")),
    ("batch", ("data", "fsdp")),
    ("layers", "pipeline"),
    ("vocab", "tensor"),
    ("mlp", "tensor"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("seq", ("sequence", "tensor")),
    ("seq", "sequence"),
    ("seq", None),
    ("embed", "fsdp"),
    ("head_dim", None),
    ("norm", None),
)
"""Every kind of parallelism, where the mesh has its axis.

Data parallel over ``data`` and ``fsdp``; parameters split over ``fsdp`` (ZeRO-3, Rajbhandari et al. 2019, arXiv:1910.02054; with
both axes hybrid: a copy for each group) and ``tensor`` (Shoeybi et al. 2019, arXiv:1909.08053). Where no heads, inner dim or
vocabulary take ``tensor``, as at norms and along the residual stream, the sequence does (Korthikanti et al. 2022,
arXiv:2205.05198). Experts are split over ``expert``, along which everything else is data parallel; the sequence over
``sequence``, stacked layers over ``pipeline``.
"""

_KNOWN_MESH_AXES = ("data", "fsdp", "tensor", "sequence", "expert", "pipeline")


class ShardingRuleError(ValueError):
    """The rules don't say, or forbid, where an array goes."""


@dataclass(frozen=True)
class DimChoice:
    """What the rules chose for one dim: the mesh axes it is split over, and why there are none or fewer."""

    mesh_axes: tuple[str, ...]
    reason: str = ""
    absent: tuple[str, ...] = ()
    """The mesh axes that its rules name, if it is whole for no other reason than that the mesh isn't split along them."""


def choose(
    axes: Sequence[str | None],
    shape: Sequence[int],
    /,
    *,
    rules: Iterable[Rule],
    mesh: Mapping[str, int],
    indivisible: Indivisible,
    what: str,
) -> tuple[DimChoice, ...]:
    """The choice for each dim of an array of ``shape`` whose dims are called ``axes``, on a mesh of these axis sizes.

    A dim that no rule fits, one of them because sizes don't divide, is whole on every device or an error, as
    ``indivisible`` says.
    ``what`` names the array in errors. Raises ShardingRuleError.
    """
    if len(axes) != len(shape):
        raise ShardingRuleError(f"{what}: its shape {tuple(shape)} has {len(shape)} dims, its axes {tuple(axes)} don't")
    rules = tuple(rules)
    known = dict.fromkeys(name for name, _ in rules)
    for dim, logical in enumerate(axes):
        if logical is not None and logical not in known:
            raise ShardingRuleError(
                f"{what}: dim {dim} is called {logical!r}, for which there is no rule ({nearest(logical, known)}). "
                f'Add ("{logical}", None) to the rules to keep it whole'
            )
    dims = [_Dim(size) for size in shape]
    taken: dict[str, int] = {}
    for name, target in rules:
        for dim, logical in enumerate(axes):
            if logical == name and dims[dim].chosen is None:
                dims[dim].offer(_as_tuple(target), mesh, taken)
                taken |= dict.fromkeys(dims[dim].chosen or (), dim)
    for dim, state in enumerate(dims):
        if state.chosen is None and state.indivisible and indivisible == "error":
            raise ShardingRuleError(
                f"{what}: dim {dim} ({axes[dim]!r}) fits none of its rules: {'; '.join(state.tried)}. Change the size or the "
                'mesh, add a rule that fits, or set indivisible="replicate" to keep such dims whole on every device'
            )
    return tuple(
        DimChoice((), "the dim has no name") if logical is None else state.choice()
        for logical, state in zip(axes, dims, strict=True)
    )


def check_rules(rules: Iterable[Rule], mesh: Iterable[str]) -> None:
    """Raise unless every mesh axis in ``rules`` is one of this mesh or of those that meshes are known to have."""
    known = list(dict.fromkeys([*mesh, *_KNOWN_MESH_AXES]))
    for logical, target in rules:
        for axis in _as_tuple(target):
            if axis not in known:
                raise ShardingRuleError(
                    f"the rule for {logical!r} names the mesh axis {axis!r}, which this mesh lacks and which isn't one "
                    f"that meshes are known to have ({nearest(axis, known)})"
                )


@dataclass
class _Dim:
    """A dim on its way through the rules: what it was given, and why not what it was offered before."""

    size: int
    chosen: tuple[str, ...] | None = None
    tried: dict[str, None] = field(default_factory=dict)
    """In order; what two rules fail for alike is told once."""
    absent: list[str] = field(default_factory=list)
    refused: bool = False
    """Whether it was offered axes that the mesh has, and couldn't take them."""
    indivisible: bool = False

    def choice(self) -> DimChoice:
        """What came of it."""
        only_absent = self.chosen is None and not self.refused
        return DimChoice(self.chosen or (), "; ".join(self.tried), tuple(self.absent) if only_absent else ())

    def offer(self, target: tuple[str, ...], mesh: Mapping[str, int], taken: Mapping[str, int]) -> None:
        """Take the mesh axes of a rule if they fit; ``taken`` maps mesh axes to the dims that they serve already."""
        present = tuple(axis for axis in target if mesh.get(axis, 1) > 1)
        ways = math.prod(mesh[axis] for axis in present)
        served = [f"{axis} serves dim {taken[axis]} already" for axis in present if axis in taken]
        if not target:
            self.chosen = ()
            self.tried["a rule keeps it whole"] = None
        elif not present:
            self.absent += target
            self.tried[f"the mesh isn't split along {'+'.join(target)}"] = None
        elif served:
            self.refused = True
            self.tried[served[0]] = None
        elif self.size % ways != 0:
            self.refused = self.indivisible = True
            self.tried[f"{self.size} can't be split {ways} ways over {'+'.join(present)}"] = None
        else:
            self.chosen = present


def _as_tuple(target: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if target is None else (target,) if isinstance(target, str) else target


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say of a name that isn't among the known ones."""
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else f"known are {', '.join(known)}"
