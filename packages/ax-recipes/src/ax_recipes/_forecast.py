"""What a recipe will take on an accelerator, known from compiling its step for it: does it fit, what does it send, how long.

``forecast`` compiles in a process of its own, for a compiler may run out of memory, or crash, and two makers' compilers need
not be on speaking terms. What goes wrong there is a forecast too, with its ``problem``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ax_config import get_at, override
from ax_config.overrides import assignment
from ax_config.selectors import select
from ax_layers import Remat
from ax_layers.protocols import LanguageModel

from ._catalogue import effective
from ._experiment import Experiment

_GIB = 2**30
_OUT_OF_MEMORY = (
    re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm"),
    re.compile(r"\(([\d.]+)([KMG])\) exceeds available HBM \(([\d.]+)([KMG])\)"),
)
"""What the TPU compiler says of a program that doesn't fit: needed, and there."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """One recipe on one accelerator. Bytes and FLOPs are of a step; what isn't known is None."""

    recipe: str
    on: str
    num_devices: int
    """As JAX counts them, over which the mesh is."""
    mesh: Mapping[str, int]
    remat: str
    num_microbatches: int
    model_flops: float
    """6 for each weight of a matmul that a token meets, attention in full; of all devices."""
    hbm_limit: float | None
    """Bytes that a device has."""
    hbm: float | None = None
    """Bytes that a device needs."""
    arguments: float | None = None
    temporaries: float | None = None
    host: float | None = None
    """Bytes of the host's memory, for each device."""
    program_flops: float | None = None
    """What is computed, again where it is rematerialised; of all devices. At least: kernels of a backend's own are left out, and
    loops that run as often as data says, those of attention by blocks, are counted once."""
    collectives: Mapping[str, float] = field(default_factory=dict)
    """Bytes that a device sends, by kind of collective."""
    compile_seconds: float | None = None
    lowered_only: bool = False
    """Nothing here compiles for this accelerator."""
    problem: str | None = None
    """Why there is no program."""

    @property
    def fits(self) -> bool | None:
        """Whether a device's memory suffices; None where that isn't known."""
        if self.hbm is None or self.hbm_limit is None:
            return None
        return self.hbm <= self.hbm_limit


def forecast(recipe: str, *, on: str, overrides: tuple[str, ...] = ()) -> Forecast:
    """Compile the step of ``recipe`` for an accelerator (``"v5e-256x4"``) that needn't be here, and say what it takes.

    Raises:
        NoMatchError: There is no such recipe or accelerator, or no rule for the one on the other.
    """
    plan = planned(recipe, on=on, overrides=overrides)
    found = subprocess.run(
        [sys.executable, "-m", "ax_recipes._forecast", recipe, on, *overrides],
        env={**os.environ, **NO_CHIPS},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 0:
        return replace(plan, **json.loads(found.stdout.splitlines()[-1]))
    return replace(plan, problem=f"the compiler's process ended with {found.returncode}: {cause(found.stderr)}")


NO_CHIPS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""Keeps the vendors' libraries from looking for hardware, and libtpu from locking what isn't there."""


def _config(recipe: str, on: str, overrides: tuple[str, ...]) -> Experiment.Config:
    return override(effective(recipe, on=on), [assignment(text, "--set") for text in overrides])


def planned(recipe: str, *, on: str, overrides: tuple[str, ...] = ()) -> Forecast:
    """What of a forecast is known before anything is compiled."""
    from ax_mesh import accelerator_group

    from ._aot import batch_shapes, described_mesh

    config = _config(recipe, on, overrides)
    group = accelerator_group(on)
    accelerator = group.accelerator
    model: LanguageModel = config.build().model
    num_rows, length = batch_shapes(config)["tokens"][0]
    return Forecast(
        recipe=recipe,
        on=on,
        num_devices=group.num_devices,
        mesh=described_mesh(config, group).axes,
        remat=_remat(config),
        num_microbatches=_num_microbatches(config),
        model_flops=num_rows * length * model.training_flops_per_token(length),
        hbm_limit=None if accelerator.hbm_gib is None else accelerator.hbm_gib * _GIB / accelerator.devices_per_chip,
    )


def _remat(config: Experiment.Config) -> str:
    """What is kept of a layer, in words."""
    found = [node for _, node in select(config, Remat) if isinstance(node, Remat.Config)]
    if not found:
        return "all"
    (remat, *_) = found
    words = [*remat.save, *(["matmuls"] if remat.save_matmuls else []), *(f"{name} (host)" for name in remat.offload)]
    return ", ".join(words) or "inputs"


def _num_microbatches(config: Experiment.Config) -> int:
    try:
        number = get_at(config, "trainer.num_microbatches")
    except AttributeError:  # another trainer
        return 1
    return number if isinstance(number, int) else 1


def _compiled(recipe: str, on: str, overrides: tuple[str, ...]) -> dict[str, object]:
    """The fields of a forecast that compiling tells."""
    import jax
    from ax_mesh import accelerator_group, compile_program
    from ax_trainer.protocols import SupportsCompilerOptions

    from ._aot import described_mesh, lower

    group = accelerator_group(on)
    config = _config(recipe, on, overrides)
    if group.accelerator.platform == "cpu":
        jax.config.update("jax_num_cpu_devices", group.num_devices)
    try:
        lowered = lower(config, group)
        if group.accelerator.platform == "neuron":
            return {"lowered_only": True}
        begun = time.perf_counter()
        mesh = described_mesh(config, group)
        options = mesh.compiler_options if isinstance(mesh, SupportsCompilerOptions) else None
        program = compile_program(lowered, mesh.axes, compiler_options=options)
    except Exception as error:
        return failed(error)
    sent: dict[str, float] = {}
    for each in program.collectives:
        sent[each.kind] = sent.get(each.kind, 0.0) + each.wire_bytes * each.times
    memory = program.memory
    return {
        "compile_seconds": time.perf_counter() - begun,
        # What the TPU compiler calls temporaries may be more than a program that it accepts can have; the peak is not.
        "hbm": memory.peak if group.accelerator.platform == "tpu" else memory.total,
        "arguments": memory.arguments,
        "temporaries": memory.temporaries,
        "host": memory.host,
        "program_flops": program.flops_per_device * group.num_devices,
        "collectives": sent,
    }


def cause(stderr: str) -> str:
    """The line of what a process said that tells why it died: a failed check or an uncaught error, else the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"Check fail|what\(\):|\bError\b|^F\d{4} ", line)]
    return (told or lines or ["it said nothing"])[-1]


def failed(error: Exception) -> dict[str, object]:
    """What an error of the compiler tells: how much memory would be needed, or just what it says."""
    text = str(error)
    found = next(filter(None, (pattern.search(text) for pattern in _OUT_OF_MEMORY)), None)
    if found is None:
        return {"problem": f"{type(error).__name__}: {text.strip().splitlines()[0]}"}
    needed, there = (float(found[i]) * 1024 ** ("KMG".index(found[i + 1]) + 1) for i in (1, 3))
    return {"hbm": needed, "hbm_limit": there}


def main() -> None:
    """Compile for one accelerator, and print what was found as a line of JSON."""
    recipe, on, *overrides = sys.argv[1:]
    print(json.dumps(_compiled(recipe, on, tuple(overrides))))


if __name__ == "__main__":
    main()
