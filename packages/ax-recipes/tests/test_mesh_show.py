"""``ax mesh show``: the mesh drawn, every parameter's sharding, and what a device holds."""

from __future__ import annotations

import math

import jax
import pytest
from ax_recipes.cli import main


def shown(*arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.argv", ["ax", "mesh", "show", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


def cells(text: str, first: str) -> list[str]:
    (line,) = [line.split() for line in text.splitlines() if line.split()[:1] == [first]]
    return line


def test_every_parameter_and_the_totals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device(*_: object) -> None:
        raise AssertionError("it looks at no device")

    monkeypatch.setattr(jax, "devices", no_device)
    code, text = shown(
        "llama-2-7b",
        "--on",
        "h100-64",
        "--set",
        "mesh.axes={'fsdp': 2, 'tensor': 4}",
        "--set",
        "mesh.between={'data': -1}",
        capsys=capsys,
        monkeypatch=monkeypatch,
    )
    assert code == 0
    assert "64 chips, 79.1 GiB a device" in text
    assert cells(text, "data")[1:] == ["8", "1", "8", "batch"]
    assert cells(text, "tensor")[1:4] == ["4", "4", "–"]
    assert "× 8 data, between slices or nodes" in text
    assert "│ fsdp ↓ 0 1 2 3  │" in text
    up = ["float32", "layers", "32", "×", "embed", "4,096/fsdp", "×", "mlp", "11,008/tensor"]
    # A quarter, and of that half, of 4 bytes each; a copy for each of the 8 groups.
    assert cells(text, "layers/ffn/up/weight")[1:13] == [*up, f"{32 * 4096 * 11008 / 8 * 4 / 2**20:.1f}", "MiB", "8"]
    assert "norm: a rule keeps it whole" in text
    parameters = cells(text, "parameters")
    assert parameters[1:5] == ["25.1", "GiB", "3.1", "GiB"]
    moments = cells(text, "optimizer")
    assert moments[1:5] == ["50.2", "GiB", "6.3", "GiB"]
    norms = (2 * 32 + 1) * 4096 * 4
    assert parameters[-2:] == [f"{norms / 2**20:.1f}", "MiB"]
    assert math.isclose(float(moments[-2]), 2 * norms / 2**20, abs_tol=0.06)


def test_the_optimizers_own_rules_show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rules = "mesh.optimizer_rules=(('embed', 'data'),)"
    code, text = shown("tiny", "--on", "v5e-8", "--set", rules, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    assert cells(text, "parameters")[1:5] == ["7.3", "MiB", "7.3", "MiB"]
    assert cells(text, "optimizer")[1:5] == ["14.5", "MiB", "1.8", "MiB"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--on", "v5e-8x4"], "v5e-8x4 is 4 slices, but mesh.between makes 1"),
        (["tiny", "--on", "v5e-8", "--set", "mesh.axes={'data': 3}"], "Legal are: data=8"),
        (["tiny", "--on", "v5e-8", "--set", "mesh.overrides={'layer/*': ()}"], "'layer/*' match no parameter"),
        (["tiny", "--on", "v5x-8"], "v5x"),
    ],
)
def test_what_does_not_fit_is_told_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = shown(*arguments, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert message in " ".join(text.split())
    assert "Traceback" not in text


def test_help_teaches(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = shown("--help", capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    for word in ("mesh.axes", "mesh.between", "mesh.overrides", "mesh.optimizer_rules", "v5p-512"):
        assert word in text
