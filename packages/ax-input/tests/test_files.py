import os
from pathlib import Path

import pytest
from ax_input import DataError, find_files, standard_library_paths


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_folders_are_walked_in_order_and_by_ending(tmp_path: Path) -> None:
    names = ["b.txt", "a/z.PY", "a/b.jsonl.gz", "B.md", "c.parquet", "d.jsonl"]
    for name in names:
        write(tmp_path / name)
    for name in ["x.bin", ".hidden.txt", ".git/config.txt", "__pycache__/x.py", "notes.gz"]:
        write(tmp_path / name)
    found = [os.path.relpath(str(path), tmp_path) for path in find_files([tmp_path]).paths]
    assert found == ["B.md", "b.txt", "c.parquet", "d.jsonl", "a/b.jsonl.gz", "a/z.PY"]


def test_named_files_keep_their_order_and_any_ending(tmp_path: Path) -> None:
    second, first = write(tmp_path / "2.rst"), write(tmp_path / "1.txt")
    assert find_files([second, first]).paths == (second, first)


def test_a_file_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt")
    assert find_files([file, tmp_path, str(tmp_path / ".." / tmp_path.name / "a.txt")]).paths == (file,)


def test_empty_files_are_listed_apart(tmp_path: Path) -> None:
    empty, file = write(tmp_path / "__init__.py", ""), write(tmp_path / "a.py")
    files = find_files([tmp_path])
    assert (files.paths, files.empty) == ((file,), (empty,))
    assert find_files([empty]).paths == (empty,)  # named, so to be read and found empty


def test_missing_path_names_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "corpus.txt")
    with pytest.raises(DataError, match=r"corpsu\.txt: no such file or folder.*near it: corpus\.txt"):
        find_files([tmp_path / "corpsu.txt"])
    with pytest.raises(DataError, match="no such file or folder"):
        find_files([tmp_path / "nowhere" / "a.txt"])


def test_folder_without_text(tmp_path: Path) -> None:
    write(tmp_path / "x.bin")
    with pytest.raises(DataError, match=r"no files that end in \.txt \.md \.py \.jsonl \.jsonl\.gz \.parquet"):
        find_files([tmp_path])
    write(tmp_path / "__init__.py", "")
    with pytest.raises(DataError, match="1 empty ones aside"):
        find_files([tmp_path])


def test_standard_library() -> None:
    paths = standard_library_paths()
    assert paths == standard_library_paths()
    names = {path.name for path in paths}
    assert {"argparse.py", "dataclasses.py", "decoder.py"} <= names
    excluded = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
    assert not [path for path in paths if excluded & set(path.parts[len(paths[0].parent.parts) :])]
    assert sum(path.stat().st_size for path in paths) > 5_000_000
