import tempfile
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter  # type: ignore[import-untyped]  # ships no types
from ax_input._riegeli import NOWHERE, locate, mapped, raw
from hypothesis import given, settings
from hypothesis import strategies as st


def write(file: Path, records: list[bytes], options: str = "group_size:1,uncompressed") -> Path:
    writer = ArrayRecordWriter(str(file), options)
    for record in records:
        writer.write(record)
    writer.close()
    return file


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 5_000), st.integers(60_000, 200_000)), max_size=12),
    repetitive=st.booleans(),
    data=st.data(),
)
def test_any_part_of_what_is_located(sizes: list[int], repetitive: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(len(sizes))
    records = [bytes(size) if repetitive else rng.bytes(size) for size in sizes]
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder, "records"), records)
        places = list(locate(file, records))
        assert len(places) == len(records)
        # Only a record whose first bytes a block's header divides may not be found, and there are few blocks.
        assert places.count(NOWHERE) <= sum(sizes) / 2**16 + 1
        contents = mapped(file)
        for place, record in zip(places, records, strict=True):
            if place != NOWHERE:
                begin = data.draw(st.integers(0, len(record)))
                end = data.draw(st.integers(begin, len(record)))
                assert raw(contents, place, begin, end) == record[begin:end]
                assert raw(contents, place, 0, len(record)) == record


def test_nearly_all_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = [rng.bytes(int(size)) for size in rng.integers(1_000, 30_000, 400)]
    places = list(locate(write(tmp_path / "records", records), records))
    assert places.count(NOWHERE) < 4
    found = [place for place in places if place != NOWHERE]
    assert found == sorted(found)


@pytest.mark.parametrize("options", ["group_size:1,zstd:1", "group_size:1,brotli:1"])
def test_what_is_compressed_is_nowhere(tmp_path: Path, options: str) -> None:
    records = [bytes(range(256)) * 40] * 20
    assert set(locate(write(tmp_path / "records", records, options), records)) == {NOWHERE}
