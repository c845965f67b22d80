"""Tests run on CPU, with implicit promotions of dtype and rank as errors."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
