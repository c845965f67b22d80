"""Something that exists already, where a config is asked for: in a notebook, say. Its tree has no text any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Ready(Generic[T_co]):
    """Fits ``Buildable`` of ax-config; frozen, because a config holds no value that can change behind its back."""

    thing: T_co

    def build(self, **runtime: object) -> T_co:
        return self.thing
