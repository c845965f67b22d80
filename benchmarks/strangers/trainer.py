"""Another trainer: a loop of JAX and optax in one file, that averages the parameters and steps over broken gradients.

It knows ax-trainer by its Protocols only, for their types; what trains is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import REQUIRED, Buildable, Config, replace
from ax_trainer import Evaluator, Trainer
from ax_trainer.protocols import (
    Batch,
    BatchSource,
    Checkpointer,
    Hook,
    Metrics,
    MetricSink,
    Model,
    Optimizer,
    Partitioner,
    StopSignal,
    SupportsSpecs,
)

ConfigT = TypeVar("ConfigT", bound=Config[object])


class State(NamedTuple):
    """What changes from step to step; ``average`` is empty where nobody wants one."""

    params: object
    opt_state: object
    average: object


@dataclass(frozen=True)
class Ending:
    """Fits ``Outcome`` of ax-recipes."""

    step: int
    why: Literal["finished", "stopped", "data"]


class SmallTrainer:
    """Fits ``Loop`` of ax-recipes."""

    class Config(ax_config.Config["SmallTrainer"]):
        """How to train."""

        num_steps: int = REQUIRED
        optimizer: Buildable[Optimizer] | Buildable[SupportsSpecs] = REQUIRED
        seed: int = 0
        average: float | None = None  # how much of the averaged parameters stays a step; they are what is evaluated
        skip_broken: bool = False  # leave out steps whose gradients are infinite or not a number

    def __init__(
        self,
        cfg: Config,
        /,
        *,
        model: Model[object],
        partitioner: Partitioner,
        batches: BatchSource,
        evaluators: Mapping[str, Evaluator],
        checkpointer: Checkpointer,
        sinks: Sequence[MetricSink],
        hooks: Sequence[Hook],
        stop: StopSignal,
        derive: Mapping[str, Callable[[Mapping[str, float]], float]],
        **_figures_to_report: float,
    ) -> None:
        self._cfg, self._model, self._partitioner, self._batches = cfg, model, partitioner, batches
        self._evaluators, self._checkpointer, self._sinks = evaluators, checkpointer, sinks
        self._hooks, self._stop, self._derive = hooks, stop, derive
        optimizer = cfg.optimizer.build()
        self._optimizer = optimizer.for_specs(model.specs()) if isinstance(optimizer, SupportsSpecs) else optimizer

    def run(self) -> Ending:
        """Train from the newest checkpoint, if there is one."""
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
            stack.enter_context(self._partitioner.activate())
            return self._run()

    def _run(self) -> Ending:
        cfg, why = self._cfg, "finished"
        state, done = self._init(), self._checkpointer.latest() or 0
        if done:
            described = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
            state, blobs = self._checkpointer.restore(done, described)
            self._batches.set_state(blobs["input"])
        for sink in self._sinks:
            sink.rewind(done)
        step = jax.jit(self._step, donate_argnums=0)
        while done < cfg.num_steps and why == "finished":
            batch = next(self._batches, None)
            if batch is None:
                why = "data"
                break
            state, metrics = step(state, self._partitioner.put(batch), self._key(done))
            done += 1
            self._report(done, "train", {name: float(value) for name, (value, _) in metrics.items()})
            for hook in self._hooks:
                hook.on_step(done)
            if self._stop.should_stop(done):
                why = "stopped"
        self._evaluate(done, state)
        self._checkpointer.save(done, state, {"input": self._batches.get_state()})
        self._checkpointer.wait()
        return Ending(done, cast("Literal['finished', 'stopped', 'data']", why))

    def _key(self, step: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(self._cfg.seed), step)

    def _init(self) -> State:
        shardings = self._partitioner.shardings(self._model.specs())
        params = jax.jit(self._model.init, out_shardings=shardings)(jax.random.key(self._cfg.seed))
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            opt_state = jax.jit(self._optimizer.init)(params)
        average = jax.tree.map(jnp.copy, params) if self._cfg.average is not None else ()
        return State(params, opt_state, average)

    def _step(self, state: State, batch: Batch, key: jax.Array) -> tuple[State, Metrics]:
        def loss_of(params: object) -> tuple[jax.Array, Metrics]:
            return self._model.loss(params, batch, key=key, train=True)

        gradients, metrics = jax.grad(loss_of, has_aux=True)(state.params)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax relies on them
            norm = optax.tree.norm(gradients)
            update = optax.with_extra_args_support(self._optimizer).update
            updates, opt_state = update(gradients, state.opt_state, state.params, grad_norm=norm)
            params = optax.apply_updates(state.params, updates)
        average, kept = state.average, self._cfg.average
        if kept is not None:
            average = jax.tree.map(lambda old, new: old * kept + new * (1 - kept), average, params)
        new = State(params, opt_state, average)
        if self._cfg.skip_broken:
            new = jax.tree.map(lambda after, before: jnp.where(jnp.isfinite(norm), after, before), new, state)
        return new, {**metrics, "grad_norm": (norm, jnp.ones((), jnp.float32))}

    def _evaluate(self, step: int, state: State) -> None:
        params = state.params if self._cfg.average is None else state.average
        loss = jax.jit(lambda params, batch: self._model.loss(params, batch, key=self._key(0), train=False)[1])
        for name, evaluator in self._evaluators.items():
            each = [loss(params, self._partitioner.put(batch)) for batch in evaluator.batches()]
            means = {k: np.average([m[k][0] for m in each], weights=[m[k][1] for m in each]) for k in each[0]}
            self._report(step, name, {k: float(mean) for k, mean in means.items()})

    def _report(self, step: int, group: str, values: Mapping[str, float]) -> None:
        derived = {name: rule(values) for name, rule in self._derive.items()}
        for sink in self._sinks:
            sink.write(step, group, {**values, **derived})


_Small = SmallTrainer.Config
VARIANTS: Mapping[str, SmallTrainer.Config] = {
    "plain": _Small(),
    "another seed": _Small(seed=1),
    "skipping": _Small(skip_broken=True),
    "averaging 0.9": _Small(average=0.9),
    "averaging 0.99": _Small(average=0.99),
    "averaging 0.999": _Small(average=0.999),
    "averaging 0.9999": _Small(average=0.9999),
    "averaging 0.9, skipping": _Small(average=0.9, skip_broken=True),
    "averaging 0.99, skipping": _Small(average=0.99, skip_broken=True),
    "averaging 0.999, skipping": _Small(average=0.999, skip_broken=True),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """The small trainer trains, with the same optimizer."""
    return replace(tree, Trainer, VARIANTS[variant], carry=("optimizer",))
