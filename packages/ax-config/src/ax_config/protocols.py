"""The seams that ax-config owns.

A config is anything that can be built. Consumers that hold a config of unknown class name its *result*, not its class:
a field typed ``Buildable[FeedForward]`` accepts any config whose ``build`` gives a ``FeedForward``.
"""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class Buildable(Protocol[T_co]):
    """Something that describes a ``T`` and can make one."""

    def build(self, **runtime: object) -> T_co:
        """Make the described object.

        ``runtime`` holds what only the caller knows: interface fields that the description left open (input and output
        widths, say) and objects that are no part of a description (devices, open files).
        """
        ...
