"""JAX for the features' tests: eight CPU devices, and no silent promotion. Set before JAX starts."""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
# Small programs are compiled here and run once: most of the time would go into optimising them, so it is off.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `benchmarks` is

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
