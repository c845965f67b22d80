"""Every compiler takes the options that are set for it, and refuses others by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from ax_mesh import ACCELERATORS, compiler_options, topology

KINDS = [row for row in ACCELERATORS if row.platform in {"tpu", "cuda"}]


@pytest.mark.parametrize("accelerator", KINDS, ids=lambda row: row.name)
def test_the_compiler_knows_its_options(accelerator: object) -> None:
    row = next(row for row in KINDS if row is accelerator)
    x = jax.ShapeDtypeStruct(
        (256, 256), jnp.bfloat16, sharding=jax.sharding.SingleDeviceSharding(topology(row.one_host)[0])
    )
    lowered = jax.jit(lambda x: x @ x).lower(x)
    options = compiler_options(row.name)
    assert options
    lowered.compile(compiler_options=options)
    with pytest.raises(Exception, match="No such compile option: 'xla_no_such_option'"):
        lowered.compile(compiler_options={**options, "xla_no_such_option": True})


def test_a_platform_does_not_know_the_others_options() -> None:
    device = topology("v5e-1")[0]
    x = jax.ShapeDtypeStruct((8, 128), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    lowered = jax.jit(jnp.sin).lower(x)
    with pytest.raises(Exception, match="xla_gpu_enable_while_loop_double_buffering"):
        lowered.compile(compiler_options=compiler_options("h100") | {"xla_gpu_enable_while_loop_double_buffering": "x"})
