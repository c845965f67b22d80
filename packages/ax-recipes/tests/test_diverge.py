"""``ax diverge``: what is the same parts nowhere, and a change is found where it is, from configs and from a saved record."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from ax_recipes import llama
from ax_recipes._records import Record
from ax_recipes._transformers import module_pairs
from ax_recipes.cli import main

SMALL = ("--rows", "2", "--length", "16", "--set", "model.layers.num_layers=2")


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    monkeypatch.setattr("sys.argv", ["ax", "diverge", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return ended.value.code, captured.out + captured.err


def test_a_planted_change_is_found_from_a_record_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text, record = tmp_path / "text.txt", tmp_path / "here.npz"
    text.write_text("Of two steps the first is the one that counts.\n" * 60)
    small = ("tiny", *SMALL, "--data", str(text))
    code, told = run(monkeypatch, capsys, *small, "--save", str(record))
    assert (code, record.exists()) == (0, True), told

    code, told = run(monkeypatch, capsys, str(record), *small)
    assert code == 0, told
    assert "no divergence: 79 arrays agree to 0.0001; the most, 0.0e+00" in told

    code, told = run(monkeypatch, capsys, str(record), *small, "--set-b", "model.norm.eps=0.1")
    assert code == 1, told
    assert "first divergence: forward/norm at [" in told

    code, told = run(monkeypatch, capsys, *small, "--save", str(tmp_path / "here"))
    assert (code, "a record's name ends with .npz" in told) == (2, True), told
    code, told = run(monkeypatch, capsys, str(record), *small, "--set-a", "model.norm.eps=0.1")
    assert (code, "is a record: no value of it can be set" in told) == (2, True), told
    code, told = run(monkeypatch, capsys, str(text.with_suffix(".npz")), *small)
    assert (code, "is no record that `ax diverge --save` wrote" in told) == (2, True), told


def test_modules_are_paired_by_the_weight_map() -> None:
    pairs = module_pairs(llama.weights(llama.SIZES["tiny"]._replace(num_layers=2)))
    assert pairs == {
        "embedding": "model.embed_tokens",
        **{
            f"{ours}.{i}": f"model.layers.{i}{theirs}"
            for i in range(2)
            for ours, theirs in {
                "layers": "",
                "layers/attention_norm": ".input_layernorm",
                "layers/attention": ".self_attn",
                "layers/attention/query": ".self_attn.q_proj",
                "layers/attention/key": ".self_attn.k_proj",
                "layers/attention/value": ".self_attn.v_proj",
                "layers/attention/output": ".self_attn.o_proj",
                "layers/ffn_norm": ".post_attention_layernorm",
                "layers/ffn": ".mlp",
                "layers/ffn/gate": ".mlp.gate_proj",
                "layers/ffn/up": ".mlp.up_proj",
                "layers/ffn/down": ".mlp.down_proj",
            }.items()
        },
        "norm": "model.norm",
    }


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float8_e5m2, jnp.float8_e4m3fn, jnp.float32, jnp.int32])
def test_a_record_comes_back_whatever_its_types(dtype: type, tmp_path: Path) -> None:
    array = np.asarray(jnp.array([0, 1, -2], dtype))
    saved = Record({"tokens": np.arange(3)}, {"loss": array})
    saved.save(tmp_path / "a.npz")
    (found,) = saved.compare(Record.load(tmp_path / "a.npz"))
    assert (found.name, found.relative) == ("loss", 0.0)
