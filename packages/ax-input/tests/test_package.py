import subprocess
import sys


def test_import_is_light() -> None:
    code = "import sys, ax_input, ax_input.testing; print([m for m in ('grain', 'jax', 'pyarrow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
