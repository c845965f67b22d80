"""Rules from the logical names of an array's dims to the axes of a mesh.

A rule is ``(logical name, mesh axes)``; the mesh axes are one name, several, or None for "whole on every device". Rules
are ordered, and a logical name may have several: for each dim, from the first on, the first rule that fits wins. It fits
when none of its mesh axes serves an earlier dim of the same array, and their sizes' product divides the dim. Mesh axes of
size 1, and those the mesh lacks, are passed over: one page of rules serves every mesh.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Rule: TypeAlias = tuple[str, str | tuple[str, ...] | None]
Indivisible: TypeAlias = Literal["replicate", "error"]

DEFAULT_RULES: tuple[Rule, ...] = (
    ("batch", ("data", "fsdp")),
    ("embed", "fsdp"),
    ("vocab", "tensor"),
    ("mlp", "tensor"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("expert", "expert"),
    ("head_dim", None),
    ("norm", None),
    ("seq", None),
    ("layers", None),
)
"""Data parallel over ``data`` and ``fsdp``, parameters split over ``fsdp``, and over ``tensor`` and ``expert`` where the mesh has them."""

_KNOWN_MESH_AXES = ("data", "fsdp", "tensor", "sequence", "expert", "pipeline")


class ShardingRuleError(ValueError):
    """The rules don't say, or forbid, where an array goes."""


@dataclass(frozen=True)
class DimChoice:
    """What the rules chose for one dim: the mesh axes it is split over, and why there are none or fewer."""

    mesh_axes: tuple[str, ...]
    reason: str = ""


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

    A dim whose every candidate fails only because sizes don't divide is replicated or an error, as ``indivisible`` says.
    ``what`` names the array in errors. Raises ShardingRuleError.
    """
    if len(axes) != len(shape):
        raise ShardingRuleError(f"{what}: its shape {tuple(shape)} has {len(shape)} dims, its axes {tuple(axes)} don't")
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for name, target in rules:
        by_name.setdefault(name, []).append(_as_tuple(target))
    used: dict[str, int] = {}
    choices = []
    for dim, (logical, size) in enumerate(zip(axes, shape, strict=True)):
        if logical is None:
            choices.append(DimChoice((), "the dim has no name"))
            continue
        if logical not in by_name:
            raise ShardingRuleError(
                f"{what}: dim {dim} is called {logical!r}, for which there is no rule ({_nearest(logical, by_name)}). "
                f'Add ("{logical}", None) to the rules to keep it whole'
            )
        choice = _choose_dim(size, by_name[logical], used, mesh, indivisible, f"{what}: dim {dim} ({logical!r})")
        used |= dict.fromkeys(choice.mesh_axes, dim)
        choices.append(choice)
    return tuple(choices)


def check_rules(rules: Iterable[Rule], mesh: Iterable[str]) -> None:
    """Raise unless every mesh axis in ``rules`` is one of this mesh or of those that meshes are known to have."""
    known = list(dict.fromkeys([*mesh, *_KNOWN_MESH_AXES]))
    for logical, target in rules:
        for axis in _as_tuple(target):
            if axis not in known:
                raise ShardingRuleError(
                    f"the rule for {logical!r} names the mesh axis {axis!r}, which this mesh lacks and which isn't one "
                    f"that meshes are known to have ({_nearest(axis, known)})"
                )


def _choose_dim(
    size: int,
    candidates: list[tuple[str, ...]],
    used: Mapping[str, int],
    mesh: Mapping[str, int],
    indivisible: Indivisible,
    what: str,
) -> DimChoice:
    """The first of ``candidates`` that fits a dim of ``size``; ``used`` maps mesh axes to the dims they serve already."""
    tried: list[str] = []
    divides = True
    for candidate in candidates:
        present = tuple(axis for axis in candidate if mesh.get(axis, 1) > 1)
        named = "+".join(candidate)
        if not candidate:
            return DimChoice((), "; ".join([*tried, "a rule keeps it whole"]))
        if not present:
            tried.append(f"the mesh isn't split along {named}")
            continue
        taken = [axis for axis in present if axis in used]
        ways = math.prod(mesh[axis] for axis in present)
        if taken:
            tried.append(f"{taken[0]} serves dim {used[taken[0]]} already")
        elif size % ways != 0:
            divides = False
            tried.append(f"{size} can't be split {ways} ways over {'+'.join(present)}")
        else:
            return DimChoice(present, "; ".join(tried))
    reason = "; ".join(tried)
    if not divides and indivisible == "error":
        raise ShardingRuleError(
            f"{what} fits none of its rules: {reason}. Change the size or the mesh, add a rule that fits, or set "
            'indivisible="replicate" to keep such dims whole on every device'
        )
    return DimChoice((), reason)


def _as_tuple(target: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if target is None else (target,) if isinstance(target, str) else target


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else f"known are {', '.join(known)}"
