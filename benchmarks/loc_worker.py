"""What one feature does when it is applied, for ``loc_complexity.py``, which starts this in a copy of the tree.

    python -m benchmarks.loc_worker rope --experiments 1 10 --variants 1 10 --samples 1

For each number of experiments and of variants, each variant is put into each experiment's config by the feature's modifier,
and what comes out is built without memory: the model and its parameters' shapes, and whatever other part was changed.
Of a few the loss and its gradient are traced, and a few small ones train and then decode. Each result is a line of JSON on stdout.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import Modifier, chain, describes, fingerprint, modifier_for, setting
from ax_config.testing import check_config, check_modifier
from ax_input import TextInput
from ax_layers import Attention, CausalLM, GatedFeedForward, Repeat, as_decoder, as_model, functional
from ax_layers.protocols import ArrayTree, LanguageModel
from ax_recipes import Experiment, recipe
from ax_runtime.testing import StopAfter

P = ParamSpec("P")
VOCAB_SIZE = 257
RECIPES = ("tiny", "llama-60m", "smollm2-135m")
"""The recipes of the catalogue that any machine can train."""
NUM_STEPS = 2  # of the small trainings: the second has seen the first one's update


# The experiments.


class Sizes(NamedTuple):
    """What tells one experiment from another."""

    learning_rate: float
    hidden_dim: int
    num_layers: int
    heads: tuple[int, int, int]  # heads, key-value heads, head dim
    recipe: str


def experiments() -> Iterator[Experiment.Config]:
    """Configs of experiments, all different: every recipe of ``RECIPES`` in many sizes."""
    rates, hidden_dims, depths = (3e-4, 6e-4, 1e-3, 2e-3), (256, 688, 1_376, 2_752), (2, 4, 8, 16, 32)
    heads = ((4, 4, 32), (8, 2, 64), (8, 1, 64), (12, 4, 64), (16, 8, 128))
    for sizes in itertools.starmap(Sizes, itertools.product(rates, hidden_dims, depths, heads, RECIPES)):
        yield resized(recipe(sizes.recipe)(num_steps=1_000), sizes)


def resized(config: Experiment.Config, sizes: Sizes) -> Experiment.Config:
    num_heads, num_kv_heads, head_dim = sizes.heads
    resize = chain(
        setting(describes(optax.warmup_cosine_decay_schedule), peak_value=sizes.learning_rate),
        setting(GatedFeedForward, hidden_dim=sizes.hidden_dim),
        setting(Repeat, num_layers=sizes.num_layers),
        setting(Attention, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim),
        setting(CausalLM, dim=num_heads * head_dim),
    )
    return resize(config)


def distinct(configs: Iterator[Experiment.Config], count: int) -> list[Experiment.Config]:
    """The first ``count``, which have to differ."""
    taken = list(itertools.islice(configs, count))
    assert len({fingerprint(config) for config in taken}) == count, f"there are no {count} different experiments"
    return taken


# What is done with each.


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stranger's module: its modifier, with each variant."""

    name: str
    variants: Mapping[str, Modifier]

    @classmethod
    def load(cls, name: str) -> Feature:
        module = importlib.import_module(f"benchmarks.strangers.{name}")
        variants: Mapping[str, object] = module.VARIANTS
        return cls(name, {variant: modifier_for(module.modify, variant=variant) for variant in variants})


class NoData:
    """Stands where a trainer is given its data when nothing is going to be read."""

    def __next__(self) -> Mapping[str, np.ndarray]:
        raise StopIteration

    def get_state(self) -> bytes:
        return b""

    def set_state(self, state: bytes, /) -> None:
        pass


def build(modifier: Modifier, before: Experiment.Config) -> None:
    """Modify an experiment, build it with its model, say what parameters it has, and build each other part that changed."""
    config = modifier(before)
    assert config != before, "the modifier changed nothing"
    experiment = config.build()
    specs = experiment.model.specs()
    assert all(math.prod(spec.shape) > 0 for spec in jax.tree.leaves(specs))
    assert experiment.model.training_flops_per_token(256) > 0
    if config.checkpoints != before.checkpoints:
        config.checkpoints.build(folder=Path("nowhere")).close()
    if config.input != before.input:
        config.input.build(tokenizer=experiment.tokenizer, on_progress=None)
    if config.trainer != before.trainer:
        placement = config.mesh.build()
        config.trainer.build(
            num_steps=config.num_steps,
            model=as_model(experiment.model, sharder=placement),
            partitioner=placement,
            batches=NoData(),
            evaluators={},
            checkpointer=None,
            sinks=(),
            hooks=(),
            stop=StopAfter(1),
            derive={},
            tokens_per_step=1,
            flops_per_step=1.0,
            peak_flops=1.0,
        )


