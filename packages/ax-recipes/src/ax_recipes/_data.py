"""Which data a recipe trains on: files and folders of text as they are, or folders that ``ax data prepare`` made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ax_config import Buildable, loads, set_at
from ax_input import Mixture, PreparedCorpus, PreparedText, TextCorpus, TextInput
from ax_input.protocols import Corpus

from ._experiment import Experiment, ExperimentError

_SHARED = ("seq_length", "batch_size", "packing", "seed", "shuffle", "skip", "read_ahead")
"""What a mixture is told as the text input was."""


def with_data(config: Experiment.Config, paths: Sequence[str], /) -> Experiment.Config:
    """The experiment on other data: text at ``paths``, URLs among them, and prepared corpora with the tokenizer they were made by.

    Prepared corpora, and text beside them, are sources of a mixture, each with as much weight as it has tokens.

    Raises:
        ExperimentError: The recipe's input isn't text, and would have to be replaced.
        DataError: A corpus isn't complete.
    """
    given = [path if "://" in path else str(Path(path).expanduser().absolute()) for path in paths]
    prepared = [path for path in given if Path(path, "ax-corpus.json").is_file()]
    if not prepared:
        set_at(config, "input.paths", tuple(given))
        return config
    text = config.input
    if not isinstance(text, TextInput.Config):
        raise ExperimentError(
            f"{config.name} reads its data by {type(text).__qualname__}, not as text: change its sources with --set"
        )
    sources: dict[str, Buildable[Corpus]] = {}
    for path in prepared:
        name = Path(path).name
        sources[f"{name}-{len(sources)}" if name in sources else name] = PreparedText.Config(
            folder=path, holdout_fraction=text.holdout_fraction, seed=text.seed
        )
    plain = tuple(path for path in given if path not in prepared)
    if plain:
        shared = {name: getattr(text, name) for name in ("text_field", "on_bad_record", "holdout_fraction", "seed")}
        sources["text"] = TextCorpus.Config(paths=plain, **shared)
    changed = config.clone(input=Mixture.Config(sources=sources, **{name: getattr(text, name) for name in _SHARED}))
    tokenizer = PreparedCorpus(prepared[0]).manifest["tokenizer_config"]
    return changed.clone(tokenizer=loads(tokenizer)) if tokenizer else changed


def without_steps(config: Experiment.Config, ranges: Sequence[str], /) -> Experiment.Config:
    """The experiment without the data of the steps in ``ranges``, each ``FROM:TO``, without ``TO``.

    Steps are counted from 1, and as if no data had ever been left out.

    Raises:
        ExperimentError: Something isn't such a range.
    """
    skip = []
    for text in ranges:
        begin, colon, end = text.partition(":")
        if not (colon and begin.isdecimal() and end.isdecimal() and 0 < int(begin) < int(end)):
            raise ExperimentError(f"--skip-steps: wanted FROM:TO, such as 300:310, got {text!r}")
        skip.append((int(begin) - 1, int(end) - 1))
    set_at(config, "input.skip", tuple(skip))
    return config
