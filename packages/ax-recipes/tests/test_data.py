"""``ax data``: a corpus prepared, shown, trained on by config; and what is in a step's batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ax_config import dumps, override
from ax_config.overrides import assignment
from ax_input import ByteTokenizer, DataError, Mixture, TextInput
from ax_recipes import llama
from ax_recipes._data import with_data, without_steps
from ax_recipes._experiment import Experiment, ExperimentError
from ax_recipes.cli import main
from ax_recipes.cli._data_which import batches_before
from ax_runtime.agent import JsonlSink

TEXTS = [f"{i} says {'ha ' * (i % 30)}" for i in range(200)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + "broken\n")
    return file


def told(
    *arguments: str | Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, list[str]]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.argv", ["ax", "data", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    lines = (captured.out + captured.err).splitlines()
    return int(ended.value.code or 0), [line for line in lines if line.strip()]


def small(*paths: str | Path) -> Experiment.Config:
    settings = ("seq_length=32", "batch_size=4", "seed=5", "on_bad_record=skip")
    config = llama.tiny(num_steps=3)
    return with_data(
        override(config, [assignment(f"input.{text}", "--set") for text in settings]), list(map(str, paths))
    )


def test_prepare_show_and_train_on_it(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "prepared"
    prepare = ("prepare", corpus, "--out", out, "--jobs", "1")
    code, lines = told(*prepare, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert lines[0].startswith(f"ax: {corpus}:201: corrupt: not JSON")
    assert "skip" in lines[1]
    code, lines = told(*prepare, "--on-bad-record", "skip", capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    assert lines[0].startswith("200 documents, ")
    assert lines[0].endswith("left out 1: 1 corrupt")
    assert f"train on it: ax train --data {out}" in lines
    code, lines = told("show", out, "--documents", "2", "--verify", capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    shown = {line.split()[0]: line.split(None, 1)[1].strip() for line in lines if line.strip()}
    assert shown["documents"] == "200"
    assert shown["arrays"] == "tokens uint16"
    assert shown["left"].split() == ["out", "1"]
    assert any(f"{corpus}:200, {len(TEXTS[199])} tokens" in line for line in lines)
    assert TEXTS[199].strip() in " ".join(lines)

    (shard,) = out.glob("shard-*")
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b"s\0a\0y\0s\0", b"s\0a\0y\0?\0", 1))
    code, lines = told("show", out, "--verify", capsys=capsys, monkeypatch=monkeypatch)
    assert (code, "corrupt" in lines[0]) == (2, True)
    shard.write_bytes(whole)

    config = small(out)
    assert isinstance(config.input, Mixture.Config)
    data = config.build().read()
    batch = next(data.train())
    assert batch["tokens"].shape == (4, 32)
    assert " says ha ha" in ByteTokenizer().decode(batch["tokens"])
    # Both ways the same documents are dealt out, with text beside them too.
    beside = tmp_path / "more.txt"
    beside.write_text("more of it\n" * 50)
    both = small(out, beside)
    assert isinstance(both.input, Mixture.Config)
    assert list(both.input.sources) == ["prepared", "text"]
    assert both.tokenizer.build().vocab_size == 257
    assert isinstance(small(beside).input, TextInput.Config)


def test_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chats = tmp_path / "chats.jsonl"
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    chats.write_text((json.dumps({"turns": messages}) + "\n") * 40)
    out = tmp_path / "prepared"
    chat = ("--kind", "chat", "--field", "turns", "--jobs", "1")
    assert told("prepare", chats, "--out", out, *chat, capsys=capsys, monkeypatch=monkeypatch)[0] == 0
    config = override(small(out), [assignment("input.sources.prepared.holdout_fraction=0.0", "--set")])
    targets = next(config.build().read().train())["targets"]
    assert set(ByteTokenizer().decode(targets)) <= set("Hello!<|im_end|>")
    code, lines = told("prepare", chats, "--out", out, "--kind", "poems", capsys=capsys, monkeypatch=monkeypatch)
    assert (code, lines[0]) == (2, "ax: --kind: wanted text, chat or preference, got 'poems'")


def test_which_documents_are_in_a_batch(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(corpus)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.txt").write_text(dumps(config))
    stream = config.build().read().train()
    for step in (1, 2, 70):
        while step > 1 and json.loads(stream.get_state())["next"] < step - 1:
            next(stream)
        batch = next(stream)
        code, lines = told("which", run, "--step", str(step), "--text", capsys=capsys, monkeypatch=monkeypatch)
        assert code == 0
        assert lines[0] == f"step {step} of {run}: batch {step - 1}"
        texts = ["".join(map(eval, part)) for part in _rows(lines[1:])]
        assert texts == [ByteTokenizer().decode(row) for row in batch["targets"]]
        origins = [line.split()[0] for line in lines if "corpus.jsonl:" in line]
        assert all(1 <= int(origin.rpartition(":")[2]) <= 200 for origin in origins)
    assert told("which", tmp_path, "--step", "1", capsys=capsys, monkeypatch=monkeypatch)[0] == 2


def _rows(lines: list[str]) -> list[list[str]]:
    """The quoted texts under each row."""
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("row "):
            rows.append([])
        elif line.startswith("    "):
            rows[-1].append(line.strip())
    return rows


def test_data_goes_on_when_a_run_goes_back(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    assert [batches_before(metrics, step) for step in (1, 7)] == [0, 6]
    sink = JsonlSink(metrics)
    # At step 10 back to 6: step 7 has batch 10. At (new) step 9, which had batch 12, back to 6 again: step 7 has batch 13.
    for begin, end, first in [(10, 6, 10), (9, 6, 13)]:
        sink.write(end, "events", {"rewind": 1.0, "from_step": float(begin), "to_step": float(end)})
        assert [batches_before(metrics, step) for step in (6, 7, 8)] == [5, first, first + 1]
    # And at step 8, which had batch 14, to the beginning.
    sink.write(0, "events", {"rewind": 1.0, "from_step": 8.0, "to_step": 0.0})
    assert [batches_before(metrics, step) for step in (1, 2)] == [15, 16]


def test_steps_are_left_out(corpus: Path) -> None:
    whole = small(corpus)
    stream = whole.build().read().train()
    batches = [next(stream) for _ in range(8)]
    config = without_steps(whole, ["3:5", "6:7"])
    found = config.build().read().train()
    for step in (1, 2, 5, 7, 8):
        assert (next(found)["tokens"] == batches[step - 1]["tokens"]).all()
    for wrong in ("3", "5:3", "0:2", "3:3", "a:b"):
        with pytest.raises(ExperimentError, match="wanted FROM:TO, such as 300:310"):
            without_steps(whole, [wrong])


def test_an_unfinished_corpus_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "ax-plan.json").write_text("{}")
    with pytest.raises(DataError, match="a prepared corpus, finished or not"):
        small(tmp_path).build().read()
