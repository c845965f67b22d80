"""What an optimizer tells the step through its state: scalars that are known by the names of their fields.

learning_rate  of the last update; reported
skipped        whether the last update was none, so that the step leaves all parameters, states too, as they were; reported
loss_scale     what the loss is multiplied with before its gradients are taken, and they are divided by; reported
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import jax

from ._groups import DEFAULT

Path = tuple[object, ...]


def told(opt_state: object, name: str) -> jax.Array | None:
    """The scalar of this name; None where there is none.

    Raises:
        ValueError: There are several.
    """
    found = _scalars(opt_state, name)
    if len(found) > 1:
        paths = ", ".join(jax.tree_util.keystr(path) for path, _ in found)
        raise ValueError(f"an optimizer's state has one {name!r} at most, but there are {paths}")
    return found[0][1] if found else None


def learning_rates(opt_state: object) -> Mapping[str, jax.Array]:
    """The learning rates by the names that they are reported under.

    Where ``optax.partition`` gives parts of a model optimizers of their own, that of the part "x" is "learning_rate/x"; that of
    the part "default" is "learning_rate" all the same. Rates that share a name aren't there.
    """
    rates: dict[str, list[jax.Array]] = {}
    for path, rate in _scalars(opt_state, "learning_rate"):
        parts = [label for label in _labels(path) if label != DEFAULT]
        rates.setdefault("/".join(["learning_rate", *parts]), []).append(rate)
    return {name: found[0] for name, found in rates.items() if len(found) == 1}


def _scalars(opt_state: object, name: str) -> list[tuple[Path, jax.Array]]:
    """The scalars whose field has this name; hyperparameters that optax injects stand in a dict."""
    leaves = jax.tree_util.tree_leaves_with_path(opt_state)
    fields = (jax.tree_util.GetAttrKey(name), jax.tree_util.DictKey(name))
    injected = jax.tree_util.GetAttrKey("hyperparams")
    return [
        (path, leaf)
        for path, leaf in leaves
        if leaf.ndim == 0 and path and (path[-1] == fields[0] or path[-2:] == (injected, fields[1]))
    ]


def _labels(path: Path) -> list[str]:
    """The labels of the parts on the way."""
    parts = jax.tree_util.GetAttrKey("inner_states")
    return [
        str(key.key) for before, key in pairwise(path) if before == parts and isinstance(key, jax.tree_util.DictKey)
    ]
