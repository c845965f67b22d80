"""Every kind of parallelism, alone and in combinations, dense and mixtures of experts, packed and not: what one device does.

Three steps of the trainer's compiled step: the same initial parameters, losses and gradients.
"""

from __future__ import annotations

import math

import jax
import pytest
from ax_config import fingerprint

from .cases import CASES, configured
from .training import Kind, Setup, Training, check_equal, train

RUNS = [
    pytest.param(
        name,
        kind,
        packed,
        id=f"{name}-{kind}{'-packed' * packed}",
        marks=[pytest.mark.sample] * (case.sample and packed and kind == case.kinds[0]),
    )
    for name, case in CASES.items()
    for kind in case.kinds
    for packed in (False, True)
]

REFERENCES: dict[tuple[str, bool], Training] = {}


def on_one_device(config: Setup.Config, *, packed: bool) -> Training:
    """The reference, trained once for all cases that have it in common."""
    key = (fingerprint(config), packed)
    if key not in REFERENCES:
        REFERENCES[key] = train(config.build(devices=jax.devices()[:1]), packed=packed)
    return REFERENCES[key]


@pytest.mark.parametrize(("name", "kind", "packed"), RUNS)
def test_training_is_that_of_one_device(name: str, kind: Kind, *, packed: bool) -> None:
    case = CASES[name]
    plain, config = configured(case, kind)
    got = train(config.build(devices=jax.devices()[: math.prod(case.axes.values())]), packed=packed)
    check_equal(got, on_one_device(plain, packed=packed))
