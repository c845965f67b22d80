"""Import names: how texts name classes and functions, and how they are found again.

A thing stands under the outermost public module that offers it, so that moving a file inside a package changes no text.
"""

from __future__ import annotations

import importlib
import sys

from ._errors import TextError, nearest


def import_name(thing: object) -> str:
    """``"package:Name"`` of a class or function, by the outermost public module that offers it.

    Raises:
        TextError: It can't be imported by a name (a lambda, a local class).
    """
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise TextError(f"{thing!r} has no import name")
    parts = module.split(".")
    own = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    public = [name for name in own if not _is_private(name)]
    if len(public) < len(own):  # it lives in a private module; its package may offer it anywhere
        family = [name for name in list(sys.modules) if name.startswith(f"{parts[0]}.") and not _is_private(name)]
        public += sorted(family, key=lambda name: (name.count("."), name))
    for name in [*public, module]:
        if _lookup(sys.modules.get(name), qualname) is thing:
            return f"{name}:{qualname}"
    raise TextError(f"{module}:{qualname} can't be imported under that name, so it has no text; define it in a module")


def import_by_name(name: str) -> object:
    """The class or function that ``import_name`` named."""
    module, _, qualname = name.partition(":")
    if not module or not qualname:
        raise TextError(f"{name!r} is no import name; it reads module:name")
    try:
        owner = importlib.import_module(module)
    except ImportError as e:
        raise TextError(f"{name}: {e}") from e
    found = _lookup(owner, qualname)
    if found is None:
        legal = [each for each in vars(owner) if not each.startswith("_")]
        raise TextError(f"{name}: module {module} has no {qualname}; {nearest(qualname, legal)}")
    return found


def _is_private(module: str) -> bool:
    return any(part.startswith("_") and part != "__main__" for part in module.split("."))


def _lookup(root: object, qualname: str) -> object:
    for part in qualname.split("."):
        root = getattr(root, part, None)
        if root is None:
            return None
    return root
