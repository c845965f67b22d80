"""Every check of the workspace, as sessions of Nox.

    nox                               what the README's second command and CI run: all of `nox.options.sessions`
    nox -s "tests(ax-config)"         one session for one package
    nox -s lowest newest              the two ends of the declared ranges
    nox -s "release(ax-config)"       is this package ready to be released?

The truth is the wheel: `build` makes all of them, and every session that runs code installs those files, and third
parties from the index, into a fresh environment and runs the tests in a copy outside the tree, where no source of ours
can be imported by accident. Our packages are always given as files, siblings included, so that none of our names is
ever asked of an index; `tools/installed.py` then compares what is installed with the wheels byte for byte.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))  # the nox command doesn't put it there
from tools.workspace import PACKAGES, ROOT, Package, third_party, with_siblings

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "imports", "seeded", "wheels", "tests", "typed", "contracts", "loc", "e2e"]

DIST = ROOT / "dist"
MANY_COMPILATIONS = {"ax-layers", "ax-trainer"}
"""Packages whose tests take minutes of one core."""
PYPROJECT = nox.project.load_toml("pyproject.toml")
each_package = nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])


def interpreter(*versions: str) -> str:
    """Find a Python that really runs, for the first version that has one; else return the version, for Nox to fail on.

    A version manager's shim on the path may stand for a Python that is not switched on, and then the interpreter lies
    in the manager's folder only; Nox by itself would stop at the shim.
    """
    for version in versions:
        pyenv = os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")
        found = [shutil.which(f"python{version}"), *glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}")]
        for path in filter(None, found):
            if not subprocess.run([path, "-c", ""], capture_output=True).returncode:
                return path
    return versions[0]


def group(*names: str) -> tuple[str, ...]:
    """Return the requirements of dependency groups in pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def everything_declared() -> list[str]:
    """Return all third-party requirements of all packages, for the checks that read code and run none."""
    return sorted({str(requirement) for requirement in third_party(PACKAGES.values(), extras_of=PACKAGES.values())})


def install(session: nox.Session, names: Collection[str], *requirements: str, extras: Sequence[str] = ()) -> None:
    """Install the wheels of the named packages and of their siblings as files, and prove that those are what is there."""
    packages = with_siblings(names)
    wheels = {p.name: next(DIST.glob(f"{p.module}-{p.version}-*.whl")) for p in packages}
    suffix = f"[{','.join(extras)}]" if extras else ""
    ours = [f"{name}{suffix if name in names else ''} @ {wheel.as_uri()}" for name, wheel in wheels.items()]
    # uv keeps what it unpacked: a wheel that was built anew under the same version has to be read again
    fresh = [f"--refresh-package={name}" for name in wheels] if session.venv_backend == "uv" else []
    session.install(*ours, *requirements, *fresh)
    session.run("python", "-P", str(ROOT / "tools" / "installed.py"), *map(str, wheels.values()))


def run_tests_of(session: nox.Session, package: Package) -> None:
    """Run the tests that a package's sdist carries: they are of the same moment as the wheel that was made from it."""
    with tempfile.TemporaryDirectory(prefix="ax-tests-") as away:
        with tarfile.open(DIST / f"{package.module}-{package.version}.tar.gz") as sdist:
            sdist.extractall(away, filter="data")
        folder = f"{package.module}-{package.version}"
        shutil.rmtree(Path(away, folder, "src"))
        pytest_away(session, away, folder, at_once(session) if package.name in MANY_COMPILATIONS else ())


def run_tests_in(session: nox.Session, folder: str, *beside: str, workers: Sequence[str] = ()) -> None:
    """Run the tests in a folder of the tree that are no package's, in a copy of it and of the folders that it reads."""
    with tempfile.TemporaryDirectory(prefix="ax-tests-") as away:
        for each in (folder, *beside):
            shutil.copytree(ROOT / each, Path(away, each), ignore=shutil.ignore_patterns("__pycache__"))
        pytest_away(session, away, folder, workers)


def pytest_away(session: nox.Session, away: str, folder: str, workers: Sequence[str] = ()) -> None:
    """Run pytest with the workspace's settings, but where no source of ours can be imported by accident."""
    shutil.copy(ROOT / "pyproject.toml", away)
    with session.chdir(away):
        session.run("pytest", folder, *workers, *session.posargs, env={"PYTHONPATH": None, "PYTHONSAFEPATH": "1"})