def trace(modifier: Modifier, before: Experiment.Config) -> None:
    """The loss and its gradient for a batch, by shapes alone."""
    model = as_model(modifier(before).model.build(vocab_size=VOCAB_SIZE))
    tokens = jax.ShapeDtypeStruct((8, 16), np.int32)

    def loss(params: ArrayTree, batch: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
        return model.loss(params, batch, key=key, train=True)[0]

    params = jax.eval_shape(model.init, jax.random.key(0))
    value, gradients = jax.eval_shape(
        jax.value_and_grad(loss), params, {"tokens": tokens, "targets": tokens}, jax.random.key(0)
    )
    assert value.shape == (), f"the loss has the shape {value.shape}"
    assert jax.tree.map(lambda x: x.shape, gradients) == jax.tree.map(lambda x: x.shape, params)


def train(variant: str, modifier: Modifier, folder: Path, report: Reporter) -> None:
    """A small experiment, run as ``ax train`` would run it; what comes out of it decodes."""
    experiment = modifier(smallest_experiment(folder)).build()
    experiment.run(folder, StopAfter(NUM_STEPS))
    assert experiment.outcome is not None
    assert experiment.outcome.step == NUM_STEPS, f"it ended at step {experiment.outcome.step}"
    step, params = experiment.parameters(folder)
    assert step == NUM_STEPS, f"the newest checkpoint is of step {step}"
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(params)), "parameters are not finite"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    values = {(record["name"], record["step"]): record for record in records}
    losses = [values["train", step]["loss"] for step in range(1, NUM_STEPS + 1)]
    norms = [values["train", step]["grad_norm"] for step in range(1, NUM_STEPS + 1)]
    assert all(map(math.isfinite, [*losses, *norms])), f"losses {losses}, gradients' norms {norms}"
    assert min(norms) > 0, f"the gradients' norms are {norms}"
    validation_loss = values["validation", NUM_STEPS]["loss"]
    decoding_error = decode(experiment.model, params)
    assert math.isfinite(decoding_error), "what is decoded isn't finite"
    report.write(
        "trained",
        variant=variant,
        losses=losses,
        grad_norms=norms,
        validation_loss=validation_loss,
        decoding_error=decoding_error,
    )


def decode(model: LanguageModel, params: ArrayTree) -> float:
    """How far the logits of prefill and decode are from the forward pass's at most, as a share of the largest of those."""
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, VOCAB_SIZE, (2, 24)), jnp.int32)
    whole, _ = jax.jit(functional(model))(params, None, tokens)
    decoder, sequences, lengths = as_decoder(model), np.arange(2), np.array([16, 11], np.int32)
    prefill, step = jax.jit(decoder.prefill), jax.jit(decoder.decode)
    logits, cache = prefill(params, tokens[:, :16], jnp.asarray(lengths), decoder.init_cache(*tokens.shape))
    errors = [jnp.abs(logits - whole[sequences, lengths - 1]).max()]
    for at in (lengths + i for i in range(tokens.shape[1] - max(lengths))):
        logits, cache = step(params, tokens[sequences, at], cache)
        errors.append(jnp.abs(logits - whole[sequences, at]).max())
    return float(jnp.stack(errors).max() / jnp.abs(whole).max())


def smallest_experiment(folder: Path) -> Experiment.Config:
    """The catalogue's first, made to run in seconds on text that is put into the folder."""
    name = RECIPES[0]
    small = resized(recipe(name)(num_steps=NUM_STEPS), Sizes(1e-2, 64, 2, (2, 1, 16), name))
    small.max_validation_batches = 1
    return setting(TextInput, paths=(write_text(folder / "text"),), seq_length=64)(small)


