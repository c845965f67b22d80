import gzip
import importlib.util
import io
import json
import pickle
import sys
from pathlib import Path

import fsspec  # type: ignore[import-untyped]  # ships no types
import pyarrow  # type: ignore[import-untyped]  # ships no types
import pyarrow.feather  # type: ignore[import-untyped]  # ships no types
import pyarrow.ipc  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet  # type: ignore[import-untyped]  # ships no types
import pytest
from array_record.python.array_record_module import ArrayRecordWriter  # type: ignore[import-untyped]  # ships no types
from ax_input import (
    ArrayRecordSource,
    ArrowSource,
    BadRecordError,
    DataError,
    Document,
    JsonlSource,
    MemorySource,
    ParquetSource,
    Reason,
    Record,
    TextSource,
    find_files,
    open_records,
    open_source,
)
from ax_input.testing import check_source


def write_parquet(path: Path, columns: dict[str, object], *, row_group_size: int = 2) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
    return path


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffgrün\r\n".encode())
    source = open_source(path)
    assert isinstance(open_records(path), TextSource)
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
    assert isinstance(open_records(path), JsonlSource)
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
    assert isinstance(open_records(path), ParquetSource)
    check_source(source)
    assert [source[i] for i in range(len(source))] == [Document(t, str(path), i) for i, t in enumerate(texts, 1)]
    with pytest.raises(IndexError):
        source[7]


