"""An experiment: one config tree that says everything about a training run, and the run itself.

This is where the packages meet. Each part is a child of any class that fits its Protocol; the experiment states once what
the parts share (the vocabulary, the number of steps) and hands them to each other. It fits ``Job`` of ax-runtime: it
lives in a folder, which afterwards holds

    metrics.jsonl      every step's numbers; events.… the same for TensorBoard
    checkpoints/<step> the states that were kept
    profile/<step>     traces of windows of steps, where asked for

Several processes (``jax.distributed``) run the same experiment in one folder that all of them see. Each reads its part of every batch
and saves its part of the state; the first one alone writes metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, final

import ax_config
import jax
from ax_config import AnyModifier, Buildable, field
from ax_input import ByteTokenizer
from ax_input.protocols import Tokenizer
from ax_layers import as_model
from ax_layers.protocols import ArrayTree
from ax_mesh import Mesh, peak_flops
from ax_runtime.checkpoint import OrbaxCheckpointer
from ax_runtime.protocols import Stop
from ax_trainer import ProfilerWindows
from ax_trainer.protocols import Hook, MetricSink

from ._evaluation import Evaluation, bits_per_byte
from .protocols import LanguageModel, Loop, Outcome, Pipeline, Placement, StateStore

Tree = TypeVar("Tree")


class ExperimentError(ValueError):
    """The parts of an experiment don't fit each other, or not what lies in its folder."""


@dataclass(frozen=True)
class Plan:
    """What a run is going to do, known when the data is read and before anything is compiled."""

    num_steps: int
    num_params: int
    tokens_per_step: int
    flops_per_token: float
    devices: Sequence[jax.Device]
    peak_flops: float
    """Of all devices together, FLOP/s."""
    peak_measured: bool
    """Whether the peak was measured here, rather than published by the maker."""
    data: object
    """The pipeline's report."""


