"""Importing the package must be cheap: optax takes as long again as a third of JAX."""

import subprocess
import sys


def test_import_leaves_optax_alone() -> None:
    code = "import sys, ax_trainer, ax_trainer.testing; sys.exit('optax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
