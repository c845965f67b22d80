"""Names to devices, as far as no vendor's library is needed; tests/chips has the rest."""

from __future__ import annotations

import jax
import pytest
from ax_mesh import TopologyError, accelerator_group, slice_shape, topology
from jax.experimental import topologies


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("v5e-1", (1, 1)),
        ("v5e-8", (2, 4)),
        ("v5e-32", (4, 8)),
        ("v6e-256x4", (16, 16)),
        ("v4-8", (2, 2, 1)),
        ("v4-32", (2, 2, 4)),
        ("v5p-128", (4, 4, 4)),
        ("v5p-512", (4, 8, 8)),
        ("v5p-1024", (8, 8, 8)),
        ("v5p-12288", (16, 16, 24)),
        ("tpu7x-128", (4, 4, 4)),
        ("tpu7x-256", (4, 4, 8)),
    ],
)
def test_slices_are_laid_out_as_the_cloud_does(name: str, shape: tuple[int, ...]) -> None:
    assert slice_shape(accelerator_group(name)) == shape


@pytest.mark.parametrize("name", ["v5e-9", "v5p-24", "v4-200"])
def test_no_slice_has_such_a_number_of_chips(name: str) -> None:
    with pytest.raises(ValueError, match=r"no slice of v\w+ has \d+ chips, but 1, "):
        topology(name)


def test_gpus_fill_their_hosts() -> None:
    with pytest.raises(ValueError, match="several hosts of 8 each make no 12"):
        topology("h100-12")


def test_cpu_devices_are_those_here() -> None:
    assert topology("cpu-4") == tuple(jax.devices()[:4])
    with pytest.raises(TopologyError, match=r'has 8 CPU devices; .*"jax_num_cpu_devices", 9\)'):
        topology("cpu-9")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str, platform: str, **_options: object) -> object:
        if platform == "tpu":
            raise RuntimeError("JAX TPU support not installed; cannot generate TPU topology.")
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(topologies, "get_topology_desc", absent)
    with pytest.raises(TopologyError, match=r"v5e-8: .*libtpu: pip install 'ax-recipes\[tpu\]'"):
        topology("v5e-8")
    with pytest.raises(TopologyError, match=r"h100-8: .*nvcc.*: pip install 'ax-recipes\[cuda\]'"):
        topology("h100-8")
    with pytest.raises(TopologyError, match=r"trn2-16: .*AbstractMesh of 64.*neuron"):
        topology("trn2-16")
