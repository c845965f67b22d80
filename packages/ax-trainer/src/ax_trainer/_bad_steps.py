"""What is to be done about a step whose numbers are bad: not finite, or a loss far above those before.

The loop reads a step's numbers when the next step is under way, so a bad step has already changed the parameters. What can be done
is to ``stop``, with the last checkpoint intact, or to ``rewind``: the model goes back to the newest checkpoint, the data doesn't, and
training goes on with the batch after the bad one. (PaLM's authors did this by hand, at loss spikes: Chowdhery et al. 2022,
arXiv:2204.02311, section 5.1.) An optimizer that leaves bad updates out itself reports a metric ``skipped``; that is noted, and counts.

Interventions are limited, for a run that needs one every few steps is broken. All is decided by numbers that every process has, and
what is remembered goes into checkpoints: a run that is killed and repeated decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict, final

import ax_config
import numpy as np
from ax_config import Buildable

Action: TypeAlias = Literal["note", "skip", "rewind", "stop"]

WATCHED = ("loss", "grad_norm", "skipped")
"""The metrics that are read at every step."""


class BadStepError(ArithmeticError):
    """A step went wrong, and the policy is to stop, or interventions were too many."""


class NonFiniteError(BadStepError, FloatingPointError):
    """A loss or a gradient is not a number any more."""


class Memory(TypedDict):
    """What is remembered, as JSON."""

    losses: list[float]
    """Recent ones that were good, oldest first."""
    interventions: list[int]
    """The steps that were skipped or from which training went back."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a step, and what to do about it."""

    step: int
    action: Action
    why: str
    values: Mapping[str, float]
    """The numbers that were looked at."""
    finite: bool

    def error(self) -> BadStepError:
        """To be raised if the action is to stop."""
        text = (
            f"{self.why}. Nothing of this step was saved, the last checkpoint is intact. Lower the learning "
            "rate, clip the gradients, or look for a bad batch"
        )
        return BadStepError(text) if self.finite else NonFiniteError(text)


@final
class LossSpike:
    """A loss is a spike if it exceeds the mean of those before by so many of their standard deviations."""

    class Config(ax_config.Config["LossSpike"]):
        """When a loss is a spike."""

        deviations: float = 6.0
        window: int = 128
        """How many losses before it are looked at."""
        min_losses: int = 32
        """With fewer nothing is a spike."""

    def __init__(self, cfg: Config, /) -> None:
        if not 2 <= cfg.min_losses <= cfg.window:
            raise ValueError(f"min_losses must be from 2 to window, got {cfg.min_losses} and {cfg.window}")
        if cfg.deviations <= 0:
            raise ValueError(f"deviations must be positive, got {cfg.deviations}")
        self.cfg = cfg

    def deviations(self, loss: float, losses: list[float], /) -> float:
        """By how many standard deviations ``loss`` exceeds the mean of ``losses``; 0 where that can't be said."""
        deviation = float(np.std(losses)) if len(losses) >= self.cfg.min_losses else 0.0
        return (loss - float(np.mean(losses))) / deviation if deviation else 0.0


@final
class BadSteps:
    """Judges each step by its numbers; see the module's docstring."""

    class Config(ax_config.Config["BadSteps"]):
        """What to do. With the defaults training stops when numbers aren't finite."""

        on_non_finite: Literal["stop", "rewind"] = "stop"
        """What to do about a loss or a gradient that isn't finite, and that the optimizer did not skip."""
        spike: Buildable[LossSpike] | None = None
        """When a finite loss is bad; never, if None."""
        on_spike: Literal["note", "rewind", "stop"] = "rewind"
        """What to do then."""
        max_interventions: int = 8
        """So many steps may be skipped or gone back from within ``within_steps``; at one more training stops."""
        within_steps: int = 1000

    def __init__(self, cfg: Config, /) -> None:
        for name, value in (("max_interventions", cfg.max_interventions), ("within_steps", cfg.within_steps)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._cfg = cfg
        self._spike = None if cfg.spike is None else cfg.spike.build()
        self._losses: list[float] = []
        self._interventions: list[int] = []

    @property
    def memory(self) -> Memory:
        """What is remembered, for a checkpoint."""
        return {"losses": list(self._losses), "interventions": list(self._interventions)}

    def restore(self, memory: Memory | None, /) -> None:
        """Remember what a checkpoint holds, if it does."""
        self.go_back(memory)
        self._interventions = [] if memory is None else list(memory["interventions"])

    def go_back(self, memory: Memory | None, /) -> None:
        """Remember what a checkpoint holds of losses, if it does; interventions stay."""
        self._losses = [] if memory is None else list(memory["losses"])

    def judge(self, step: int, values: Mapping[str, float], /) -> Verdict | None:
        """What is wrong with a step of these numbers, if anything; to be called at each step, in order."""
        cfg = self._cfg
        finite = all(math.isfinite(values.get(name, 0.0)) for name in ("loss", "grad_norm"))
        if values.get("skipped", 0.0) > 0:
            return self._intervene(step, "skip", f"train: the update of step {step} was skipped", values, finite)
        if not finite:
            name = next(name for name in ("loss", "grad_norm") if not math.isfinite(values.get(name, 0.0)))
            return self._intervene(
                step, cfg.on_non_finite, f"train: {name} is {values[name]} at step {step}", values, finite
            )
        if self._spike is None:
            return None
        deviations = self._spike.deviations(values["loss"], self._losses)
        if deviations <= self._spike.cfg.deviations:
            self._losses = [*self._losses, values["loss"]][-self._spike.cfg.window :]
            return None
        high = f"{deviations:.1f} standard deviations above those before"
        why = f"train: loss is {values['loss']:.6g} at step {step}, {high}"
        return self._intervene(step, cfg.on_spike, why, {**values, "deviations": deviations}, finite)

    def _intervene(self, step: int, action: Action, why: str, values: Mapping[str, float], finite: bool) -> Verdict:
        if action in ("skip", "rewind"):
            cfg = self._cfg
            recent = [earlier for earlier in self._interventions if step - earlier < cfg.within_steps]
            if len(recent) >= cfg.max_interventions:
                why = (
                    f"{why}; {len(recent)} of the last {cfg.within_steps} steps were skipped or gone back from already "
                    f"(max_interventions), the latest of them {recent[-1]}"
                )
                action = "stop"
            else:
                self._interventions = [*recent, step]
        return Verdict(step, action, why, values, finite)
