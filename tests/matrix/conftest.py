"""Sixteen devices on the CPU, of which a case takes what it needs; and JAX as strict as it can be. Set before JAX starts."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
# Every case compiles a program and runs it three times: most of the time goes into optimising it, so that is off.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16 --xla_backend_optimization_level=0"

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
