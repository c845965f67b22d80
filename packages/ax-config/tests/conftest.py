"""Makes the tests' own modules importable by name, which texts of configs need; examples may take their time on a busy machine."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
