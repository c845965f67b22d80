"""The proof by types: mypy accepts everything in this folder, refuses what doesn't fit, and no seam is left out."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from . import fits

HERE = Path(__file__).parent


class Misfit(NamedTuple):
    """A class that lacks one thing, and what mypy has to say of it."""

    protocol: str
    members: str
    complaint: str


MISFITS = {
    "positions_in_text": Misfit(
        "ax_trainer.protocols.BatchSource",
        """
        def __next__(self) -> dict[str, np.ndarray]: ...
        def get_state(self) -> str: ...
        def set_state(self, state: str, /) -> None: ...
        """,
        "def get_state(self) -> str",
    ),
    "batches_without_position": Misfit(
        "ax_trainer.protocols.BatchSource",
        "def __next__(self) -> dict[str, np.ndarray]: ...",
        "get_state",
    ),
    "sink_without_rewind": Misfit(
        "ax_trainer.protocols.MetricSink",
        """
        def write(self, step: int, name: str, values: Mapping[str, float], /) -> None: ...
        def close(self) -> None: ...
        """,
        "rewind",
    ),
    "loss_without_key": Misfit(
        "ax_trainer.protocols.Model[object]",
        """
        def specs(self) -> object: ...
        def init(self, key: jax.Array, /) -> object: ...
        def loss(
            self, params: object, batch: Mapping[str, jax.Array], /, *, train: bool
        ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]: ...
        """,
        "loss",
    ),
    "loss_of_other_parameters": Misfit(
        "ax_trainer.protocols.Model[dict[str, jax.Array]]",
        """
        def specs(self) -> object: ...
        def init(self, key: jax.Array, /) -> dict[str, jax.Array]: ...
        def loss(
            self, params: list[jax.Array], batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
        ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]: ...
        """,
        "list[Array]",
    ),
    "partitioner_of_named_arguments": Misfit(
        "ax_trainer.protocols.Partitioner",
        """
        def shardings(self, *, specs: object) -> object: ...
        def replicated(self) -> jax.sharding.Sharding: ...
        def put(self, batch: Mapping[str, np.ndarray], /) -> dict[str, jax.Array]: ...
        def activate(self) -> AbstractContextManager[None]: ...
        """,
        "shardings",
    ),
    "restore_without_blobs": Misfit(
        "ax_trainer.protocols.Checkpointer",
        """
        def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None: ...
        def restore(self, step: int, abstract: T, /) -> T: ...
        def latest(self) -> int | None: ...
        def wait(self) -> None: ...
        """,
        "restore",
    ),
    "stop_that_is_not_asked_of_a_step": Misfit(
        "ax_trainer.protocols.StopSignal", "def should_stop(self) -> bool: ...", "should_stop"
    ),
    "job_in_a_folder_of_text": Misfit(
        "ax_runtime.protocols.Job",
        "def run(self, folder: str, stop: object, /) -> None: ...",
        "run(self, str, object, /)",
    ),
    "sharder_without_shard_map": Misfit(
        "ax_layers.protocols.Sharder",
        "def constrain(self, x: jax.Array, axes: Sequence[str | None], /) -> jax.Array: ...",
        "shard_map",
    ),
    "attention_without_positions": Misfit(
        "ax_layers.protocols.AttentionFn",
        """
        def __call__(
            self, query: jax.Array, key: jax.Array, value: jax.Array, /, *, scale: float, causal: bool
        ) -> jax.Array: ...
        """,
        "query_positions",
    ),
    "cross_entropy_without_log_z": Misfit(
        "ax_layers.protocols.CrossEntropyFn",
        """
        def __call__(
            self, hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
        ) -> jax.Array: ...
        """,
        "tuple[Array, Array]",
    ),
    "cache_that_forgets_its_state": Misfit(
        "ax_layers.protocols.KVCache[jax.Array]",
        """
        def init(
            self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
        ) -> jax.Array: ...
        def update(
            self, state: jax.Array, key: jax.Array, value: jax.Array, positions: jax.Array, /
        ) -> tuple[jax.Array, jax.Array, jax.Array]: ...
        """,
        "update",
    ),
    "spec_without_axes": Misfit(
        "ax_mesh.protocols.HasAxes",
        """
        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> np.dtype: ...
        """,
        "axes",
    ),
    "tokenizer_of_lists": Misfit(
        "ax_input.protocols.Tokenizer",
        """
        @property
        def vocab_size(self) -> int: ...
        @property
        def eos_id(self) -> int: ...
        def encode(self, text: str, /) -> list[int]: ...
        def decode(self, ids: Sequence[int] | np.ndarray, /) -> str: ...
        """,
        "list[int]",
    ),
    "source_without_length": Misfit(
        "ax_input.protocols.Source[str]", "def __getitem__(self, index: int, /) -> str: ...", "__len__"
    ),
    "decoder_that_returns_no_cache": Misfit(
        "ax_inference.protocols.Decoder[object, jax.Array]",
        """
        def init_cache(self, batch_size: int, max_length: int, /) -> jax.Array: ...
        def prefill(
            self, params: object, tokens: jax.Array, lengths: jax.Array, cache: jax.Array, /
        ) -> tuple[jax.Array, jax.Array]: ...
        def decode(self, params: object, tokens: jax.Array, cache: jax.Array, /) -> jax.Array: ...
        """,
        "decode",
    ),
    "config_of_something_else": Misfit(
        "ax_config.protocols.Buildable[int]", "def build(self, **runtime: object) -> str: ...", "-> str"
    ),
    "loop_without_outcome": Misfit("ax_recipes.protocols.Loop", "def run(self) -> None: ...", "Outcome"),
}


def _module(misfit: Misfit) -> str:
    module, _, name = misfit.protocol.partition(".protocols.")
    members = inspect.cleandoc(misfit.members).replace("\n", "\n    ")
    return f"""
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import jax
import numpy as np
from {module}.protocols import {name.partition("[")[0]}

