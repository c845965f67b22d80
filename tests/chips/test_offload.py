"""What the optimizer remembers lies in the host's memory, as the TPU's compiler sees it: a chip holds its parameters, and little more."""

from __future__ import annotations

import jax
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for, setting
from ax_mesh import accelerator_group
from ax_recipes import Experiment, effective
from ax_recipes._aot import lower
from ax_trainer import Compact, Learner, Offload

ADAM = config_for(optax.scale_by_adam)(b1=0.9, b2=0.95)


def compiled(config: Experiment.Config) -> jax.stages.CompiledMemoryStats:
    memory = lower(config, accelerator_group("v5e-8")).compile().memory_analysis()
    assert memory is not None
    return memory


def test_moments_are_held_by_the_host() -> None:
    plain = effective("tiny", on="v5e-8")
    on_chip, on_host = compiled(plain), compiled(setting(Learner, rule=Offload.Config(rule=ADAM))(plain))
    moved = on_host.host_argument_size_in_bytes
    assert on_chip.host_argument_size_in_bytes == 0
    assert moved > 0.9 * (on_chip.argument_size_in_bytes - on_host.argument_size_in_bytes) > 0
    assert on_host.argument_size_in_bytes < 0.45 * on_chip.argument_size_in_bytes, "of three, one is left"
    assert on_host.host_alias_size_in_bytes > 0.9 * moved, "the old state's memory is the new one's there too"


def test_packed_on_the_host_takes_half_of_the_way() -> None:
    plain = effective("tiny", on="v5e-8")
    whole, packed = (
        compiled(setting(Learner, rule=Offload.Config(rule=each))(plain)).host_argument_size_in_bytes
        for each in (ADAM, Compact.Config(rule=ADAM))
    )
    assert packed < 0.55 * whole
