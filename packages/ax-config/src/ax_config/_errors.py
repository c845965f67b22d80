"""What can go wrong with a config, by kind. Every message carries the path in the tree and the nearest legal names."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(Exception):
    """Any misuse of a config."""


class UnknownFieldError(ConfigError, AttributeError):
    """A name that is no field of the config."""


class FieldTypeError(ConfigError, TypeError):
    """A value of the wrong type for its field, or of a type that no config holds."""


class MissingFieldError(ConfigError, AttributeError):
    """A required field that nobody set."""


class ConflictError(ConfigError, ValueError):
    """A parent and a child's config that disagree on an interface field."""


class NoMatchError(ConfigError, LookupError):
    """A path, a selection or an override that matched nothing."""


class TextError(ConfigError, ValueError):
    """Text that is no config, or a value that has no text."""


def nearest(name: str, legal: Iterable[str]) -> str:
    """A sentence part that lists the legal names closest to ``name``, or all of them when none is close."""
    import difflib  # here, since most programs never get here

    names = sorted(set(legal))
    if not names:
        return "there are no legal names here"
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"legal names: {shown}"
