"""``ax-config sweep``: the names, or the texts, of the variants of a config."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ax_config._config import Config
from ax_config._errors import ConfigError
from ax_config._override import Assignment, assignment, matching_paths, override
from ax_config._text import dumps
from ax_config._tree import get_at
from ax_config.sweeps import Distribution, Sweep, axis, choice, integers, log_uniform, product, sample, uniform, zipped

from ._tree import add_changes, add_source, config_of

_DISTRIBUTIONS = {"uniform": uniform, "log_uniform": log_uniform, "integers": integers}
_CALL = re.compile(r"(\w+)\((.*)\)")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "sweep",
        parents=[shared],
        help="the variants of a config",
        description='An axis is "path=value,value": every combination of all is a variant. With --sample a value is drawn '
        'for each, and an axis may be "path=uniform(0,1)", log_uniform(1e-4,1e-2) or integers(1,8) as well.',
        allow_abbrev=False,
    )
    add_source(parser)
    parser.add_argument("axes", metavar="AXIS", nargs="+", help='"path=value,value"; the path may be a glob')
    parser.add_argument("--zip", action="store_true", help="the first values together, the second ones together, …")
    parser.add_argument("--sample", type=int, metavar="N", help="draw N variants")
    parser.add_argument("--seed", type=int, default=0, help="of --sample (default: 0)")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the text of each variant to DIR/NAME.txt")
    add_changes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the names, or the files."""
    config = config_of(args)
    axes = [assignment(text, "axis") for text in args.axes]
    sweep = (
        _sampled(config, axes, args.sample, args.seed) if args.sample is not None else _combined(config, axes, args.zip)
    )
    if args.write is None:
        for variant in sweep:
            print(variant.name)
        return 0
    args.write.mkdir(parents=True, exist_ok=True)
    for name, variant_config in sweep.on(config):
        file = args.write / f"{name}.txt"
        file.write_text(dumps(variant_config), encoding="utf-8", newline="\n")
        print(file)
    return 0


def _combined(config: Config[object], axes: list[Assignment], zip_them: bool) -> Sweep:
    sweeps = []
    for each in axes:
        match = _CALL.fullmatch(each.text)
        if match and match[1] in _DISTRIBUTIONS:
            raise ConfigError(f"{each.path}={each.text} draws values, which needs --sample")
        sweeps.append(axis(each.path, _values(config, each)))
    return zipped(*sweeps) if zip_them else product(*sweeps)


def _sampled(config: Config[object], axes: list[Assignment], num: int, seed: int) -> Sweep:
    return sample(num, seed, {each.path: _distribution(config, each) for each in axes})


def _distribution(config: Config[object], each: Assignment) -> Distribution:
    match = _CALL.fullmatch(each.text)
    if not match or match[1] not in _DISTRIBUTIONS:
        return choice(*_values(config, each))
    try:
        low, high = (float(end) for end in match[2].split(","))
    except ValueError:
        raise ConfigError(f"{each.path}={each.text}: {match[1]} wants two numbers, low and high") from None
    return integers(int(low), int(high)) if match[1] == "integers" else _DISTRIBUTIONS[match[1]](low, high)  # type: ignore[arg-type]  # the others take floats


def _values(config: Config[object], each: Assignment) -> list[object]:
    """The values of an axis, read by the type of the first field that its path means."""
    path = matching_paths(config, each.path)[0]
    return [get_at(override(config, [Assignment(path, text, "axis")]), path) for text in split_values(each.text)]


def split_values(text: str) -> list[str]:
    """The parts between commas that stand outside of quotes and brackets."""
    parts, depth, quote, start, at = [], 0, "", 0, 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [*parts, text[start:].strip()]
