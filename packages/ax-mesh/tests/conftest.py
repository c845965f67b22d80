"""Eight devices on the CPU, and JAX as strict as it can be; set before anything initialises it."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("unhurried", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("unhurried")
