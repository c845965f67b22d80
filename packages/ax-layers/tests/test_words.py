"""The package knows of no mesh, no device and no training loop: its source has no word for them."""

from __future__ import annotations

import re
from pathlib import Path

import ax_layers
import pytest

SOURCES = sorted(Path(ax_layers.__file__).parent.rglob("*.py"))
FORBIDDEN = {
    "a mesh axis": r"\b(fsdp|hsdp|mesh_axis|mesh_axes|PartitionSpec|NamedSharding)\b|(?-i:[\"'](data|tensor|pipeline|context)[\"'])",
    "a kind of device": r"\b(tpu|gpu|cuda|rocm|trainium|neuron|h100|v5p|v5e|default_backend|devices\(\))\b",
    "a trainer's word": r"\b(trainer|learning_rate|optax|adamw?|grad(ient)?_accumulation|checkpointer)\b",
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_word_of_what_is_outside(source: Path) -> None:
    for number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
        for what, pattern in FORBIDDEN.items():
            found = re.search(pattern, line, re.IGNORECASE)
            assert not found, f"{source.name}:{number} names {what}: {line.strip()}"
