"""What a package's folder and the files built from it must hold, whatever the package does."""

import email
import re
import tarfile
import tomllib
import zipfile
from email import policy
from email.message import EmailMessage

import pytest
from packaging.requirements import Requirement

from tools.workspace import PACKAGES, ROOT, Package, is_ours

LICENSE = (ROOT / "LICENSE").read_bytes()


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> Package:
    return PACKAGES[request.param]


@pytest.fixture
def wheel(package: Package) -> zipfile.ZipFile:
    return zipfile.ZipFile(ROOT / "dist" / f"{package.module}-{package.version}-py3-none-any.whl")


def metadata(wheel: zipfile.ZipFile) -> EmailMessage:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    message = email.message_from_string(wheel.read(name).decode(), policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


def test_folder_has_the_layout(package: Package) -> None:
    for file in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "tests"):
        assert (package.folder / file).exists(), file
    for file in ("__init__.py", "_version.py", "py.typed"):
        assert (package.source / file).is_file(), file
    assert [path.name for path in (package.folder / "src").iterdir() if path.suffix != ".egg-info"] == [package.module]


def test_changelog_has_the_section_of_the_version(package: Package) -> None:
    changelog = (package.folder / "CHANGELOG.md").read_text("utf-8")
    section = rf"^## \[{re.escape(package.version)}\]( - \d{{4}}-\d{{2}}-\d{{2}})?$"
    assert re.search(section, changelog, re.MULTILINE), f"CHANGELOG.md has no section ## [{package.version}]"


def test_metadata_is_complete(package: Package, wheel: zipfile.ZipFile) -> None:
    data = metadata(wheel)
    assert data["Name"] == package.name
    assert data["Version"] == package.version
    assert data["License-Expression"] == "Apache-2.0"
    assert data["Requires-Python"] == ">=3.11"
    assert data["Summary"]
    assert "Typing :: Typed" in data.get_all("Classifier", [])
    readme = (package.folder / "README.md").read_text("utf-8")
    assert str(data.get_payload()).strip() == readme.strip()


def test_siblings_are_pinned_by_range(package: Package, wheel: zipfile.ZipFile) -> None:
    for requirement in map(Requirement, metadata(wheel).get_all("Requires-Dist", [])):
        if is_ours(requirement):
            operators = sorted(clause.operator for clause in requirement.specifier)
            assert operators == ["<", ">="], f"{requirement}: siblings are pinned like >=0.1,<0.2"
            assert requirement.specifier.contains(PACKAGES[requirement.name].version), (
                f"{requirement} is not this tree's"
            )
        else:
            assert any(clause.operator == ">=" for clause in requirement.specifier), f"{requirement} has no lower bound"


def test_wheel_holds_the_package_its_license_and_nothing_else(package: Package, wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    info = f"{package.module}-{package.version}.dist-info"
    sources = {
        file.relative_to(package.folder / "src").as_posix()
        for file in package.source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert f"{package.module}/py.typed" in names
    assert {name for name in names if not name.startswith(info)} == sources
    assert wheel.read(f"{info}/licenses/LICENSE") == LICENSE


def test_sdist_holds_the_tests_and_the_license(package: Package) -> None:
    base = f"{package.module}-{package.version}"
    with tarfile.open(ROOT / "dist" / f"{base}.tar.gz") as archive:
        names = set(archive.getnames())
        assert {f"{base}/{name}" for name in ("README.md", "CHANGELOG.md", "pyproject.toml")} <= names
        assert any(name.startswith(f"{base}/tests/") for name in names)
        found = archive.extractfile(f"{base}/LICENSE")
        assert found
        assert found.read() == LICENSE


def test_import_contracts_name_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in settings["contracts"]}
    modules = sorted(package.module for package in PACKAGES.values())
    assert sorted(settings["root_packages"]) == modules
    assert sorted(module for layer in contracts["star"]["layers"] for module in layer.split(" | ")) == modules
    assert sorted(contracts["no-cycles"]["ancestors"]) == modules


def test_installing_for_development_names_every_package() -> None:
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    named = [line.removeprefix("-e ./packages/") for line in lines if line.startswith("-e ")]
    assert sorted(named) == sorted(PACKAGES)
