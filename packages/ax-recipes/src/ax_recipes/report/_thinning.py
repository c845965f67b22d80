"""A curve of any length as few points, such that nothing that stands out is lost.

Steps are taken together in spans of about equal numbers of points; each becomes its mean, with its least and greatest value
as a band around it. So the line is what smoothing would show, and the one step where the loss was ten times as high is a spike
of the band. (Sampling every k-th point loses spikes; largest-triangle-three-buckets, Steinarsson 2013, keeps them, but gives a
line that is neither the values nor their mean.)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from ._history import Curve


@dataclass(frozen=True)
class Thinned:
    """A curve of few points, all ``[M]``; NaN where there was no finite value."""

    steps: np.ndarray
    """The last step of each span."""
    mean: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    steps_per_point: int
    """1 if the curve is as it was."""


def thinned(curve: Curve, *, most: int) -> Thinned:
    """``curve`` as at most ``most`` points, all of equally many values but the last."""
    if most < 1:
        raise ValueError(f"a curve needs at least 1 point, got most={most}")
    values = np.where(np.isfinite(curve.values), curve.values, np.nan)
    size = max(-(-len(values) // most), 1)
    if size == 1:
        return Thinned(curve.steps, values, values, values, 1)
    starts = np.arange(0, len(values), size)
    missing = -len(values) % size
    spans = np.concatenate([values, np.full(missing, np.nan)]).reshape(-1, size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(Mean of empty|All-NaN) slice", RuntimeWarning)
        mean, least, greatest = np.nanmean(spans, 1), np.nanmin(spans, 1), np.nanmax(spans, 1)
    last = np.minimum(starts + size, len(values)) - 1
    return Thinned(curve.steps[last], mean, least, greatest, size)
