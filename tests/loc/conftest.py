"""JAX for the features' tests: the CPU, and no silent promotion. Set before JAX starts."""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # small programs, compiled here and run once
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `benchmarks` is

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
