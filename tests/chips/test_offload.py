"""What the optimizer remembers lies in the host's memory, as the TPU's compiler sees it: a chip holds its parameters, and little more."""

from __future__ import annotations

from typing import NamedTuple

import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for, setting
from ax_config.protocols import Buildable
from ax_mesh import accelerator_group
from ax_recipes import effective
from ax_recipes._aot import lower
from ax_trainer import Compact, Learner, Offload
from ax_trainer.protocols import Optimizer, SupportsSpecs

ADAM = config_for(optax.scale_by_adam)(b1=0.9, b2=0.95)


class Held(NamedTuple):
    """Bytes of a step's arguments, for each chip."""

    on_chip: int
    on_host: int
    on_host_again: int
    """Of what it is given, what becomes a part of the next state in its place."""


def held(rule: Buildable[Optimizer] | Buildable[SupportsSpecs]) -> Held:
    """By the step of a small model with this rule."""
    config = setting(Learner, rule=rule)(effective("tiny", on="v5e-8"))
    memory = lower(config, accelerator_group("v5e-8")).compile().memory_analysis()
    assert memory is not None
    return Held(memory.argument_size_in_bytes, memory.host_argument_size_in_bytes, memory.host_alias_size_in_bytes)


def test_moments_are_held_by_the_host() -> None:
    whole, offloaded = held(ADAM), held(Offload.Config(rule=ADAM))
    packed = held(Offload.Config(rule=Compact.Config(rule=ADAM)))
    assert whole.on_host == 0
    assert offloaded.on_chip < 0.45 * whole.on_chip, "of three parts one is left"
    assert offloaded.on_host > 0.9 * (whole.on_chip - offloaded.on_chip)
    assert offloaded.on_host_again > 0.9 * offloaded.on_host
    assert packed.on_host < 0.55 * offloaded.on_host
