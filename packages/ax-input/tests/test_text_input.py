import time
from pathlib import Path
from typing import final

import numpy as np
import pytest
from ax_config import ConfigError
from ax_input import BadRecordError, BatchStream, ByteTokenizer, DataError, TextInput
from ax_input.testing import check_batch_stream, check_source


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for i in range(30):
        (tmp_path / f"{i:02}.txt").write_text(f"document {i}\n" * (i + 1))
    return tmp_path


def config(path: Path, **settings: object) -> TextInput.Config:
    return TextInput.Config(paths=(str(path),), seq_length=16, batch_size=4).clone(**settings)


def test_train_and_validation(corpus: Path) -> None:
    data = config(corpus, holdout_fraction=0.2).build()
    assert isinstance(data, TextInput)
    batch = next(data.train())
    assert sorted(batch) == ["targets", "tokens"]
    for value in batch.values():
        assert value.shape == (4, 16)
        assert value.dtype == np.int32
    assert data.report.num_documents == 30
    assert data.report.num_bytes == sum(path.stat().st_size for path in corpus.iterdir()) == data.report.num_tokens
    assert "30 documents" in str(data.report)

    targets = np.concatenate([batch["targets"].ravel() for batch in data.validation()])
    held_out = data.tokenizer.decode(targets[targets >= 0])
    assert data.bytes_per_token == len(held_out.encode()) / (targets >= 0).sum()
    numbers = {line for line in held_out.splitlines() if line}
    every = data.train_rows.gather(np.arange(len(data.train_rows)))["tokens"].ravel()
    kept = set(data.tokenizer.decode(every).splitlines())
    assert numbers
    assert not numbers & kept
    assert len(numbers | kept) == 30


def test_validation_can_be_repeated_and_limited(corpus: Path) -> None:
    data = config(corpus, holdout_fraction=0.5).build()
    whole = data.validation()
    check_source(whole)
    assert [b["tokens"].tolist() for b in whole] == [b["tokens"].tolist() for b in whole]
    assert len(list(data.validation(max_batches=2))) == 2


def test_streams_pass_the_kit(corpus: Path) -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> BatchStream:
        return config(corpus).build(shard_index=shard_index, shard_count=shard_count).train()

    check_batch_stream(make_stream, num_batches=4, shard_counts=(2, 4))


def test_shards_of_validation(corpus: Path) -> None:
    whole = config(corpus).build().validation()
    parts = [config(corpus).build(shard_index=i, shard_count=2).validation() for i in range(2)]
    for batch, *shards in zip(whole, *parts, strict=True):
        assert np.array_equal(batch["tokens"], np.concatenate([shard["tokens"] for shard in shards]))


def test_fingerprint_follows_content_and_split(corpus: Path) -> None:
    before = config(corpus).build().fingerprint
    assert config(corpus, batch_size=2, seq_length=8).build().fingerprint == before
    assert config(corpus, holdout_fraction=0.5).build().fingerprint != before
    (corpus / "00.txt").write_text("changed")
    assert config(corpus).build().fingerprint != before


def test_one_document_is_cut_in_two(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {i}\n" for i in range(500)))
    data = config(path, holdout_fraction=0.1).build()
    assert data.report.num_documents == 1
    assert data.validation_rows is not None
    places = data.validation_rows.index.num_places, data.train_rows.index.num_places
    assert sum(places) == path.stat().st_size + 2
    assert 0.08 < places[0] / sum(places) < 0.12


def test_nothing_held_out(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("x" * 500)
    data = config(path, holdout_fraction=0.0).build()
    assert data.bytes_per_token == 500 / 501
    with pytest.raises(DataError, match="nothing is held out"):
        data.validation()


def test_bad_records(corpus: Path) -> None:
    (corpus / "bad.jsonl").write_text('{"text": "good"}\n{"text": "bro\n')
    (corpus / "__init__.py").touch()
    with pytest.raises(BadRecordError, match=r"bad\.jsonl:2: corrupt"):
        config(corpus).build()
    report = config(corpus, on_bad_record="skip").build().report
    assert report.num_documents == 31
    assert report.bad_records == {"corrupt": 1, "empty file": 1}
    assert report.num_bad_records == 2
    assert any("bad.jsonl:2" in example for example in report.examples)
    assert "left out 2: 1 corrupt, 1 empty file" in str(report)


def test_empty_files_in_a_folder_stop_nothing(corpus: Path) -> None:
    (corpus / "__init__.py").touch()
    assert config(corpus).build().report.bad_records == {"empty file": 1}
    with pytest.raises(BadRecordError, match=r"__init__\.py: empty file"):
        config(corpus / "__init__.py").build()


def test_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="no documents in 1 files; 1 bad records"):
        config(tmp_path, on_bad_record="skip").build()


def test_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short\ntext\n")
    with pytest.raises(DataError, match="too little text to train on"):
        config(tmp_path).build().train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"holdout_fraction": 1.0}, "holdout_fraction: wanted"),
        ({"seq_length": 0}, "seq_length: wanted"),
        ({"batch_size": 0}, "batch_size: wanted"),
    ],
)
def test_wrong_settings_are_found_before_reading(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        config(tmp_path / "nowhere", **settings).build()


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        config(tmp_path / "nowhere").build()


def test_config_refuses_an_unknown_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_bad_record"):
        config(tmp_path, on_bad_record="ignore")


def test_progress(corpus: Path) -> None:
    calls: list[tuple[int, int]] = []
    report = config(corpus).build(on_progress=lambda done, total: calls.append((done, total))).report
    assert calls[-1] == (report.num_bytes, report.num_bytes)
    assert len(calls) == 30


@final
class Upside:
    """Bytes the other way round."""

    vocab_size = 257

    def __init__(self, eos_id: int) -> None:
        self.eos_id = eos_id

    def encode(self, text: str, /) -> np.ndarray:
        return (256 - ByteTokenizer().encode(text)).astype(np.int32)

    def decode(self, ids: object, /) -> str:
        array = np.asarray(ids)
        return ByteTokenizer().decode(256 - array[array > 0])


def test_another_tokenizer(corpus: Path) -> None:
    data = config(corpus).build(tokenizer=Upside(eos_id=0))
    assert data.train_rows[0]["tokens"][:2].tolist() == [0, 256 - ord("d")]
    assert data.tokenizer.decode(data.train_rows[0]["tokens"]).startswith("document")


def test_standard_library_by_default() -> None:
    start = time.perf_counter()
    data = TextInput.Config().build()
    assert time.perf_counter() - start < 30  # about 0.3 s on a quiet machine
    assert data.report.num_documents > 300
    assert not data.report.bad_records
    assert 0.9 < data.bytes_per_token < 1.0
