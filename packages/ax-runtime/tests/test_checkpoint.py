"""Checkpoints: bit for bit, donated, sharded, partial, damaged, killed, and on a full disk."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_runtime.checkpoint import CheckpointError, OrbaxCheckpointer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


class Moments(NamedTuple):
    mu: object
    nu: object
    nothing: None = None


class Empty(NamedTuple):
    pass


def _mesh(*shape: int) -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(shape), ("a", "b")[: len(shape)])


def _state(seed: int = 0, *, rows: int = 16, sharding: NamedSharding | None = None) -> dict[str, object]:
    sharding = sharding or NamedSharding(_mesh(8), PartitionSpec("a"))
    whole = NamedSharding(sharding.mesh, PartitionSpec())
    numbers = np.random.default_rng(seed)
    weight = numbers.standard_normal((rows, 8)).astype(np.float32)
    weight[0, :3] = [np.nan, -0.0, np.inf]
    return {
        "params": {
            "layer.0": {"weight": jax.device_put(weight, sharding)},
            "half": jax.device_put(numbers.standard_normal(5).astype(jnp.bfloat16), whole),
        },
        "opt": (Moments({"weight": jax.device_put(weight * np.float32(2), sharding)}, jnp.float32(3)), Empty()),
        "step": jax.device_put(jnp.int32(seed), whole),
        "keys": jax.device_put(jax.random.split(jax.random.key(seed), 2), whole),
    }


def _abstract(tree: object) -> object:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def _bits(tree: object) -> list[tuple[str, str, bytes]]:
    def bits(x: jax.Array) -> bytes:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x).tobytes()

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), str(leaf.dtype), bits(leaf)) for path, leaf in leaves]


def _open(folder: Path, *, keep_last: int = 3, keep_every: int | None = None) -> OrbaxCheckpointer:
    return OrbaxCheckpointer.Config(keep_last=keep_last, keep_every=keep_every).build(folder=folder)


def test_a_state_comes_back_bit_for_bit_on_any_mesh(tmp_path: Path) -> None:
    state = _state(7)
    checkpointer = _open(tmp_path)
    assert checkpointer.latest() is None
    checkpointer.save(7, state, {"input": b"\x00\xff position", "odd/name": b""})
    checkpointer.wait()
    assert checkpointer.latest() == 7
    for sharding in (
        NamedSharding(_mesh(8), PartitionSpec("a")),
        NamedSharding(_mesh(2, 4), PartitionSpec("b", "a")),
        NamedSharding(_mesh(8), PartitionSpec(None, "a")),
    ):
        abstract = _abstract(_state(0, sharding=sharding))
        restored, blobs = checkpointer.restore(7, abstract)
        assert str(jax.tree.structure(restored)) == str(jax.tree.structure(state))
        assert _bits(restored) == _bits(state)
        assert [leaf.sharding for leaf in jax.tree.leaves(restored)] == [
            leaf.sharding for leaf in jax.tree.leaves(abstract)
        ]
        assert blobs == {"input": b"\x00\xff position", "odd/name": b""}
    checkpointer.close()


def test_arrays_may_be_donated_once_save_returns(tmp_path: Path) -> None:
    step = jax.jit(lambda x: jax.tree.map(lambda y: y * 2 + 1, x), donate_argnums=0)
    arrays = {name: jnp.arange(1_000_000, dtype=jnp.float32) for name in "abcd"}
    expected = _bits(arrays)
    checkpointer = _open(tmp_path)
    checkpointer.save(1, arrays, {})
    for _ in range(5):
        arrays = step(arrays)
    jax.block_until_ready(arrays)
    checkpointer.wait()
    restored, _ = checkpointer.restore(1, {name: jax.ShapeDtypeStruct((1_000_000,), jnp.float32) for name in "abcd"})
    assert _bits(restored) == expected
    checkpointer.close()


def test_a_part_is_read_alone(tmp_path: Path) -> None:
    state = _state(3)
    checkpointer = _open(tmp_path)
    checkpointer.save(3, state, {})
    part = checkpointer.restore_part(3, _abstract({"params": state["params"]}))
    assert _bits(part) == _bits({"params": state["params"]})
    half = checkpointer.restore_part(3, {"params": {"half": jax.ShapeDtypeStruct((5,), jnp.bfloat16)}})
    assert half["params"]["half"].dtype == jnp.bfloat16
    checkpointer.close()


def test_orbax_reads_it_without_us(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    state = _state(3)
    checkpointer = _open(tmp_path)
    checkpointer.save(3, state, {})
    checkpointer.close()
    with ocp.StandardCheckpointer() as plain:
        restored = plain.restore(tmp_path / "3" / "arrays", _abstract(state))
    assert _bits(restored) == _bits(state)
    part = {"params": _abstract(state["params"])}
    with ocp.PyTreeCheckpointer() as plain:
        restored = plain.restore(
            tmp_path / "3" / "arrays",
            args=ocp.args.PyTreeRestore(
                item=part, restore_args=ocp.checkpoint_utils.construct_restore_args(part), partial_restore=True
            ),
        )
    assert _bits(restored) == _bits({"params": state["params"]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["params"].update(half=jax.ShapeDtypeStruct((6,), jnp.bfloat16)), r"params/half: .*bfloat16\[5\], wanted is bfloat16\[6\]"),
        (lambda s: s["params"].update(half=jax.ShapeDtypeStruct((5,), jnp.float32)), r"params/half: .*bfloat16\[5\], wanted is float32\[5\]"),
        (lambda s: s["params"].update(more=jax.ShapeDtypeStruct((5,), jnp.float32)), r"params/more: not in the checkpoint"),
        (lambda s: s["params"].pop("layer.0"), r"params/layer\.0/weight: the checkpoint has float32\[16,8\], not wanted"),
        (lambda s: s.update(keys=jax.eval_shape(lambda: jax.random.split(jax.random.key(0, impl="rbg")))), r"keys: .*uint32\[2,2\], wanted is uint32\[2,4\]"),
    ],
)  # fmt: skip
def test_a_misfit_is_named(tmp_path: Path, change: object, message: str) -> None:
    checkpointer = _open(tmp_path)
    checkpointer.save(1, _state(), {})
    abstract = _abstract(_state())
    change(abstract)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        checkpointer.restore(1, abstract)
    checkpointer.close()


def test_old_steps_go_and_milestones_stay(tmp_path: Path) -> None:
    checkpointer = _open(tmp_path, keep_last=2, keep_every=4)
    for step in range(1, 8):
        checkpointer.save(step, {"x": jnp.int32(step)}, {})
    checkpointer.wait()
    assert sorted(os.listdir(tmp_path)) == ["4", "6", "7"]
    checkpointer.close()


def test_a_step_saved_again_is_replaced(tmp_path: Path) -> None:
    checkpointer = _open(tmp_path)
    for value in (1, 2):
        checkpointer.save(5, {"x": jnp.int32(value)}, {})
    restored, _ = checkpointer.restore(5, {"x": jax.ShapeDtypeStruct((), jnp.int32)})
    assert int(restored["x"]) == 2  # type: ignore[call-overload]
    assert os.listdir(tmp_path) == ["5"]
    checkpointer.close()


def test_a_damaged_checkpoint_and_the_last_good_one_are_named(tmp_path: Path) -> None:
    checkpointer = _open(tmp_path)
    for step in (1, 2, 3):
        checkpointer.save(step, _state(step), {})
    checkpointer.wait()
    largest = max((tmp_path / "3" / "arrays").rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else 0)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    (tmp_path / "2" / "arrays" / "_METADATA").unlink()
    with pytest.raises(
        CheckpointError, match=r"/3 is damaged: arrays/.*size and checksum.* good one before it is step 1:"
    ):
        checkpointer.restore(3, _abstract(_state()))
    with pytest.raises(CheckpointError, match=r"/2 is damaged: .*_METADATA is missing"):
        checkpointer.restore(2, _abstract(_state()))
    restored, _ = checkpointer.restore(1, _abstract(_state()))
    assert _bits(restored) == _bits(_state(1))
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 9 in .*; its steps are \[1, 2, 3\]"):
        checkpointer.restore(9, _abstract(_state()))
    checkpointer.close()


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_last must be at least 1"):
        _open(tmp_path, keep_last=0)
    with pytest.raises(ValueError, match="keep_every must be a positive"):
        _open(tmp_path, keep_every=0)


def test_a_save_blocks_for_the_copy_alone(tmp_path: Path) -> None:
    arrays = {str(i): jnp.asarray(np.random.default_rng(i).standard_normal(500_000, np.float32)) for i in range(10)}
    jax.block_until_ready(arrays)
    checkpointer = _open(tmp_path)
    shares = []
    for step in range(4):
        start = time.perf_counter()
        checkpointer.save(step, arrays, {})
        blocked = time.perf_counter() - start
        checkpointer.wait()
        shares.append(blocked / (time.perf_counter() - start))
    checkpointer.close()
    assert min(shares) < 0.3, shares  # of the time until 20 MB are on the disk; the least, for the machine may be busy


_SAVER = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
from ax_runtime.checkpoint import OrbaxCheckpointer
checkpointer = OrbaxCheckpointer.Config(keep_last=2).build(folder=Path(sys.argv[1]))
step = checkpointer.latest() or 0
specs = {name: jax.ShapeDtypeStruct((100_000,), jnp.float32) for name in "abcdef"}
if step:
    arrays, blobs = checkpointer.restore(step, specs)
    assert all((x == step).all() for x in arrays.values()) and blobs == {"step": str(step).encode()}
print(step, flush=True)
while step < int(sys.argv[2]):
    step += 1
    checkpointer.save(step, {name: jnp.full((100_000,), float(step)) for name in "abcdef"}, {"step": str(step).encode()})
checkpointer.wait()
print("end", flush=True)
"""


