"""Mistakes of the user: one clear message without a traceback, exit code 2, nothing lost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import SMALL, Ax
from history import losses, state_digest, steps


def test_data_that_is_not_there_or_not_text(ax: Ax) -> None:
    empty, binary = ax.folder / "empty.txt", ax.folder / "binary.txt"
    empty.touch()
    binary.write_bytes(b"text\n\xff\xfe\n" * 100)
    ax.refuse("train", "--data", "missing.txt", *SMALL, match="missing.txt")
    ax.refuse("train", "--data", "empty.txt", *SMALL, match="empty.txt.*empty")
    ax.refuse("train", "--data", "binary.txt", *SMALL, match="binary.txt.*undecodable")
    assert not (ax.folder / "runs").exists()


def test_a_corrupt_line_is_named_or_skipped_and_counted(ax: Ax) -> None:
    rows = [json.dumps({"text": f"row {i} of some text that is long enough to fill windows " * 20}) for i in range(40)]
    rows[16] = rows[16][:-5]
    Path(ax.folder / "rows.jsonl").write_text("\n".join(rows))
    message = ax.refuse("train", "--data", "rows.jsonl", "--steps", "2", *SMALL, match=r"rows\.jsonl:17: corrupt")
    assert "skip" in message
    result = ax.run("train", "--data", "rows.jsonl", "--steps", "2", *SMALL, "--on-bad-record", "skip")
    assert "1 bad record" in result.stdout or "1 corrupt" in result.stdout, result.stdout


def test_options_that_are_wrong(ax: Ax, small: Sequence[str]) -> None:
    ax.refuse(*small, "--recipe", "tinny", match="no recipe 'tinny'; did you mean tiny")
    ax.refuse(*small, "--set", "model.layers.num_layer=3", match=r"did you mean model\.layers\.num_layers")
    ax.refuse(*small, "--set", "model.dim=wide", match="model.dim wants int")
    ax.refuse(*small, "--set", "model.dim", match="expected path=value")
    ax.refuse(*small, "--steps", "none", match="steps")
    ax.refuse(*small, "--on-bad-record", "ignore", match="on_bad_record")
    ax.refuse("generate", "nowhere", match="nowhere.*ax train")
    assert not (ax.folder / "runs").exists()


def test_a_folder_that_belongs_to_another_run_or_to_nobody(ax: Ax, small: Sequence[str]) -> None:
    ax.run(*small, "--run", "mine")
    before = losses(ax.folder / "mine"), state_digest(ax.folder / "mine", 40)
    ax.refuse(*small, "--run", "mine", "--set", "model.dim=48", match="another config.*model.dim = 32.*model.dim = 48")
    ax.refuse(*small[:3], "--run", "mine", "--recipe", "llama-60m", match="another config")
    assert (losses(ax.folder / "mine"), state_digest(ax.folder / "mine", 40)) == before

    (ax.folder / "file").touch()
    ax.refuse(*small, "--run", "file", match="file")
    ax.refuse(*small, "--run", "/proc/nowhere", match="/proc/nowhere")


def test_other_data_in_the_same_folder(ax: Ax) -> None:
    text = ax.folder / "book.txt"
    text.write_text("\n".join(f"line {i} of a book" for i in range(4000)))
    options = ("train", "--data", "book.txt", "--steps", "3", *SMALL, "--run", "book")
    ax.run(*options)
    text.write_text("\n".join(f"verse {i} of a book" for i in range(4000)))
    ax.refuse(*options, "--steps", "6", match="another stream of batches.*data: was")


def test_a_full_disk_loses_nothing(ax: Ax, small: Sequence[str]) -> None:
    """The file size limit stands in for the disk's: writes fail with an error of the operating system."""
    ax.run(*small, "--run", "full")
    run = ax.folder / "full"
    before = losses(run), state_digest(run, 40)
    (ax.folder / "limit").mkdir()
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    (ax.folder / "limit" / "sitecustomize.py").write_text(limit)
    message = ax.refuse(
        *small,
        "--run",
        "full",
        "--steps",
        "80",
        match="",
        env={"PYTHONPATH": os.pathsep.join([str(ax.folder / "limit"), os.environ.get("PYTHONPATH", "")])},
    )
    assert "ile too large" in message or "size limit" in message, message
    assert steps(run)[-1] == 40
    assert state_digest(run, 40) == before[1]
    ax.run(*small, "--run", "full", "--steps", "80")
    after = losses(run)
    assert {line: after[line] for line in before[0]} == before[0]


@pytest.mark.parametrize("command", [("train", "--nonsense"), ("nonsense",)])
def test_unknown_options_are_refused(ax: Ax, command: Sequence[str]) -> None:
    ax.run(*command, code=2)