def test_columns_of_tables(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"id": [1, 2], "body": ["a", "b"], "tools": ["x", "y"]})
    assert open_records(path)[1].fields == {"id": 2, "body": "b", "tools": "y"}
    assert open_records(path, columns=("body", "tools", "absent"))[1].fields == {"body": "b", "tools": "y"}
    with pytest.raises(BadRecordError, match="no field 'absent'"):
        open_records(path, columns=("absent", "body"))


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
        ("a.jsonl", b"[1]", 1, Reason.WRONG_TYPE, "wanted an object with named fields, got list"),
        ("a.jsonl", b'{"text": null}', 1, Reason.WRONG_TYPE, "holds NoneType, wanted a string"),
        ("a.jsonl", b'{"text": ""}', 1, Reason.EMPTY_TEXT, "is empty"),
        ("a.jsonl", b'{"body": "x", "id": 1}', 1, Reason.MISSING_FIELD, "no field 'text'; there are: 'body', 'id'"),
        ("a.jsonl", b"{}", 1, Reason.MISSING_FIELD, "there are: none"),
        ("a.jsonl.gz", b"no gzip", None, Reason.CORRUPT, "not a complete gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}' * 99)[:-9], None, Reason.CORRUPT, "not a complete gzip file"),
        ("a.parquet", b"", None, Reason.CORRUPT, "not a Parquet file"),
        ("a.parquet", b"PAR1 nonsense PAR1", None, Reason.CORRUPT, "not a Parquet file"),
        ("a.arrow", b"nonsense", None, Reason.CORRUPT, "not an Arrow file"),
        ("a.arrow", b"ARROW1 nonsense ARROW1", None, Reason.CORRUPT, "not an Arrow file"),
        ("a.arrayrecord", b"nonsense", None, Reason.CORRUPT, "not an ArrayRecord file"),
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


def write_array_record(path: Path, records: list[bytes]) -> Path:
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in records:
        writer.write(record)
    writer.close()
    return path


def test_array_record(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "a.arrayrecord", ["grün".encode(), b"\xff", b"", b"last"])
    source = open_source(path)
    assert (len(source), source[3], source[0].text) == (4, Document("last", str(path), 4), "grün")
    for index, reason in [(1, Reason.UNDECODABLE), (2, Reason.EMPTY_TEXT)]:
        with pytest.raises(BadRecordError, match=f"a.arrayrecord:{index + 1}: {reason}"):
            source[index]
    with pytest.raises(IndexError):
        source[4]
    copied = pickle.loads(pickle.dumps(open_records(path)))
    assert copied[3] == Record({"text": "last"}, str(path), 4)
    with pytest.raises(BadRecordError, match="no records"):
        open_source(write_array_record(tmp_path / "b.arrayrecord", []))
    with pytest.raises(BadRecordError, match="unreadable"):
        open_source(tmp_path / "gone.arrayrecord")


def test_array_record_of_other_bytes(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "a.arrayrecord", [b'{"messages": []}', b"{"])
    source = ArrayRecordSource(path, parse=json.loads)
    assert source[0].fields == {"messages": []}
    with pytest.raises(BadRecordError, match=r"a\.arrayrecord:2: corrupt"):
        source[1]


def test_a_flipped_bit_of_an_array_record_is_seen(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "a.arrayrecord", [bytes(range(250)) * 100, b"fine"])
    data = bytearray(path.read_bytes())
    data[data.index(bytes(range(250)))] ^= 1
    path.write_bytes(data)
    source = ArrayRecordSource(path, parse=lambda data: {"data": data})
    with pytest.raises(BadRecordError, match=r"a\.arrayrecord:1: corrupt"):
        source[0]
    assert source[1].fields == {"data": b"fine"}


def save_to_disk(folder: Path, tables: list[pyarrow.Table]) -> Path:
    """As ``datasets.Dataset.save_to_disk`` does: Arrow streams, and two files that tell of them."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(tables):05}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pyarrow.ipc.new_stream(folder / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_hugging_face_dataset_on_disk(tmp_path: Path) -> None:
    tables = [pyarrow.table({"text": [f"{n}.{i}" for i in range(3)], "id": [0, 1, 2]}) for n in range(2)]
    folder = save_to_disk(tmp_path / "dataset", tables)
    files = find_files([folder]).paths
    sources = [open_source(file) for file in files]
    assert [source[i].text for source in sources for i in range(len(source))] == [
        "0.0",
        "0.1",
        "0.2",
        "1.0",
        "1.1",
        "1.2",
    ]
    records = open_records(files[1])
    assert isinstance(records, ArrowSource)
    check_source(records)
    assert records[2] == Record({"text": "1.2", "id": 2}, str(files[1]), 3)
    with pytest.raises(BadRecordError, match="no field 'body'; there are: 'text', 'id'"):
        open_source(files[0], text_field="body")


def test_arrow_file_format(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["one", "two"]})
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    assert open_source(tmp_path / "a.arrow")[1].text == "two"


def test_splits_of_a_dataset_are_not_mixed(tmp_path: Path) -> None:
    for split in ("train", "test"):
        save_to_disk(tmp_path / "dataset" / split, [pyarrow.table({"text": [split]})])
    (tmp_path / "dataset" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(DataError, match=r"several splits; choose: .*dataset/train, .*dataset/test"):
        find_files([tmp_path / "dataset"])
    assert [file.name for file in find_files([tmp_path / "dataset" / "train"]).paths] == ["data-00000-of-00001.arrow"]


def test_values_in_memory() -> None:
    source = MemorySource(["one", {"body": "two"}], name="mine")
    check_source(source)
    assert [source[0], source[1]] == [Record({"text": "one"}, "mine", 1), Record({"body": "two"}, "mine", 2)]
    with pytest.raises(BadRecordError, match="mine:2: missing field"):
        source[1].text("text")


def test_urls_of_files_here(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.md").write_text("")
    (file,) = find_files([f"file://{tmp_path}/a.txt"]).paths
    assert open_source(file)[0] == Document("one", f"file://{tmp_path}/a.txt")
    found = find_files([f"file://{tmp_path}"])
    assert ([file.name for file in found.paths], [file.name for file in found.empty]) == (["a.txt"], ["b.md"])


def test_remote_files() -> None:
    memory = fsspec.filesystem("memory")
    table = pyarrow.table({"text": ["a row"]})
    files = {"a.txt": b"one", "b.jsonl": b'{"text": "two"}', "c/d.jsonl.gz": gzip.compress(b'{"text": "three"}')}
    for ending, write in ((".parquet", pyarrow.parquet.write_table), (".arrow", pyarrow.feather.write_feather)):
        buffer = io.BytesIO()
        write(table, buffer)
        files[f"e{ending}"] = buffer.getvalue()
    for name, data in {**files, ".hidden.txt": b"no", "x.bin": b"no"}.items():
        memory.pipe(f"/corpus/{name}", data)
    found = find_files(["memory://corpus", "memory://corpus/a.txt"])
    assert [str(file) for file in found.paths] == [f"memory:///corpus/{name}" for name in sorted(files)]
    assert [open_source(file)[0].text for file in found.paths] == ["one", "two", "three", "a row", "a row"]
    with pytest.raises(BadRecordError, match=r"memory:///corpus/a\.txt: missing field"):
        open_records(found.paths[0])[0].text("body")
    assert [file.name for file in find_files(["memory://corpus/x.bin"]).paths] == ["x.bin"]
    with pytest.raises(DataError, match="memory://nowhere: no such file or folder"):
        find_files(["memory://nowhere"])
    with pytest.raises(DataError, match="can't be reached"):
        find_files(["nosuch://x"])
    memory.pipe("/corpus/a.arrayrecord", b"x")
    with pytest.raises(DataError, match="copy the file to this machine"):
        open_source(find_files(["memory://corpus/a.arrayrecord"]).paths[0])
