"""The seam that ax-mesh owns: what an array must tell of itself to be placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class HasAxes(Protocol):
    """An array's description: how large, of what type, and what each dim means."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def axes(self) -> Sequence[str | None]:
        """The logical name of each dim, None where it has none; as long as ``shape``."""
        ...
