"""Golden configs: what drifts is told, what is accepted is written, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ax_config import ConfigError, dumps, golden
from things import House, Room, house

pytest_plugins = ["pytester"]


def cottage() -> House.Config:
    return House.Config(rooms=(Room.Config(name="all in one"),))


CONFIGS: golden.Configs = {"house": house, "small/cottage": cottage}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    golden.write(CONFIGS, tmp_path, command="make goldens")
    assert golden.check(CONFIGS, tmp_path) == []
    yield tmp_path
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_file_is_the_text_under_a_line_that_says_how_to_accept(folder: Path) -> None:
    text = (folder / "small" / "cottage.txt").read_text()
    assert text == "# golden config; accept a change with: make goldens\n" + dumps(cottage())


def test_drift_is_told_as_a_diff_and_accepted_by_writing(folder: Path) -> None:
    higher: golden.Configs = {**CONFIGS, "house": lambda: house().clone(height=3.0)}
    [drift] = golden.check(higher, folder)
    assert drift.kind == "drifted"
    assert str(drift) == (f"house: differs from {folder / 'house.txt'}\n    the root\n      ~ height  2.5 → 3.0")
    assert "\x1b[33m" in drift.render(colour=True)
    assert golden.write(higher, folder, command="make goldens") == [drift]
    assert drift.render_accepted(colour=False).startswith(f"house: accepted {folder / 'house.txt'}\n    the root\n")
    assert golden.check(higher, folder) == []


def test_missing_and_stale_files(folder: Path) -> None:
    (folder / "notes.txt").write_text("milk\n")
    missing, stale = golden.check({"house": house, "new": cottage}, folder)
    assert (missing.name, missing.kind) == ("new", "missing")
    assert (stale.name, stale.kind) == ("small/cottage", "stale")
    golden.write({"house": house}, folder, command="make goldens")
    assert sorted(path.name for path in folder.iterdir()) == ["house.txt", "notes.txt"]


def test_a_file_that_was_not_changed_is_not_written(folder: Path) -> None:
    before = (folder / "house.txt").stat().st_ino
    assert golden.write(CONFIGS, folder, command="another command") == []
    assert (folder / "house.txt").stat().st_ino == before


def test_a_file_that_names_a_class_that_is_gone_still_gives_a_diff(folder: Path) -> None:
    file = folder / "small" / "cottage.txt"
    file.write_text(file.read_text().replace("things:Room.Config", "things:Chamber.Config"))
    [drift] = golden.check(CONFIGS, folder)
    assert [str(change) for change in drift.changes] == [
        "~ rooms[0] = new things:Chamber.Config → new things:Room.Config"
    ]


def test_a_config_that_fails_is_named_and_nothing_is_written(folder: Path) -> None:
    def broken() -> House.Config:
        raise RuntimeError("out of paint")

    with pytest.raises(RuntimeError) as caught:
        golden.write({"house": lambda: house().clone(height=9.0), "new": broken}, folder, command="make goldens")
    assert caught.value.__notes__ == ["in the golden config 'new'"]
    assert golden.check(CONFIGS, folder) == []


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../b", "a//b", "a b", "."])
def test_names_stay_in_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="golden"):
        golden.write({name: house}, tmp_path, command="")


TESTS = """
    from things import Room, House, house

    def test_all(golden):
        golden.check_all({"house": house, "small/plain": lambda: house().clone(height=HEIGHT)})

    def test_one(golden, tmp_path):
        golden.check("room", Room.Config(name="x"), golden.folder.parent / "rooms")
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    pytester.makeconftest('pytest_plugins = ["ax_config.pytest_plugin"]')
    pytester.makepyfile(TESTS.replace("HEIGHT", "3.0"))
    return pytester


def test_the_plugin_fails_writes_and_passes(session: pytest.Pytester) -> None:
    result = session.runpytest_inprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["house: there is no *goldens/house.txt", "to accept: pytest *::test_all --golden-write"]
    )
    result = session.runpytest_inprocess("--golden-write")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*golden configs written*", "house: new file *goldens/house.txt", "room: new file *"])
    session.runpytest_inprocess().assert_outcomes(passed=2)
    file = session.path / "goldens" / "small" / "plain.txt"
    assert file.read_text().startswith("# golden config; accept a change with: pytest test_the_plugin")

    session.makepyfile(TESTS.replace("HEIGHT", "4.0"))
    result = session.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["small/plain: differs from *", "*~ height  3.0 → 4.0"])


def test_the_plugin_is_registered_once_however_it_is_found(session: pytest.Pytester) -> None:
    """An entry point under another name than the module's would register it a second time, and fail."""
    result = session.runpytest_inprocess("-p", "ax_config.pytest_plugin", "--golden-write")
    result.assert_outcomes(passed=2)