T = TypeVar("T")


class Wrong(Protocol):
    {members}


def table(wrong: Wrong) -> Mapping[str, Callable[[], {name}]]:
    return {{"an entry as in fits.py": lambda: wrong}}
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Mapping[str, str]:
    """What mypy says of each file, by the file's name; of this folder and of the misfits in one run."""
    away = tmp_path_factory.mktemp("misfits")
    for name, misfit in MISFITS.items():
        (away / f"{name}.py").write_text(_module(misfit))
    options = ["--strict", "--explicit-package-bases", "--namespace-packages", "--no-error-summary"]
    settings = f"--config-file={pytestconfig.rootpath / 'pyproject.toml'}"
    # Where our packages aren't installed, mypy has to be told where pytest found them.
    path = os.pathsep.join([str(pytestconfig.rootpath), str(away), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, settings, f"--cache-dir={away / 'cache'}", str(HERE), str(away)],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        file = Path(line.partition(":")[0]).name
        said[file] = said.get(file, "") + line + "\n"
    return said


def test_everything_fits(mypy: Mapping[str, str]) -> None:
    complaints = {file: said for file, said in mypy.items() if file.removesuffix(".py") not in MISFITS}
    assert not complaints, "".join(complaints.values())


@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_is_refused(name: str, mypy: Mapping[str, str]) -> None:
    said = mypy.get(f"{name}.py", "")
    assert set(re.findall(r"error: .*\[([\w-]+)\]$", said, re.MULTILINE)) == {"dict-item", "return-value"}, said
    assert MISFITS[name].complaint in said, said


def test_every_seam_of_every_package_is_in_the_table() -> None:
    named = {word for kind in fits.__annotations__.values() for word in re.findall(r"\w+", kind)}
    for package in sorted(module.name for module in pkgutil.iter_modules() if module.name.startswith("ax_")):
        if importlib.util.find_spec(f"{package}.protocols") is None:
            continue
        owner = importlib.import_module(f"{package}.protocols")
        seams = {
            n for n, x in vars(owner).items() if getattr(x, "_is_protocol", False) and x.__module__ == owner.__name__
        }
        assert seams <= named, f"{package} owns seams that nobody in fits.py is known to fit: {sorted(seams - named)}"
