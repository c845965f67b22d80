"""``ax diverge``: two computations of one step side by side, and the first place where they part."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ax_config import override
from ax_config.overrides import assignment
from ax_trainer import Difference, first_divergence
from rich import box
from rich.console import Console
from rich.table import Table

from ax_recipes._catalogue import effective
from ax_recipes._experiment import Experiment, ExperimentError
from ax_recipes._records import Batch, Record, first_batch, record_experiment
from ax_recipes._runs import config_of

_AROUND = 4
_WORST = 5


@dataclass(frozen=True)
class Side:
    """What one of the two is."""

    name: str
    overrides: tuple[str, ...]
    num_devices: int | None

    @property
    def is_record(self) -> bool:
        """Whether it was computed before."""
        return self.name.endswith(".npz")

    @property
    def run(self) -> Path | None:
        """The folder, if it is a run's."""
        return Path(self.name) if Path(self.name).is_dir() else None

    @property
    def is_of_transformers(self) -> bool:
        """Whether it is a folder in Hugging Face's form."""
        return (Path(self.name) / "config.json").is_file()


@dataclass(frozen=True)
class DivergeCommand:
    """The options of ``ax diverge``; calling it compares."""

    a: Side
    b: Side | None
    overrides: tuple[str, ...]
    on: str
    data: tuple[str, ...]
    num_rows: int
    length: int
    seed: int
    cpu_devices: int | None
    tolerance: float
    save: Path | None
    everything: bool

    def __call__(self) -> None:
        """Compare, print, and leave with 1 if the two part."""
        self._check()
        if self.cpu_devices is not None:
            import jax

            jax.config.update("jax_num_cpu_devices", self.cpu_devices)
        console = Console()
        if self.b is None:
            assert self.save is not None
            record = self._record(self.a, self._batch(self.a))
            record.save(self.save)
            console.print(f"{len(record.observations):,} arrays in {self.save}", highlight=False, soft_wrap=True)
            return
        a, b = self._both(self.b)
        if self.save is not None:
            a.save(self.save)
        self._report(console, a, b)

    def _check(self) -> None:
        """Nothing that was asked for is left out in silence."""
        for side in filter(None, (self.a, self.b)):
            fixed = "a record" if side.is_record else "a model of transformers" if side.is_of_transformers else None
            if fixed is not None and (side.overrides or side.num_devices is not None):
                raise ExperimentError(
                    f"{side.name} is {fixed}: no value of it can be set, nor on how many devices it runs"
                )
        if self.save is not None and self.save.suffix != ".npz":
            raise ExperimentError(f"--save {self.save}: a record's name ends with .npz")

    def _both(self, other: Side) -> tuple[Record, Record]:
        if other.is_of_transformers:
            return self._against_transformers(Path(other.name))
        batch = self._batch(other if other.is_record and not self.a.is_record else self.a)
        return self._record(self.a, batch), self._record(other, batch)

    def _record(self, side: Side, batch: Batch) -> Record:
        if side.is_record:
            return Record.load(Path(side.name))
        config = self._config(side)
        return record_experiment(config, batch, run=side.run, seed=self.seed, num_devices=side.num_devices)

    def _batch(self, side: Side) -> Batch:
        if side.is_record:
            return Record.load(Path(side.name)).batch
        return first_batch(self._config(side), num_rows=self.num_rows, length=self.length)

    def _config(self, side: Side) -> Experiment.Config:
        config = effective(side.name, on=self.on) if side.run is None else config_of(side.run)
        given = [f"input.paths={tuple(str(Path(path).absolute()) for path in self.data)!r}"] if self.data else []
        return override(config, [assignment(text, "--set") for text in (*given, *self.overrides, *side.overrides)])

    def _against_transformers(self, folder: Path) -> tuple[Record, Record]:
        from ax_recipes._models import model, published
        from ax_recipes._transformers import load, record_both

        family, sizes = published(self.a.name)
        config = override(
            model(self.a.name), [assignment(text, "--set") for text in (*self.overrides, *self.a.overrides)]
        )
        rng = np.random.default_rng(self.seed)
        tokens = rng.integers(0, config.vocab_size, (self.num_rows, self.length + 1), dtype=np.int32)
        batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
        return record_both(load(folder), config, family.weights(sizes), batch)

    def _report(self, console: Console, a: Record, b: Record) -> None:
        found = a.compare(b)
        if not found:
            raise ExperimentError("the two sides have nothing of the same name, so there is nothing to compare")
        first = first_divergence(found, tolerance=self.tolerance)
        for side, left in (("A", a), ("B", b)):
            names = left.observations.keys() - {each.name for each in found}
            if names:
                shown = ", ".join(sorted(names)[:_WORST]) + (" …" if len(names) > _WORST else "")
                console.print(f"only {side} has {len(names)}: {shown}", highlight=False, markup=False, style="dim")
        worst = max(found, key=lambda each: each.relative)
        if worst.relative or self.everything:
            console.print(self._table(found, first))
        if first is None:
            console.print(
                f"no divergence: {len(found):,} arrays agree to {self.tolerance:g}; the most, {worst.relative:.1e}, in "
                f"{worst.name}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            return
        where = f" at {list(first.where)}: {first.a:.6g} and {first.b:.6g}" if first.where else ""
        console.print(
            f"first divergence: {first.name}{where}{f' ({first.problem})' if first.problem else ''}",
            style="bold",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        sys.exit(1)

    def _table(self, found: Sequence[Difference], first: Difference | None) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        table.add_column("in the order of computation", no_wrap=True)
        table.add_column("shape", style="dim", no_wrap=True)
        for title in ("relative", "largest |a - b|"):
            table.add_column(title, justify="right", no_wrap=True)
        at = found.index(first) if first is not None else 0
        shown = found if self.everything else found[max(0, at - _AROUND) : at + _AROUND + 1]
        if first is None and not self.everything:
            shown = sorted(found, key=lambda each: -each.relative)[: 2 * _AROUND]
            table.columns[1].header = "the largest differences"
        for each in shown:
            beyond = not each.relative <= self.tolerance
            table.add_row(
                "→" if each is first else "×" if beyond else "",
                each.name,
                "×".join(map(str, each.shape)) or "scalar",
                f"{each.relative:.1e}",
                f"{each.largest:.1e}",
                style="bold red" if each is first else "red" if beyond else "",
            )
        return table