def write_text(folder: Path) -> str:
    """A few modules of the standard library."""
    folder.mkdir(parents=True)
    for name in ("argparse", "ast", "bisect", "calendar"):
        (folder / f"{name}.py").write_bytes((Path(os.__file__).parent / f"{name}.py").read_bytes())
    return str(folder)


# Nothing of ours may be changed behind our back.


def ours() -> dict[tuple[str, str], object]:
    """Every function and class of our loaded modules, and every attribute of those classes."""
    found: dict[tuple[str, str], object] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("ax_") and isinstance(module, ModuleType):
            for attribute, value in vars(module).items():
                if callable(value):
                    found[name, attribute] = value
                if isinstance(value, type) and value.__module__ == name:
                    found.update(
                        {(name, f"{attribute}.{key}"): part for key, part in vars(value).items() if callable(part)}
                    )
    return found


def check_nothing_patched(before: Mapping[tuple[str, str], object]) -> None:
    after = ours()
    patched = [".".join(key) for key, value in before.items() if key in after and after[key] is not value]
    assert not patched, f"the feature changes what was imported: {', '.join(patched)}"


# The run.


class Reporter:
    """Results as lines of JSON; a failure is one too, and ends nothing."""

    def __init__(self, feature: str) -> None:
        self._feature = feature

    def write(self, kind: str, **values: object) -> None:
        print(json.dumps({"kind": kind, "feature": self._feature, **values}), flush=True)

    def attempt(self, what: str, action: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Whether the action went well."""
        try:
            action(*args, **kwargs)
        except Exception as error:  # whatever a feature may do wrong is reported, and by name
            self.write("failure", what=what, error=f"{type(error).__qualname__}: {error}")
            return False
        return True


def count_different(feature: Feature, config: Experiment.Config, report: Reporter) -> None:
    """How many variants give configs that nobody has had before."""
    results = {fingerprint(modifier(config)) for modifier in feature.variants.values()}
    report.write("counted", variants=len(feature.variants), different=len(results - {fingerprint(config)}))


def apply_to_all(feature: Feature, configs: Sequence[Experiment.Config], num_variants: int, report: Reporter) -> None:
    """Every variant into every config; counted and timed."""
    start, built = time.perf_counter(), 0
    for name, modifier in itertools.islice(feature.variants.items(), num_variants):
        for i, config in enumerate(configs):
            if not report.attempt(f"variant {name!r} in experiment {i}", build, modifier, config):
                break  # the others would most likely say the same
            built += 1
    seconds = time.perf_counter() - start
    report.write("applied", experiments=len(configs), variants=num_variants, built=built, seconds=seconds)


def spread(things: Sequence[str], count: int) -> list[str]:
    """``count`` of them, the first and the last included."""
    return [things[round(i * (len(things) - 1) / max(count - 1, 1))] for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("feature")
    parser.add_argument("--experiments", type=int, nargs="+", required=True)
    parser.add_argument("--variants", type=int, nargs="+", required=True)
    parser.add_argument("--samples", type=int, required=True, help="how many to trace, and how many to train")
    args = parser.parse_args()
    logging.disable(logging.WARNING)

    report = Reporter(args.feature)
    configs = distinct(experiments(), max(args.experiments))
    before = ours()
    feature = Feature.load(args.feature)
    for name, modifier in feature.variants.items():
        report.attempt(f"the modifier's laws, variant {name!r}", check_modifier, modifier, configs[0])
        report.attempt(f"the modifier's text, variant {name!r}", check_config, modifier)
    report.attempt("telling its variants apart", count_different, feature, configs[0], report)
    for num_variants, num_experiments in itertools.product(args.variants, args.experiments):
        apply_to_all(feature, configs[:num_experiments], num_variants, report)
    report.attempt("leaving the packages alone", check_nothing_patched, before)
    for i, name in enumerate(spread(list(feature.variants), args.samples)):
        modifier, config = feature.variants[name], configs[i * (len(configs) - 1) // max(args.samples - 1, 1)]
        if report.attempt(f"the loss, variant {name!r}", trace, modifier, config):
            report.write("traced", variant=name)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            report.attempt(f"training, variant {name!r}", train, name, modifier, Path(folder), report)


if __name__ == "__main__":
    main()
