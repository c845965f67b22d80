"""Lengths are rounded up to a few values, so that programs compiled for one prompt serve many."""

from __future__ import annotations

_SMALLEST = 16


def bucket_length(length: int, /) -> int:
    """``length`` rounded up to a multiple of an eighth of the power of two that holds it, and of 16: at most 25 % more.

    16, 32, 48, 64, 80, …, 128, 160, 192, 224, 256, 320, … Never less than ``length``, and monotone in it.
    """
    if length < 1:
        raise ValueError(f"a length is at least 1; got {length}")
    step = max(_SMALLEST, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step
