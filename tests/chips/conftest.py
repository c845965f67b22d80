"""Compile for chips that nobody here has: set before JAX looks for any."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # Nobody opens a chip, so several processes may describe them at once.
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--forecasts FILE``: what ``ax mesh table --json FILE`` found just now is looked at, and not compiled once more."""
    parser.addoption("--forecasts", metavar="FILE", help="the rows that `ax mesh table --json FILE` wrote")
