"""A corpus prepared by the command, trained on, looked into, and a part of it left out on the way."""

from __future__ import annotations

import json

from command import SMALL, Ax
from history import losses


def test_from_text_to_steps_and_back(ax: Ax) -> None:
    texts = [f"In the year {year} there were {year * 7} of them.\n" * (year % 9 + 1) for year in range(600)]
    (ax.folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    told = ax.run("data", "prepare", "corpus.jsonl", "--out", "prepared", "--jobs", "2", "--shard-mb", "1").stdout
    assert told.startswith("600 documents, ")
    train = ("train", "--data", "prepared", *SMALL, "--run", "run")
    ax.run(*train, "--steps", "14")
    before = losses(ax.folder / "run")
    assert before[14, "train"]["loss"] < before[1, "train"]["loss"]
    ax.run(*train, "--steps", "21", "--skip-steps", "18:20")
    after = losses(ax.folder / "run")
    assert after[14, "train"] == before[14, "train"]
    assert (21, "train") in after
    step = ax.run("data", "which", "run", "--step", "18", "--text").stdout
    assert step.startswith("step 18 of run: batch 19\n")
    assert "corpus.jsonl:" in step
    assert "there were" in step
    ax.refuse(*train, "--steps", "28", "--skip-steps", "3:5", match="another stream of batches")