def at_once(session: nox.Session) -> tuple[str, ...]:
    """Install what spreads tests over two processes, and return pytest's options for it."""
    session.install("pytest-xdist")
    return ("--numprocesses=2", "--dist=worksteal")


def check_bounds_are_met(session: nox.Session, bounds: Iterable[Requirement]) -> None:
    """Fail if anything is newer than the lower bound that promises it: then nobody has tried the bound."""
    listing = session.run("uv", "pip", "list", "--format=json", silent=True, external=True, stderr=None)
    assert isinstance(listing, str)
    installed = {canonicalize_name(entry["name"]): Version(entry["version"]) for entry in json.loads(listing)}
    floor_of: dict[NormalizedName, Version] = {}
    for requirement in bounds:
        name = canonicalize_name(requirement.name)
        floors = [Version(clause.version) for clause in requirement.specifier if clause.operator == ">="]
        if not floors:
            session.error(f"{requirement} has no lower bound")
        floor_of[name] = max([*floors, *filter(None, [floor_of.get(name)])])
    for name, floor in floor_of.items():
        if installed[name] != floor:
            session.error(f"{name} {installed[name]} was installed: the bound {name}>={floor} does not hold together")


# The checks of the text: no package of ours is installed for these, and all of them also take another tree.


@nox.session(reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Ruff: its rules and its format."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(reuse_venv=True)
def types(session: nox.Session) -> None:
    """Run mypy --strict on each package alone with ax-config, then on what uses all of them (or on what `--` names)."""
    session.install(*group("types", "contracts", "e2e"), *everything_declared())
    session.run("python", "-m", "tools.typecheck", *session.posargs)


@nox.session
def imports(session: nox.Session) -> None:
    """Check the star and the other import contracts, declared dependencies, and cycles."""
    session.install(*group("imports"), *everything_declared())
    session.run("python", "-m", "tools.imports")


@nox.session
def seeded(session: nox.Session) -> None:
    """Plant one violation after another in a copy of the tree; the right check must fail and name it."""
    session.install(*group("lint", "types", "imports", "seeded"), *everything_declared())
    session.run("python", "-m", "pytest", "tests/seeded", *session.posargs)


# The wheels, and the sessions that run them.


@nox.session(reuse_venv=True)
def build(session: nox.Session) -> None:
    """Build the sdist of every package and, out of it, the wheel."""
    session.install(*group("build"))
    shutil.rmtree(DIST, ignore_errors=True)
    for package in PACKAGES.values():
        session.run("python", "-m", "build", "--no-isolation", f"--outdir={DIST}", str(package.folder), silent=True)
    session.run("twine", "check", "--strict", *map(str, sorted(DIST.iterdir())), silent=True)


@nox.session(requires=["build"])
def wheels(session: nox.Session) -> None:
    """What every package must hold, in its folder and in the built files, whatever it does."""
    session.install(*group("wheels"))
    session.run("python", "-m", "pytest", "tests/wheels", *session.posargs)


@nox.session(requires=["build"])
@each_package
def tests(session: nox.Session, package: str) -> None:
    """One wheel alone with what it declares, on the Python that runs Nox: its tests."""
    install(session, [package])
    session.run("python", "-P", "-c", f"import {PACKAGES[package].module}")  # an extra must not be needed for this
    install(session, [package], extras=PACKAGES[package].extras)
    run_tests_of(session, PACKAGES[package])


@nox.session(requires=["build"], python=interpreter("3.11"))
@each_package
def lowest(session: nox.Session, package: str) -> None:
    """The same on the oldest Python, with every declared dependency at its lower bound."""
    if session.venv_backend != "uv":
        session.error("only uv can resolve to the lowest versions: pip install uv")
    bounds = list(third_party(with_siblings([package]), extras_of=[PACKAGES[package]]))
    install(session, [package], *map(str, bounds), "--resolution=lowest-direct", extras=PACKAGES[package].extras)
    check_bounds_are_met(session, bounds)
    run_tests_of(session, PACKAGES[package])


@nox.session(requires=["build"], python=interpreter("3.13", "3.12"))
@each_package
def newest(session: nox.Session, package: str) -> None:
    """The same on the newest Python, with the newest of everything."""
    install(session, [package], "--upgrade", extras=PACKAGES[package].extras)
    run_tests_of(session, PACKAGES[package])


@nox.session(requires=["build"])
def typed(session: nox.Session) -> None:
    """The wheel of ax-config as type checkers see it: mypy and pyright find each kind of mistake with a config."""
    install(session, ["ax-config"], *group("typed"))
    run_tests_in(session, "tests/typed", "packages/ax-config/tests/mistakes")


@nox.session(requires=["build"])
def contracts(session: nox.Session) -> None:
    """All wheels together: every provider fits every Protocol it is meant for, and so do strangers. And of the matrix a sample."""
    install(session, PACKAGES, *group("contracts"))
    run_tests_in(session, "tests/contracts", workers=at_once(session))
    run_tests_in(session, "tests/matrix", workers=(*at_once(session), "-m", "sample"))


@nox.session(requires=["build"], default=False)
def matrix(session: nox.Session) -> None:
    """Every kind of parallelism, alone and together, on 8 and 16 devices, in one process and in four: what one device does."""
    install(session, PACKAGES, *group("contracts"))
    run_tests_in(session, "tests/matrix", workers=at_once(session))


@nox.session(requires=["build"])
def loc(session: nox.Session) -> None:
    """Features as strangers add them: right by references, and in no line of what exists. It copies this tree itself."""
    install(session, ["ax-recipes"], *group("loc"))
    environment = {"PYTHONPATH": None, "PYTHONSAFEPATH": "1"}
    session.run("pytest", "tests/loc", *at_once(session), *session.posargs, env=environment)


@nox.session(requires=["build"])
def e2e(session: nox.Session) -> None:
    """The main job, small: the installed `ax` command on real text."""
    install(session, ["ax-recipes"], *group("e2e"))
    run_tests_in(session, "tests/e2e")


@nox.session(requires=["build"], default=False)
def report(session: nox.Session) -> None:
    """The report of `ax report` in a real browser. Not by default: it needs Chromium, the machine's or playwright's."""
    install(session, ["ax-recipes"], *group("report"))
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        session.run("playwright", "install", "chromium")
    run_tests_in(session, "tests/report")


@nox.session(requires=["build"], python=interpreter("3.11"), default=False)
def parity(session: nox.Session) -> None:
    """Every model family against transformers with the same weights. Not by default: it installs PyTorch."""
    install(session, ["ax-recipes"], *group("parity"))
    run_tests_in(session, "tests/parity")


@nox.session(requires=["build"], python=interpreter("3.11"), default=False)
def input_speed(session: nox.Session) -> None:
    """Tokens a core of the input pipeline against bare Grain, datasets and torch. Not by default: it installs PyTorch."""
    install(session, ["ax-input"], *group("input_speed"))
    session.run("python", "-P", "benchmarks/input.py", *session.posargs, env={"PYTHONPATH": None})


@nox.session(requires=["build"], python=interpreter("3.13", "3.12"), default=False)
def peers(session: nox.Session) -> None:
    """A training step beside pure JAX's, MaxText's and PyTorch's. Not by default: it installs them all; needs 16 GB, and quiet."""
    install(session, ["ax-recipes"], *group("peers"))
    maxtext = Path(session.create_tmp(), "maxtext")  # of its own: it imports PyTorch where there is one
    session.run("python", "-m", "venv", "--clear", str(maxtext))
    python = str(maxtext / "bin" / "python")
    session.run(python, "-m", "pip", "install", "-q", *group("peers_maxtext"), external=True)
    environment = {"PYTHONPATH": None, "PYTHONSAFEPATH": None}
    session.run("python", "benchmarks/peers.py", "--maxtext", python, *session.posargs, env=environment)


@nox.session(requires=["build"], python=interpreter("3.13", "3.12"), default=False)
def chips(session: nox.Session) -> None:
    """The real compilers for TPUs and GPUs that nobody here has. Not by default: it installs a gigabyte of them."""
    install(session, ["ax-recipes"], *group("chips"))
    run_tests_in(session, "tests/chips")


@nox.session(requires=["build"], default=False)
@each_package
def release(session: nox.Session, package: str) -> None:
    """Check that version, changelog and tag of a package agree, build it, and print what to upload."""
    session.install("packaging")
    session.run("python", "-m", "tools.release", package)
