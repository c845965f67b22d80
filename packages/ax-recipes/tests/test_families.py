"""The published sizes: each model has exactly as many parameters as its authors' checkpoint."""

from __future__ import annotations

import math

import jax
import pytest
from ax_layers import CausalLM
from ax_recipes import (
    deepseek,
    gemma2,
    gemma3,
    gpt2,
    llama,
    mamba2,
    mistral,
    mixtral,
    olmo2,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen3_next,
)

# As the checkpoints on huggingface.co hold them, a tied head counted once.
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v3": 671_026_419_200,  # without the layer that predicts a second token
    "olmo2-1b": 1_484_916_736,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
    "olmo2-32b": 32_234_279_936,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "mamba2-130m": 128_989_632,
    "mamba2-370m": 368_346_624,
    "mamba2-780m": 780_161_280,
    "mamba2-1.3b": 1_343_757_312,
    "mamba2-2.7b": 2_702_599_680,
    "qwen3-next-80b-a3b": 79_674_391_296,
}


def models() -> dict[str, tuple[CausalLM.Config, int]]:
    return {
        **{name: (llama.model(sizes), sizes.vocab_size) for name, sizes in llama.SIZES.items()},
        **{name: (qwen2.model(sizes), sizes.vocab_size) for name, sizes in qwen2.SIZES.items()},
        **{name: (qwen3.model(sizes), sizes.vocab_size) for name, sizes in qwen3.SIZES.items()},
        **{name: (mistral.model(sizes), sizes.vocab_size) for name, sizes in mistral.SIZES.items()},
        **{name: (mixtral.model(sizes), sizes.vocab_size) for name, sizes in mixtral.SIZES.items()},
        **{name: (qwen3_moe.model(sizes), sizes.vocab_size) for name, sizes in qwen3_moe.SIZES.items()},
        **{name: (deepseek.model(sizes), sizes.vocab_size) for name, sizes in deepseek.SIZES.items()},
        **{name: (olmo2.model(sizes), sizes.vocab_size) for name, sizes in olmo2.SIZES.items()},
        **{name: (gpt2.model(sizes), sizes.vocab_size) for name, sizes in gpt2.SIZES.items()},
        **{name: (gemma2.model(sizes), sizes.vocab_size) for name, sizes in gemma2.SIZES.items()},
        **{name: (mamba2.model(sizes), sizes.vocab_size) for name, sizes in mamba2.SIZES.items()},
        **{name: (qwen3_next.model(sizes), sizes.vocab_size) for name, sizes in qwen3_next.SIZES.items()},
        **{name: (gemma3.model(sizes), sizes.vocab_size) for name, sizes in gemma3.SIZES.items()},
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_parameters_as_published(name: str) -> None:
    config, vocab_size = models()[name]
    shapes = [spec.shape for spec in jax.tree.leaves(config.build(vocab_size=vocab_size).specs())]
    assert sum(math.prod(shape) for shape in shapes) == PUBLISHED[name]
