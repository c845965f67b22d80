"""Options for compilers, as data; tests/chips holds them to the compilers."""

from __future__ import annotations

import pytest
from ax_config import NoMatchError
from ax_mesh import ACCELERATORS, COMPILER_OPTIONS, Mesh, compiler_options


def test_every_accelerator_has_some_of_its_platform() -> None:
    assert {row.name for row in ACCELERATORS} == set(COMPILER_OPTIONS)
    for row in ACCELERATORS:
        prefix = {"tpu": ("xla_tpu_", "xla_enable_async_"), "cuda": ("xla_gpu_",)}.get(row.platform, ())
        assert all(name.startswith(prefix) for name in compiler_options(row.name))
    assert compiler_options("cpu") == {}
    assert compiler_options("v5e") != compiler_options("h100")


def test_another_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(NoMatchError, match=r"no accelerator 'h101'; did you mean .*h100"):
        compiler_options("h101")


def test_a_mesh_has_those_of_its_config() -> None:
    assert Mesh.Config().build().compiler_options == {}
    assert Mesh.Config(compiler_options=compiler_options("v5p")).build().compiler_options == compiler_options("v5p")
