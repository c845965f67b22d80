"""The run folder: locked, loyal to its config, and open again after whatever happened."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ax_runtime.agent import RunFolder, RunFolderError, read_config, read_starts


def test_it_is_created_and_reopened(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    for _ in range(2):
        with RunFolder(path, config="steps = 3\n", packages=("pytest", "no-such-package")) as folder:
            assert folder.path == path
    assert (path / "config.txt").read_text() == "steps = 3\n"
    starts = json.loads((path / "environment.json").read_text())["starts"]
    assert len(starts) == 2
    assert starts[1]["packages"] == {"pytest": pytest.__version__}
    assert starts[1]["argv"] == sys.argv
    assert starts[1]["config_changes"] == []


def test_another_config_is_refused_with_the_lines_that_differ(tmp_path: Path) -> None:
    RunFolder(tmp_path, config="steps = 3\nlr = 0.1\n").close()
    with pytest.raises(RunFolderError, match=r"another config.*\n  - lr = 0\.1\n  \+ lr = 0\.2\nContinue"):
        RunFolder(tmp_path, config="steps = 3\nlr = 0.2\n")
    assert (tmp_path / "config.txt").read_text() == "steps = 3\nlr = 0.1\n"
    RunFolder(tmp_path, config="steps = 3\nlr = 0.1\n").close()  # The refusal left no lock behind.


def test_allowed_differences_replace_the_config(tmp_path: Path) -> None:
    RunFolder(tmp_path, config="steps = 3\nlr = 0.1\n").close()
    with RunFolder(tmp_path, config="steps = 9\nlr = 0.1\n", may_differ=lambda line: line.startswith("steps =")):
        assert (tmp_path / "config.txt").read_text() == "steps = 9\nlr = 0.1\n"
    starts = json.loads((tmp_path / "environment.json").read_text())["starts"]
    assert starts[1]["config_changes"] == ["- steps = 3", "+ steps = 9"]


_HOLDER = """
import os, sys, time
from ax_runtime.agent import RunFolder
folder = RunFolder(sys.argv[1], config="a = 1")
if sys.argv[2:] and os.fork() == 0:
    print(os.getpid(), flush=True)
    os.close(1)
    time.sleep(60)
if not sys.argv[2:]:
    print("open", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    try:
        with pytest.raises(RunFolderError, match=f"in use by the process with pid {holder.pid}"):
            RunFolder(tmp_path, config="a = 1")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    RunFolder(tmp_path, config="a = 1").close()  # The lock went with the process.


def test_a_forked_child_that_outlives_the_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path), "fork"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        holder.kill()
        holder.wait()
        RunFolder(tmp_path, config="a = 1").close()
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


_OPENER = """
import sys
from ax_runtime.agent import RunFolder
config = "a = 1\\n" * 1000
while True:
    RunFolder(sys.argv[1], config=config).close()
    print("open", flush=True)
"""


def test_kill_at_any_moment_leaves_a_folder_that_opens(tmp_path: Path) -> None:
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", _OPENER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.013 * (attempt + 1))
        process.kill()
        process.wait()
        process.stdout.close()
        RunFolder(tmp_path, config="a = 1\n" * 1000).close()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(RunFolderError, match=r"can't be a run folder: .*run.* is a file"):
            RunFolder(path, config="")


def test_an_unwritable_folder_is_named() -> None:
    with pytest.raises(RunFolderError, match=r"can't write the run folder /proc/none"):
        RunFolder("/proc/none", config="")


def test_a_foreign_environment_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("[]")
    with pytest.raises(RunFolderError, match=r"none of ours: .*environment\.json"):
        RunFolder(tmp_path, config="")


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    RunFolder(tmp_path, config="steps = 3\n").close()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(RunFolderError, match="file size limit"):
            RunFolder(tmp_path, config="steps = 3\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    RunFolder(tmp_path, config="steps = 3\n").close()


def test_what_made_a_run_is_recorded_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--some_flag=1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    run = tmp_path / "run"
    assert read_config(run) == {}
    assert read_starts(run) == []
    config = ". = new a:B\nname = 'x = y'\n"
    RunFolder(run, config=config, environment={"devices": ["cpu"]}).close()
    git = ("git", "-c", "user.name=n", "-c", "user.email=e")
    for command in ("init -q", "commit -q --allow-empty -m first"):
        subprocess.run([*git, *command.split()], check=True)
    RunFolder(run, config=config).close()
    (work / "file").write_text("")
    subprocess.run([*git, "add", "file"], check=True)
    RunFolder(run, config=config).close()

    assert read_config(run) == {"name": "'x = y'"}
    outside, clean, changed = read_starts(run)
    assert outside["devices"] == ["cpu"]
    assert outside["git"] is None
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert clean["git"] == {"commit": head, "uncommitted_changes": False}
    assert changed["git"] == {"commit": head, "uncommitted_changes": True}
    variables = clean["variables"]
    assert isinstance(variables, dict)
    assert variables["LIBTPU_INIT_ARGS"] == "--some_flag=1"
    assert "secret" not in (run / "environment.json").read_text()
