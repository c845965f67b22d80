"""One CPU device in float32, quick to compile; no silent promotion in what is ours. Set before JAX starts."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
os.environ["HF_HUB_OFFLINE"] = "1"

import jax
import torch

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
torch.set_num_threads(1)
