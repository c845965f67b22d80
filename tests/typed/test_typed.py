"""mypy and pyright, both strict, find every mistake in ax-config's `tests/mistakes`, on its line, and nothing else.

A comment on the wrong line says what they have to report there: `# mypy: arg-type; pyright: reportArgumentType`, or `-` and a
reason for a mistake that no type can show. That the same mistakes are found when the program runs is one of ax-config's
own tests. And every type that its users see is known to pyright, without guessing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ax_config
import pytest

TESTS = Path(__file__).parents[2] / "packages" / "ax-config" / "tests"
FILES = sorted((TESTS / "mistakes").glob("*.py"))
SOURCE = Path(ax_config.__file__).parents[1]  # the installed wheel's folder, or the source in the tree
EXPECTED = re.compile(r"  # mypy: (?P<mypy>[^;]+); pyright: (?P<pyright>[^;]+)(?:; (?P<reason>.+))?$")

QUIET = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
"""Keeps pyright's wheel from asking for a newer one. It and its extra `nodejs` bring all that runs: nothing is fetched."""

Reports = Counter[str]
"""How often a code was reported for a line: ``names.py:17 call-arg``."""


def expected(checker: str) -> Reports:
    """What the comments promise of one of the checkers."""
    found: Reports = Counter()
    for file in FILES:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            comment = EXPECTED.search(line)
            if comment and comment[checker] != "-":
                found.update(f"{file.name}:{number} {code}" for code in comment[checker].split(", "))
    assert found
    return found


def assert_as_expected(checker: str, found: Reports, said: str) -> None:
    """The same as the comments promise: what is missing, and what nobody expected, with what the checker said of it."""
    wanted = expected(checker)
    assert not wanted - found, f"{checker} overlooked these"
    extra = found - wanted
    lines = {report.split(" ")[0] for report in extra}
    words = [line for line in said.splitlines() if any(f"{at}:" in line for at in lines)]
    assert not extra, "\n".join([f"{checker} reported these unexpectedly:", *words])


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """What a checker prints. It exits with 1 when it complains, with 0 when not; anything else is a failure of its own."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **QUIET, **variables}, capture_output=True, text=True)
    assert done.returncode in (0, 1), f"{command[:3]} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_mypy_reports_exactly_what_the_comments_say(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    settings = f"--config-file={pytestconfig.rootpath / 'pyproject.toml'}"
    options = ["--strict", "--explicit-package-bases", "--namespace-packages", "--no-error-summary", settings]
    path = os.pathsep.join(map(str, [TESTS, SOURCE] if "site-packages" not in SOURCE.parts else [TESTS]))
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path}", *map(str, FILES)]
    said = run(*command, cwd=tmp_path, MYPYPATH=path)
    errors = re.findall(r"^(.+?):(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE)
    assert len(errors) == len(re.findall(r": error: ", said)), said
    found = Counter(f"{Path(file).name}:{line} {code}" for file, line, code in errors)
    assert_as_expected("mypy", found, said)


def test_pyright_reports_exactly_what_the_comments_say(tmp_path: Path) -> None:
    settings = tmp_path / "pyrightconfig.json"
    folders = {"include": [os.path.relpath(TESTS / "mistakes", tmp_path)], "extraPaths": [str(SOURCE)]}
    settings.write_text(json.dumps({**folders, "typeCheckingMode": "strict", "pythonVersion": "3.11"}))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        f"--pythonpath={sys.executable}",
        f"--project={settings}",
    ]
    report = json.loads(run(*command, cwd=tmp_path))
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    found: Reports = Counter()
    said = []
    for each in report["generalDiagnostics"]:
        at = f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}"
        found[f"{at} {each.get('rule', each['severity'])}"] += 1
        said.append(f"{at}: {each['message']}".replace("\n", " "))
    assert_as_expected("pyright", found, "\n".join(said))


@pytest.mark.skipif("site-packages" not in SOURCE.parts, reason="pyright looks for an installed package")
def test_every_public_type_is_known(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--verifytypes=ax_config", "--ignoreexternal"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # whose python has the package
    report = json.loads(run(*command, cwd=tmp_path, PATH=path))["typeCompleteness"]
    assert report["exportedSymbolCounts"]["withKnownType"] > len(dir(ax_config)) / 2
    vague = [each for each in report["symbols"] if not each["isTypeKnown"]]
    assert not [f"{each['name']}: {words['message']}" for each in vague for words in each["diagnostics"]]
    assert report["completenessScore"] == 1
