from pathlib import Path

import pytest
from ax_input import BadRecordError, BadRecordLog, DataError, find_files, read_documents


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    contents = {
        "a.txt": b"first",
        "b.txt": b"\xff",
        "c.jsonl": b'{"text": "second"}\n{"text": \n{"other": 1}\n{"text": "third"}\n' + b"{}\n" * 9,
        "d.jsonl": b"\n",
        "e.txt": b"last",
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return sorted(tmp_path.iterdir())


def test_skip_counts_and_reports(files: list[Path]) -> None:
    log = BadRecordLog("skip")
    documents = list(read_documents(files, text_field="text", bad_records=log))
    assert [document.text for document in documents] == ["first", "second", "third", "last"]
    assert log.counts == {"corrupt": 1, "empty file": 1, "missing field": 10, "undecodable": 1}
    assert len(log.examples) == BadRecordLog.MAX_EXAMPLES
    assert "b.txt:1: undecodable" in log.examples[0]
    assert "c.jsonl:2: corrupt" in log.examples[1]


def test_error_stops_at_the_first_and_tells_of_skip(files: list[Path]) -> None:
    documents = read_documents(files, text_field="text", bad_records=BadRecordLog("error"))
    assert next(documents).text == "first"
    with pytest.raises(BadRecordError, match=r"b\.txt:1: undecodable") as caught:
        next(documents)
    assert 'on_bad_record="skip"' in caught.value.__notes__[0]


def test_unknown_policy() -> None:
    with pytest.raises(DataError, match="""wanted "error" or "skip", got 'ignore'"""):
        BadRecordLog("ignore")


def test_progress_ends_at_the_total(files: list[Path], tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text('{"text": "x"}\n' * 1000)
    calls: list[tuple[int, int]] = []
    log = BadRecordLog("skip")
    paths = [*files, many]
    list(read_documents(paths, text_field="text", bad_records=log, on_progress=lambda *call: calls.append(call)))
    total = sum(path.stat().st_size for path in paths)
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) == len(paths) + 1000 // 256


def test_a_broken_link_in_a_folder_is_a_bad_record(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone.txt")
    (tmp_path / "b.txt").write_text("here")
    log = BadRecordLog("skip")
    documents = list(read_documents(find_files([tmp_path]).paths, text_field="text", bad_records=log))
    assert [document.text for document in documents] == ["here"]
    assert log.counts == {"unreadable": 1}
