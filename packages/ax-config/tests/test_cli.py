"""The ``ax-config`` command: what it prints, how it exits, and what the shells complete."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
import yaml
from ax_config import Config, ConfigError, dumps, loads, override, to_plain
from ax_config.cli import main
from things import Bulb, House, Room, house

SOURCES = '''
"""What a user might have in a folder."""

from ax_config import Config, field, setting, overriding
from things import House, Room, Bulb, house

HOUSE = house()
ALL = {"house": house, "small/cottage": "mine:cottage", "copy": HOUSE}


def cottage(name="all in one", *, height=2.0):
    return House.Config(rooms=(Room.Config(name=name),), height=height)


def catalogue():
    return ALL


def higher(tree, *, by=1.0):
    tree.height += by
    return tree


def all_rooms(name):
    return setting("rooms[*]", name=name)


def dark():
    return overriding("**.watts=0")


def broken():
    raise RuntimeError("out of paint")


FAILS = {"bad": broken}


class Helped(Config[object]):
    width: int = field(default=3, help="how wide it is")


def open_source():
    return Helped()
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SOURCES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


class Result(NamedTuple):
    status: int
    out: str
    err: str


class Run(Protocol):
    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Result:
        try:
            status = main(arguments)
        except SystemExit as e:  # argparse
            status = int(e.code or 0)
        return Result(status, *capsys.readouterr())

    return run


def shown(run: Run, *arguments: str) -> Config[object]:
    result = run("show", *arguments)
    assert (result.status, result.err) == (0, "")
    return loads(result.out)


def test_show_prints_what_reads_back(run: Run, folder: Path) -> None:
    assert shown(run, "mine:house") == house()
    assert shown(run, "mine:HOUSE") == house()
    assert shown(run, "mine:cottage('den', height=3)") == House.Config(rooms=(Room.Config(name="den"),), height=3.0)
    (folder / "house.txt").write_text(dumps(house()))
    assert shown(run, "house.txt") == house()


def test_changes_are_made_in_order(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "run.toml").write_text("height = 7\n[lamps.porch]\nwatts = 1\n")
    monkeypatch.setenv("RUN__height", "8")
    changes = ["--set", "height=9", "--env", "RUN", "--set-file", "run.toml", "--apply", "mine:higher(by=2.5)"]
    assert shown(run, "mine:house", *changes[-2:]) == house().clone(height=5.0)
    assert shown(run, "mine:house", *changes[-4:]) == override(house(), ["height=7", "lamps['porch'].watts=1"])
    assert shown(run, "mine:house", *changes) == override(house(), ["height=9", "lamps['porch'].watts=1"])


@pytest.mark.parametrize("modifier", ["mine:all_rooms('den')", "mine:all_rooms(name='den')"])
def test_functions_that_return_modifiers(run: Run, modifier: str) -> None:
    assert shown(run, "mine:house", "--apply", "mine:dark", "--apply", "mine:higher") == override(
        house(), ["**.watts=0", "height=3.5"]
    )


def test_show_of_parts_and_in_other_formats(run: Run) -> None:
    assert run("show", "mine:house", "rooms[*].name").out == "rooms[0].name = 'hall'\nrooms[1].name = 'study'\n"
    assert run("show", "mine:house", "rooms[1].lamp").out.splitlines()[1] == "rooms[1].lamp.watts = 40"
    assert run("show", "mine:house", "**.room").out.splitlines()[-2:] == [
        "rooms[1].lamp.room = open",
        "lamps['porch'].room = 'porch'",
    ]
    lamp = to_plain(Bulb.Config(watts=40))
    assert json.loads(run("show", "mine:house", "rooms[1].lamp", "--format", "json").out) == lamp
    assert yaml.safe_load(run("show", "mine:house", "rooms[1].lamp", "--format", "yaml").out) == lamp
    assert run("show", "mine:house", "rooms[1].lamp", "--format", "tree").out == (
        "rooms[1].lamp  new things:Bulb.Config\n  watts   40\n  colour  enum things:Colour.WARM\n"
    )
    result = run("show", "mine:open_source", "--format", "tree", "--help-fields", "--colour", "always")
    assert result.out == ("\x1b[36mnew mine:Helped\x1b[0m\n  width  3\x1b[2m  # how wide it is\x1b[0m\n")


def test_diff_of_two_and_of_one_with_changes(run: Run) -> None:
    same = run("diff", "mine:house", "mine:HOUSE")
    assert (same.status, same.out) == (0, "")
    result = run("diff", "mine:house", "--set", "**.watts=7", "--colour", "always")
    assert result.status == 1
    assert "\x1b[33m~ watts  40 → 7\x1b[0m" in result.out
    result = run("diff", "mine:house", "mine:cottage", "--set", "height=3")
    assert result.status == 1
    assert "height" not in result.out
    assert run("diff", "mine:house").status == 2


def test_explain_tells_the_chain(run: Run) -> None:
    result = run("explain", "mine:house", "height", "--apply", "mine:higher", "--set", "height=9")
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[:3] == ["height = 9.0", "  set to 9.0", "      by --set height=9"]
    assert lines[3].startswith("  set to 3.5  [mine.py:")
    assert lines[4].startswith("      by higher")
    assert lines[5].startswith("  default 2.5  [things.py:")
    result = run("explain", "mine:house", "height", "--apply", "mine:higher(by=2.0)")
    assert result.out.splitlines()[2] == "      by modify higher(by=2.0)"
    assert run("explain", "mine:house", "rooms[*].name").out.count(" = ") == 2


def test_golden_write_check_show(run: Run, folder: Path) -> None:
    result = run("golden", "check", "mine:ALL")
    assert result.status == 1
    assert result.out.endswith("to accept: ax-config golden write mine:ALL --dir goldens\n")
    assert run("golden", "write", "mine:catalogue").status == 0
    assert run("golden", "check", "mine:ALL").status == 0
    file = folder / "goldens" / "small" / "cottage.txt"
    assert file.read_text().startswith(
        "# golden config; accept a change with: ax-config golden write mine:catalogue --dir g"
    )
    file.write_text(file.read_text().replace("height = 2.0", "height = 2.5"))
    result = run("golden", "check", "mine:ALL")
    assert result.status == 1
    assert "    the root\n      ~ height  2.5 → 2.0\n" in result.out
    result = run("golden", "show", "mine:ALL")
    assert (result.status, result.out) == (
        0,
        "copy  as it was\nhouse  as it was\nsmall/cottage  drifted, 1 change\n",
    )


def test_sweep_names_and_writes(run: Run, folder: Path) -> None:
    result = run("sweep", "mine:house", "height=2,3", "**.watts=1,2")
    assert result.out.split() == [f"height={h},watts={w}" for h in ("2.0", "3.0") for w in (1, 2)]
    result = run("sweep", "mine:house", "height=2,3", "rooms[0].tags=('a', 'b'),()", "--zip", "--write", "out")
    assert result.out.splitlines() == [
        "out/height=2.0,tags=a-b.txt",
        "out/height=3.0,tags=.txt".replace("=.", "=empty."),
    ]
    written = loads((folder / "out" / "height=2.0,tags=a-b.txt").read_text())
    assert written == override(house(), ["height=2", "rooms[0].tags=('a', 'b')"])
    result = run("sweep", "mine:house", "height=log_uniform(1, 9)", "rooms[0].name=a,b", "--sample", "3", "--seed", "1")
    assert [name.partition(",")[0] for name in result.out.split()] == ["sample=0", "sample=1", "sample=2"]
    again = run("sweep", "mine:house", "height=log_uniform(1, 9)", "rooms[0].name=a,b", "--sample", "2", "--seed", "1")
    assert result.out.startswith(again.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "mine:hous"], "ax-config: mine:hous: module mine has no hous; did you mean house"),
        (["show", "nowhere:x"], "No module named 'nowhere'"),
        (["show", "house.text"], "house.text is neither module:function nor a file"),
        (["show", "mine:ALL"], "mine:ALL gives no config but"),
        (["show", "mine:cottage(heigth=3)"], "unexpected keyword argument 'heigth'"),
        (["show", "mine:cottage(height=x)"], "arguments in parentheses are literals"),
        (["show", "mine:house", "hight"], "there is no 'hight' in the config; did you mean height"),
        (["show", "mine:house", "--set", "hight=1"], "--set: there is no 'hight'"),
        (["show", "mine:house", "--set", "height=tall"], "wants float, and 'tall' can't be read as that"),
        (["show", "mine:house", "--apply", "mine:HOUSE"], "mine:HOUSE is no modifier"),
        (["show", "mine:house", "height", "--format", "yaml"], "height is no config"),
        (["show", "mine:broken"], "RuntimeError: out of paint (--debug shows where)"),
        (["golden", "check", "mine:FAILS"], "out of paint (--debug shows where); in the golden config 'bad'"),
        (["golden", "check", "mine:house"], "gives no mapping of names to configs"),
        (["sweep", "mine:house", "height=uniform(0,1)"], "needs --sample"),
        (["sweep", "mine:house", "height=2,3", "rooms[0].name=a", "--zip"], "2 of height and 1 of rooms[0].name"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
    ],
)
def test_bad_use_is_one_clear_line(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    if arguments[0] != "frobnicate":
        assert result.err.count("\n") == 1
        with pytest.raises((ConfigError, RuntimeError)):
            main([*arguments, "--debug"])


def test_help_teaches_by_examples(run: Run) -> None:
    result = run("--help")
    assert result.status == 0
    for command in ("show", "diff", "explain", "golden", "sweep", "completion"):
        assert f"ax-config {command} " in result.out
        assert run(command, "--help").status == 0


# Completion.


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sh"], ["show"]),
        (["show", "--fo"], ["--format"]),
        (["show", "--format", "t"], ["text", "tree"]),
        (["golden", "c"], ["check"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["show", "mine:house", "he"], ["height"]),
        (
            ["show", "mine:house", "rooms[1].lamp."],
            ["rooms[1].lamp.colour", "rooms[1].lamp.room", "rooms[1].lamp.watts"],
        ),
        (["show", "mine:house", "rooms[1].l"], ["rooms[1].lamp", "rooms[1].lamp."]),
        (["show", "mine:house", "roo"], ["rooms", "rooms[0]", "rooms[1]"]),
        (["show", "mine:house", "--set", "lamps[porch].w"], ["lamps[porch].watts="]),
        (["diff", "mine:house", "mine:house", "--set", "hei"], ["height="]),
        (["explain", "--colour", "never", "mine:house", "che"], ["check"]),
        (["sweep", "mine:house", "height=1,2", "che"], ["check="]),
        (["show", "mine:nothing", "he"], []),
        (["show", "mi"], []),
    ],
)
def test_candidates(run: Run, words: list[str], offered: list[str]) -> None:
    assert run("_complete", "ax-config", *words).out.splitlines() == offered


def environment(folder: Path) -> dict[str, str]:
    """One in which ``ax-config`` is a command."""
    command = folder / "bin" / "ax-config"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ax_config "$@"\n')
    command.chmod(0o755)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ax-config sho", ["show"]),
        ("ax-config show mine:house --set he", ["height="]),
        ("ax-config show mine:house --set rooms[1].lamp.wa", ["rooms[1].lamp.watts="]),
        ("ax-config explain mine:house 'lamps[porch].co", ["lamps[porch].colour"]),
        (
            "ax-config explain mine:house ",
            ["check", "height", "lamps", "lamps[porch]", "rooms", "rooms[0]", "rooms[1]"],
        ),
    ],
)
def test_bash_completes(folder: Path, line: str, offered: list[str]) -> None:
    script = f"""
        eval "$(ax-config completion bash)"
        complete -p ax-config >/dev/null || exit 1
        compopt() {{ :; }}  # works at a prompt only
        COMP_LINE={shlex.quote(line)}
        COMP_POINT=${{#COMP_LINE}}
        _ax_config
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(folder), check=True)
    assert done.stdout.split() == offered, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_parse(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert "ax-config _complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_it_runs_as_a_module_and_ends_quietly_when_nobody_reads(folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m ax_config show mine:house | head -n 1"],
        capture_output=True,
        text=True,
        env=environment(folder),
        check=True,
    )
    assert (done.stdout, done.stderr) == (". = new things:House.Config\n", "")
