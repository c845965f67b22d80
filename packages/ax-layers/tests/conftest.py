import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the tests' own modules
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# The tests compile a lot of small programs and run each once.
jax.config.update("jax_disable_most_optimizations", True)
