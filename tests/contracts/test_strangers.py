"""What strangers wrote, at work in the place of ours: nothing of ours is changed for it."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import Config, chain, config_for, describes, partial_for, replacing, setting
from ax_config.testing import check_modifier
from ax_layers import CausalLM, DenseKVCache, as_decoder, as_model, cross_entropy, dot_product_attention
from ax_mesh import Mesh
from ax_recipes import Experiment
from ax_runtime.agent import read_jsonl, run_locally
from ax_runtime.testing import StopAfter
from ax_trainer import Result, Trainer
from ax_trainer.protocols import BatchSource, Checkpointer, Model, Params, Partitioner
from ax_trainer.testing import SingleDevice

from . import fits, small
from .strangers.characters import Characters
from .strangers.counting_job import CountingJob
from .strangers.equinox_model import EquinoxModel
from .strangers.flax_model import FlaxModel
from .strangers.list_sink import ListSink
from .strangers.named_shardings import NamedShardings
from .strangers.optax_cross_entropy import optax_cross_entropy
from .strangers.optax_loop import OptaxLoop
from .strangers.plain_attention import plain_attention
from .strangers.random_windows import RandomWindows
from .strangers.sliding_cache import SlidingCache
from .strangers.step_timer import StepTimer


def windows() -> RandomWindows:
    return RandomWindows(small.TEXT, batch_size=small.BATCH_SIZE, seq_length=small.SEQ_LENGTH)


def train(
    model: Model[Params],
    *,
    num_steps: int = 10,
    partitioner: Partitioner | None = None,
    batches: BatchSource | None = None,
    checkpointer: Checkpointer | None = None,
    sink: ListSink | None = None,
) -> Result[Params]:
    """Our trainer, on a stranger's data unless told otherwise."""
    trainer: Trainer[Params] = small.training().build(num_steps=num_steps, model=model)
    return trainer.run()
