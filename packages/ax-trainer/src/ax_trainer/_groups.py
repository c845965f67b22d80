"""Groups of parameters that are learnt differently: who belongs to which, by path.

A group has patterns, in which ``*`` stands for anything, of parameters' paths ("layers/ffn/gate/weight"). Groups are asked in
their order, and the first that matches has the parameter; what none matches is learnt as the learner itself says. A
pattern that matches nothing is a mistake, and so is a group to which earlier ones have left nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar, cast

import ax_config
import jax
from ax_config import Buildable

from ._learning_rate import Schedule
from ._rules import Rule

DEFAULT = "default"
"""What the parameters are called that no group has."""

Tree = TypeVar("Tree")


class ParameterGroup:
    """Parameters that are learnt in a way of their own; see the module's docstring.

    Raises:
        ValueError: It has no patterns, or is frozen and yet says how it is to be learnt.
    """

    class Config(ax_config.Config["ParameterGroup"]):
        """Which, and what is different; what is None is as the learner has it."""

        patterns: tuple[str, ...]
        """Of paths; ``*`` matches "/" too: ``("embedding/*", "*norm*")``."""
        rule: Rule | None = None
        schedule: Buildable[Schedule] | None = None
        learning_rate_factor: float = 1.0
        """What the schedule, the learner's or its own, is multiplied with."""
        weight_decay: float | None = None
        frozen: bool = False
        """Stay as they are: nothing is remembered of them, and their gradients aren't computed."""

    def __init__(self, cfg: Config, /) -> None:
        if not cfg.patterns:
            raise ValueError("a parameter group has at least one pattern")
        differs = [name for name in ("rule", "schedule", "weight_decay") if getattr(cfg, name) is not None]
        differs += ["learning_rate_factor"] if cfg.learning_rate_factor != 1.0 else []
        if cfg.frozen and differs:
            raise ValueError(f"a frozen parameter group learns nothing, so it has no {' or '.join(differs)}")
        self.cfg = cfg


def assigned(groups: Mapping[str, ParameterGroup], specs: Tree) -> Tree:
    """The name of each parameter's group, in a tree congruent to ``specs``.

    Raises:
        ValueError: A group is called "default", a pattern matches no parameter, or a group has none.
    """
    if DEFAULT in groups:
        raise ValueError(f"a parameter group can't be called {DEFAULT!r}: that is what all the others are called")
    paths = [path_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(specs)]
    for name, group in groups.items():
        for pattern in group.cfg.patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                close = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3)
                raise ValueError(
                    f"groups[{name}]: the pattern {pattern!r} matches no parameter that is learnt; "
                    f"{'the nearest are' if close else 'there are'} {', '.join(close or paths[:8])}"
                )
    owners = {path: _owner(path, groups) for path in paths}
    for name in groups:
        if name not in owners.values():
            raise ValueError(f"groups[{name}] has no parameter: groups that stand before it match all that it matches")
    return cast("Tree", jax.tree_util.tree_map_with_path(lambda path, _: owners[path_of(path)], specs))


def _owner(path: str, groups: Mapping[str, ParameterGroup]) -> str:
    for name, group in groups.items():
        if any(fnmatchcase(path, pattern) for pattern in group.cfg.patterns):
            return name
    return DEFAULT


def path_of(path: tuple[object, ...]) -> str:
    """A parameter's path as it is written everywhere."""
    return jax.tree_util.keystr(path, simple=True, separator="/")
