"""Makes the tests' own modules importable by name, which texts of configs need."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
