"""Distributions of values: functions of a fraction, so that what is drawn is the same on every machine and in any order."""

from __future__ import annotations

from collections.abc import Callable

from ._errors import ConfigError

Distribution = Callable[[float], object]
"""Makes a value of a fraction from [0, 1) that is uniformly distributed."""


def uniform(low: float, high: float) -> Distribution:
    """Numbers between ``low`` and ``high``, each as likely as the others."""
    _check_range(low, high)
    return lambda fraction: low + (high - low) * fraction


def log_uniform(low: float, high: float) -> Distribution:
    """Numbers between ``low`` and ``high``, which are positive, each order of magnitude as likely as the others."""
    import decimal

    _check_range(low, high)
    if low <= 0:
        raise ConfigError(f"log_uniform wants positive numbers, got {low}")
    context = decimal.Context(prec=30)  # whose ln and exp are the same on every machine, unlike those of floats
    start, stop = (context.ln(decimal.Decimal(end)) for end in (low, high))

    def draw(fraction: float) -> float:
        exponent = context.add(start, context.multiply(context.subtract(stop, start), decimal.Decimal(fraction)))
        return min(max(float(context.exp(exponent)), low), high)

    return draw


def integers(low: int, high: int) -> Distribution:
    """Integers from ``low`` to ``high``, both included, each as likely as the others."""
    _check_range(low, high)
    return lambda fraction: low + int(fraction * (high - low + 1))


def choice(*values: object) -> Distribution:
    """One of ``values``, each as likely as the others."""
    if not values:
        raise ConfigError("choice wants at least one value")
    return lambda fraction: values[int(fraction * len(values))]


def _check_range(low: float, high: float) -> None:
    if not low <= high:
        raise ConfigError(f"a distribution's range goes from low to high, got {low} and {high}")


def fraction_of(seed: int, index: int, path: str) -> float:
    """The fraction that a sample takes for a path: a function of these three, and of nothing else."""
    import hashlib

    digest = hashlib.sha256(f"{seed}/{index}/{path}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)
