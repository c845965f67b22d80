"""Check that exactly the given wheels of ours are what this interpreter imports.

    python installed.py dist/ax_config-0.1.0-py3-none-any.whl ...

An installer may serve an older wheel of the same version out of its cache, or fetch a stranger's package of the same
name from an index. So after every installation each file of each wheel is compared with the installed one, byte for
byte, and no other distribution with our prefix may be there. Runs inside the environment under test: standard library
only, so that it adds nothing to it.
"""

import importlib.metadata
import sys
from pathlib import Path
from zipfile import ZipFile

PREFIX = "ax-"


def complaints(wheels: list[Path]) -> list[str]:
    """Return a line for everything that differs between the wheels and the environment."""
    expected = {wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in wheels}
    found = {
        d.name.replace("_", "-"): d for d in importlib.metadata.distributions() if d.name.startswith(("ax-", "ax_"))
    }
    lines = [
        f"{name} is installed, but from none of the given wheels" for name in sorted(found.keys() - expected.keys())
    ]
    for name, wheel in expected.items():
        if name not in found:
            lines.append(f"{name} is not installed")
            continue
        with ZipFile(wheel) as archive:
            for member in archive.namelist():
                installed = Path(str(found[name].locate_file(member)))
                if member.endswith("/RECORD"):  # the installer adds its own files to it
                    continue
                if not installed.is_file() or installed.read_bytes() != archive.read(member):
                    lines.append(f"{installed} is not the {member} of {wheel}")
    return lines


if __name__ == "__main__":
    found_wrong = complaints([Path(argument) for argument in sys.argv[1:]])
    if found_wrong:
        sys.exit("\n".join(["The installed packages are not the built ones:", *found_wrong]))
    print(f"{len(sys.argv) - 1} of our wheels installed, as built")
