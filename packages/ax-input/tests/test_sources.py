import gzip
import importlib.util
import json
import pickle
import sys
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet  # type: ignore[import-untyped]  # ships no types
import pytest
from ax_input import BadRecordError, DataError, Document, JsonlSource, ParquetSource, Reason, TextSource, open_source
from ax_input.testing import check_source


def write_parquet(path: Path, columns: dict[str, object], *, row_group_size: int = 2) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
    return path


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffgrün\r\n".encode())
    source = open_source(path)
    assert isinstance(source, TextSource)
    check_source(source)
    assert [source[0]] == [Document("grün\r\n", str(path))]
    with pytest.raises(IndexError):
        source[1]


@pytest.mark.parametrize("name", ["a.md", "a.py", "LICENSE", "a.json"])
def test_other_endings_are_plain_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    assert open_source(tmp_path / name)[0].text == "{}"


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_jsonl(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    data = b'\xef\xbb\xbf{"text": "one"}\r\n\n  \n{"body": 1, "text": "\\u00fc\\ud83d\\ude42\\n"}\n'
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    source = open_source(path)
    assert isinstance(source, JsonlSource)
    check_source(source)
    assert [source[i] for i in range(len(source))] == [
        Document("one", str(path), 1),
        Document("ü🙂\n", str(path), 4),
    ]
    assert source[1].origin == f"{path}:4"


def test_parquet(tmp_path: Path) -> None:
    texts = [f"tëxt {i}" for i in range(7)]
    path = write_parquet(tmp_path / "a.parquet", {"id": list(range(7)), "body": texts})
    source = open_source(path, text_field="body")
    assert isinstance(source, ParquetSource)
    check_source(source)
    assert [source[i] for i in range(len(source))] == [Document(t, str(path), i) for i, t in enumerate(texts, 1)]
    with pytest.raises(IndexError):
        source[7]


@pytest.mark.parametrize(
    ("name", "data", "record", "reason", "message"),
    [
        ("a.txt", b"", None, Reason.EMPTY_FILE, "a.txt: empty file: 0 bytes"),
        ("a.txt", b"\xef\xbb\xbf", None, Reason.EMPTY_FILE, "byte order mark"),
        ("a.txt", b"one\ntwo\n\xff\n", 3, Reason.UNDECODABLE, "a.txt:3: undecodable: byte 0xff is not UTF-8"),
        ("a.jsonl", b"", None, Reason.EMPTY_FILE, "0 bytes"),
        ("a.jsonl", b"\n \n", None, Reason.EMPTY_FILE, "no records"),
        ("a.jsonl", b'\n{"text": "on', 2, Reason.CORRUPT, "a.jsonl:2: corrupt: not JSON: Unterminated string"),
        ("a.jsonl", b"[" * 200_000, 1, Reason.CORRUPT, "not JSON"),
        ("a.jsonl", b'{"text": "\xff"}', 1, Reason.UNDECODABLE, "a.jsonl:1"),
        ("a.jsonl", b'{"text": "a\\ud83d"}', 1, Reason.UNDECODABLE, "half a surrogate pair at character 1"),
        ("a.jsonl", b"[1]", 1, Reason.WRONG_TYPE, "wanted an object with the field 'text', got list"),
        ("a.jsonl", b'{"text": null}', 1, Reason.WRONG_TYPE, "holds NoneType, wanted a string"),
        ("a.jsonl", b'{"text": ""}', 1, Reason.EMPTY_TEXT, "is empty"),
        ("a.jsonl", b'{"body": "x", "id": 1}', 1, Reason.MISSING_FIELD, "no field 'text'; there are: 'body', 'id'"),
        ("a.jsonl", b"{}", 1, Reason.MISSING_FIELD, "there are: none"),
        ("a.jsonl.gz", b"no gzip", None, Reason.CORRUPT, "not a complete gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}' * 99)[:-9], None, Reason.CORRUPT, "not a complete gzip file"),
        ("a.parquet", b"", None, Reason.CORRUPT, "not a Parquet file"),
        ("a.parquet", b"PAR1 nonsense PAR1", None, Reason.CORRUPT, "not a Parquet file"),
    ],
)
def test_bad_records(tmp_path: Path, name: str, data: bytes, record: int | None, reason: Reason, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadRecordError) as caught:
        open_source(path)[0]
    error = caught.value
    assert (error.path, error.record, error.reason) == (str(path), record, reason)
    assert message in str(error)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_bad_parquet_records(tmp_path: Path) -> None:
    invalid = pyarrow.array([b"fine", b"\xff"], pyarrow.binary()).cast(pyarrow.string(), safe=False).view("string")
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x", "", None], "n": [1, 2, 3]})
    source = open_source(path)
    assert source[0].text == "x"
    for index, reason in [(1, Reason.EMPTY_TEXT), (2, Reason.WRONG_TYPE)]:
        with pytest.raises(BadRecordError, match=f"a.parquet:{index + 1}: {reason}"):
            source[index]
    with pytest.raises(BadRecordError, match="no field 'body'; there are: 'text', 'n'"):
        open_source(path, text_field="body")
    with pytest.raises(BadRecordError, match="holds int, wanted a string"):
        open_source(path, text_field="n")[0]
    with pytest.raises(BadRecordError, match="no rows in it"):
        open_source(write_parquet(tmp_path / "b.parquet", {"text": pyarrow.array([], "string")}))
    undecodable = open_source(write_parquet(tmp_path / "c.parquet", {"text": invalid}))
    assert undecodable[0].text == "fine"
    with pytest.raises(BadRecordError, match=r"c.parquet:2: undecodable"):
        undecodable[1]


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x"]})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'ax-input\[parquet\]'"):
        open_source(path)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(BadRecordError, match="unreadable: No such file"):
        open_source(tmp_path / "gone.txt")[0]
    with pytest.raises(BadRecordError, match="unreadable: Is a directory"):
        open_source(tmp_path)[0]


def test_large_jsonl_is_indexed_by_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i}"}) + "\n" for i in range(2000)))
    source = open_source(path)
    assert (len(source), source[1234].text, source[1234].record) == (2000, "1234", 1235)
