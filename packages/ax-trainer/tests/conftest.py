"""JAX for tests: eight CPU devices, and no silent promotion. Set before JAX starts."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the tests' own modules
os.environ["JAX_PLATFORMS"] = "cpu"
# Many small programs are compiled here and run a few times: most of the time would go into optimising them.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Many tests compile the same step anew; one folder for the session makes that a look-up.
_CACHE = tempfile.TemporaryDirectory(prefix="ax-trainer-tests-", ignore_cleanup_errors=True)
jax.config.update("jax_compilation_cache_dir", _CACHE.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