def test_kill_at_any_moment_leaves_complete_steps(tmp_path: Path) -> None:
    before = 0
    for attempt in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(tmp_path), "100000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        while (
            process.poll() is None and max(map(int, filter(str.isdecimal, os.listdir(tmp_path))), default=0) <= before
        ):
            time.sleep(0.01)
        time.sleep(0.1 + 0.217 * attempt)
        process.kill()
        _, stderr = process.communicate()
        assert stderr == ""
        assert int(line) >= before
        before = int(line)
    quiet = subprocess.run(
        [sys.executable, "-c", _SAVER, str(tmp_path), "0"], capture_output=True, text=True, check=True
    )
    step, end = quiet.stdout.split()
    assert (end, quiet.stderr) == ("end", "")
    assert int(step) > before
    again = _open(tmp_path, keep_last=2)
    again.save(int(step) + 1, {"x": jnp.int32(0)}, {})
    again.close()
    assert sorted(os.listdir(tmp_path)) == sorted([step, str(int(step) + 1)])


_FULL = """
import resource, signal, sys
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from ax_runtime.checkpoint import CheckpointError, OrbaxCheckpointer
checkpointer = OrbaxCheckpointer.Config(keep_last=1).build(folder=Path(sys.argv[1]))
checkpointer.save(1, {"x": jnp.zeros(10)}, {})
checkpointer.wait()
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
noise = jnp.asarray(np.random.default_rng(0).standard_normal(1_000_000))
checkpointer.save(2, {"x": noise}, {})
try:
    checkpointer.wait()
except CheckpointError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
checkpointer.restore(1, {"x": jax.ShapeDtypeStruct((10,), jnp.float32)})
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()))
checkpointer.save(2, {"x": noise}, {})
checkpointer.close()
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()))
"""


def test_a_full_disk_costs_that_save_alone(tmp_path: Path) -> None:
    """A file size limit stands for the full disk, for it can be had anywhere."""
    run = subprocess.run([sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    message, after_failure, after_success = run.stdout.splitlines()
    assert message == f"can't save step 2 in {tmp_path}: File too large. Intact are the steps [1]"
    assert (after_failure, after_success) == ("['1']", "['2']")


def test_no_thread_stays_and_nothing_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    with caplog.at_level(logging.DEBUG):
        checkpointer = _open(tmp_path)
        checkpointer.save(1, _state(), {})
        checkpointer.restore(1, _abstract(_state()))
        checkpointer.close()
    assert [record for record in caplog.records if "orbax" in record.pathname] == []
    deadline = time.monotonic() + 10
    while not set(threading.enumerate()) <= before and time.monotonic() < deadline:
        time.sleep(0.05)  # one that is ending may need its turn
    assert set(threading.enumerate()) <= before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