@final
class Experiment:
    """Trains a causal language model on text; see the module's docstring.

    Args:
        cfg: Everything about it.
        more_sinks: More places for the metrics, besides the folder's own and the config's; of several processes, the first one's.
        hooks: Called after each step.
        on_read: Told the bytes of data read and to read, while they are read.
        on_plan: Told the plan, before the first compilation.
    """

    class Config(ax_config.Config["Experiment"]):
        """The parts, and what they share."""

        name: str
        num_steps: int
        model: Buildable[LanguageModel]
        input: Buildable[Pipeline]
        trainer: Buildable[Loop]
        tokenizer: Buildable[Tokenizer] = field(default_factory=lambda: ax_config.config_for(ByteTokenizer)())
        vocab_size: int | None = field(default=None, help="of the model; None means the tokenizer's")
        mesh: Buildable[Placement] = field(default_factory=Mesh.Config)
        checkpoints: Buildable[StateStore] = field(default_factory=OrbaxCheckpointer.Config)
        max_validation_batches: int | None = field(default=None, help="how many to evaluate on; None means all")
        evaluations: dict[str, Buildable[Evaluation]] = field(
            default_factory=dict, help="what else is evaluated on, by the name that it is reported under"
        )
        sinks: Buildable[MetricSink] | tuple[Buildable[MetricSink], ...] = field(
            default=(), help="where metrics go beside the folder's own files: one, or several; built with the folder"
        )
        profiler: Buildable[Hook] | None = field(
            default_factory=ProfilerWindows.Config, help="which steps are traced; built with the folder"
        )
        per_layer_metrics: bool = field(
            default=False, help="whether what layers report is kept of each, beside the mean"
        )
        mesh_rules: Buildable[AnyModifier] | None = field(
            default=None, help="what changes for an accelerator; applied, and taken out, by for_accelerator"
        )

    def __init__(
        self,
        cfg: Config,
        /,
        *,
        more_sinks: Sequence[MetricSink] = (),
        hooks: Sequence[Hook] = (),
        on_read: Callable[[int, int], None] | None = None,
        on_plan: Callable[[Plan], None] | None = None,
    ) -> None:
        self.cfg = cfg
        self.outcome: Outcome | None = None
        """How the last ``run`` ended."""
        self.tokenizer = cfg.tokenizer.build()
        self.model = cfg.model.build(vocab_size=_vocab_size(cfg, self.tokenizer))
        self._sinks, self._hooks = tuple(more_sinks), tuple(hooks)
        self._on_read, self._on_plan = on_read, on_plan
        self._data: Pipeline | None = None
        self._evaluations: Mapping[str, Evaluation] = {}
        if "validation" in cfg.evaluations:
            raise ExperimentError(
                "evaluations: 'validation' is the held-out part of the training data; choose another name"
            )

    def read(self) -> Pipeline:
        """Read the data, once. ``run`` does so too; to do it before shows what is wrong with it before a folder is made."""
        if self._data is None:
            shard = {} if jax.process_count() == 1 else _shard()
            self._data = self.cfg.input.build(tokenizer=self.tokenizer, on_progress=self._on_read, **shard)
            self._evaluations = {
                name: evaluation.build(tokenizer=self.tokenizer, **shard)
                for name, evaluation in self.cfg.evaluations.items()
            }
        return self._data

    def run(self, folder: Path, stop: Stop, /) -> None:
        """Train in ``folder``, from where an earlier run there ended."""
        from ax_trainer import Evaluator

        cfg = self.cfg
        mesh = cfg.mesh.build()
        data = self.read()
        plan = self._plan(data)
        if self._on_plan is not None:
            self._on_plan(plan)
        sinks = self._open_sinks(folder)
        with closing(cfg.checkpoints.build(folder=folder / "checkpoints")) as checkpointer:
            trainer = cfg.trainer.build(
                num_steps=cfg.num_steps,
                model=as_model(self.model, sharder=mesh, per_layer=cfg.per_layer_metrics),
                partitioner=mesh,
                batches=data.train(),
                evaluators={
                    "validation": Evaluator(lambda: data.validation(max_batches=cfg.max_validation_batches)),
                    **{name: evaluation.evaluator() for name, evaluation in self._evaluations.items()},
                },
                checkpointer=checkpointer,
                sinks=[*sinks, *self._sinks],
                hooks=[_Starts(sinks), *self._all_hooks(folder)],
                stop=stop,
                derive={"bits_per_byte": bits_per_byte(data)},
                tokens_per_step=plan.tokens_per_step,
                flops_per_step=plan.tokens_per_step * plan.flops_per_token,
                peak_flops=plan.peak_flops,
            )
            self.outcome = trainer.run()

    def parameters(self, folder: Path, /) -> tuple[int, ArrayTree]:
        """The step and the parameters of the newest checkpoint in a run's folder, on this process's devices.

        Raises:
            ExperimentError: There is none yet.
        """
        placement = self.cfg.mesh.build()
        specs = self.model.specs()
        abstract: ArrayTree = jax.tree.map(
            lambda spec, sharding: jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding),
            specs,
            placement.shardings(specs),
        )
        with closing(self.cfg.checkpoints.build(folder=folder / "checkpoints")) as checkpointer:
            step = checkpointer.latest()
            if step is None:
                raise ExperimentError(f"{folder} holds no checkpoint yet; train there first: ax train --run {folder}")
            return step, checkpointer.restore_part(step, {"params": abstract})["params"]

    def _all_hooks(self, folder: Path) -> Sequence[Hook]:
        return self._hooks if self.cfg.profiler is None else (*self._hooks, self.cfg.profiler.build(folder=folder))

    def _open_sinks(self, folder: Path) -> Sequence[MetricSink]:
        if jax.process_index() != 0:
            return ()
        from ax_runtime.agent import JsonlSink
        from ax_runtime.tensorboard import TensorBoardSink

        more = self.cfg.sinks if isinstance(self.cfg.sinks, tuple) else (self.cfg.sinks,)
        built = [sink.build(folder=folder) for sink in more]
        return JsonlSink(folder / "metrics.jsonl"), TensorBoardSink(folder), *built

    def _plan(self, data: Pipeline) -> Plan:
        batch_size, seq_length = data.batch_shape
        devices = jax.devices()
        peak = peak_flops(devices[0])
        return Plan(
            num_steps=self.cfg.num_steps,
            num_params=sum(math.prod(spec.shape) for spec in jax.tree.leaves(self.model.specs())),
            tokens_per_step=batch_size * seq_length,
            flops_per_token=self.model.training_flops_per_token(seq_length),
            devices=devices,
            peak_flops=peak.per_second * len(devices),
            peak_measured=peak.measured,
            data=data.report,
        )


@final
class _Starts:
    """Writes down at which steps processes began. Fits ``Hook`` and ``SupportsStartAndEnd``."""

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = sinks

    def on_start(self, step: int, /) -> None:
        for sink in self._sinks:
            sink.write(step, "speed", {"start": 1.0})

    def on_step(self, step: int, /) -> None:
        """Nothing to do."""

    def on_end(self, step: int, /) -> None:
        """Nothing to do."""


def _shard() -> dict[str, int]:
    """Which part of every batch is this process's."""
    return {"shard_index": jax.process_index(), "shard_count": jax.process_count()}


def for_accelerator(config: Experiment.Config, accelerator: str) -> Experiment.Config:
    """The effective config on an accelerator (``"h100-8"``): its mesh rules applied, and taken out; without any, as it is.

    Raises:
        NoMatchError: No rule is for this accelerator.
    """
    tree = config.clone(mesh_rules=None)
    return tree if config.mesh_rules is None else config.mesh_rules.build(accelerator=accelerator)(tree)


def _vocab_size(cfg: Experiment.Config, tokenizer: Tokenizer) -> int:
    needed = tokenizer.vocab_size
    if cfg.vocab_size is None:
        return needed
    if cfg.vocab_size < needed:
        raise ExperimentError(
            f"vocab_size is {cfg.vocab_size}, but the tokenizer has {needed} tokens; raise it or leave it None"
        )
    return cfg.vocab_size
