"""What the parts of an experiment tell before there is a run is what they then do."""

from __future__ import annotations

from typing import cast

import jax
import numpy as np
import pytest
from ax_config import Buildable
from ax_recipes.protocols import Pipeline

from . import fits, small


@pytest.mark.parametrize("name", fits.SUPPORT_BATCH_SHAPES)
def test_batches_are_as_their_config_says(name: str) -> None:
    config = fits.SUPPORT_BATCH_SHAPES[name]
    pipeline = cast("Buildable[Pipeline]", config).build()
    assert config.batch_shapes() == {name: (x.shape, x.dtype) for name, x in next(pipeline.train()).items()}


@pytest.mark.parametrize("name", fits.SUPPORT_DESCRIPTION)
def test_a_batch_goes_where_the_placement_says(name: str) -> None:
    described, placement = fits.SUPPORT_DESCRIPTION[name](), fits.PLACEMENTS[name]()
    rows = placement.put({"rows": np.zeros((16, 3), np.float32)})["rows"]
    assert rows.sharding.is_equivalent_to(described.batch_sharding(16), rows.ndim)
    assert described.axes == {"data": 2, "fsdp": 4}


@pytest.mark.parametrize("name", fits.SUPPORT_LOWERING)
def test_a_loop_lowers_its_step_for_a_described_batch(name: str) -> None:
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one) for name, x in small.batch().items()}
    lowered = fits.SUPPORT_LOWERING[name]().lower(batch)
    state, (tokens, targets) = lowered.args_info[0][0], jax.tree.leaves(lowered.args_info[0][1])
    assert {tokens.shape, targets.shape} == {batch["tokens"].shape}
    assert all(leaf.donated for leaf in jax.tree.leaves(state))
