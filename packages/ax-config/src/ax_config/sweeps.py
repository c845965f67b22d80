"""Sweeps: lazy lists of named variants of a config.

    sweep = product(axis("model.dim", [256, 512]), axis("optimizer.learning_rate", [1e-3, 3e-4]))
    sweep[0].name                # "dim=256,learning_rate=0.001"
    sweep[0].modifier(config)    # the tree with both set
    sweep.on(config)             # the named configs, each made when it is asked for

A sweep is a sequence: it knows its length, and gives items and slices without making the others, so that a product of a
billion is at hand at once. What is drawn is a function of the seed, the index and the path, the same on every machine.
Names tell what varies in few characters, are unique in their sweep, and can be names of files.

A sweep is made of *settings*: a variant is a list of them, and knows its name only when the whole sweep does, for a path is
told by as much of its end as tells it from the others.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar, overload

from ._config import Config
from ._distributions import Distribution as Distribution
from ._distributions import choice as choice
from ._distributions import fraction_of
from ._distributions import integers as integers
from ._distributions import log_uniform as log_uniform
from ._distributions import uniform as uniform
from ._errors import ConfigError
from ._modifier import Modifier
from ._override import matching_paths
from ._text import text_of
from ._tree import set_at
from .modifiers import chain

ConfigT = TypeVar("ConfigT", bound=Config[object])
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Assign(Modifier):
    """Sets values by path; the paths may be globs."""

    values: dict[str, object]

    def apply(self, tree: Config[object]) -> Config[object]:
        """Set them in order."""
        for path, value in self.values.items():
            for found in matching_paths(tree, path):
                set_at(tree, found, value)
        return tree


class Variant(NamedTuple):
    """One item of a sweep."""

    name: str
    modifier: Modifier


class Named(NamedTuple, Generic[T_co]):
    """A config that a sweep made, and its name."""

    name: str
    config: T_co


class Setting(NamedTuple):
    """A part of a variant: under which key and word it stands in the name, and what it does."""

    key: str
    """A path, or a word that is none, such as "sample"; empty where the word says it all."""
    word: str
    modifier: Modifier | tuple[str, object] | None
    """What it does: a path and a value, a modifier, or nothing (it is there for the name alone)."""


class Lazy(Sequence[T]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, indices: range, make: Callable[[int], T]) -> None:
        self._indices = indices
        self._make = make

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        """An item, or a lazy slice."""
        if isinstance(index, slice):
            return Lazy(self._indices[index], self._make)
        return self._make(self._indices[index])


class Sweep(Sequence[Variant]):
    """A lazy list of named variants."""

    @abstractmethod
    def __len__(self) -> int:
        """How many variants there are."""

    @abstractmethod
    def settings(self, index: int) -> list[Setting]:
        """What makes up a variant; ``index`` is not negative."""

    @abstractmethod
    def shapes(self) -> frozenset[tuple[str, ...]]:
        """The keys of the settings of a variant, for every kind of variant that there is."""

    @overload
    def __getitem__(self, index: int) -> Variant: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Variant]: ...
    def __getitem__(self, index: int | slice) -> Variant | Sequence[Variant]:
        """A variant, or a lazy slice of them."""
        return self._lazy(self._variants())[index]

    def __iter__(self) -> Iterator[Variant]:
        return iter(self._lazy(self._variants()))

    def on(self, config: ConfigT) -> Sequence[Named[ConfigT]]:
        """The variants of a config, each made when it is asked for."""
        make = self._variants()

        def named(index: int) -> Named[ConfigT]:
            variant = make(index)
            return Named(variant.name, variant.modifier(config))

        return self._lazy(named)

    def _lazy(self, make: Callable[[int], T]) -> Lazy[T]:
        return Lazy(range(len(self)), make)

    def _variants(self) -> Callable[[int], Variant]:
        short = _short_keys([key for shape in sorted(self.shapes()) for key in shape])

        def make(index: int) -> Variant:
            settings = self.settings(index)
            words = [f"{short[s.key]}={s.word}" if s.key else s.word for s in settings]
            return Variant(",".join(words) or "unchanged", _modifier(settings))

        return make


def _modifier(settings: Iterable[Setting]) -> Modifier:
    """One modifier for all; neighbours that set values become one."""
    made: list[Modifier] = []
    values: dict[str, object] = {}
    for setting in settings:
        if isinstance(setting.modifier, tuple):
            path, value = setting.modifier
            values.pop(path, None)  # the order is that of the last assignment
            values[path] = value
        elif setting.modifier is not None:
            if values:
                made.append(Assign(values=values))
                values = {}
            made.append(setting.modifier)
    if values or not made:
        made.append(Assign(values=values))
    return made[0] if len(made) == 1 else chain(*made)


class _Axis(Sweep):
    def __init__(self, path: str, values: Sequence[object]) -> None:
        self._path, self._values = path, values
        self._words = _words(values)

    def __len__(self) -> int:
        return len(self._values)

    def settings(self, index: int) -> list[Setting]:
        return [Setting(self._path, self._words[index], (self._path, self._values[index]))]

    def shapes(self) -> frozenset[tuple[str, ...]]:
        return frozenset([(self._path,)])


class _Product(Sweep):
    def __init__(self, sweeps: tuple[Sweep, ...]) -> None:
        self._sweeps = sweeps
        self._length = math.prod(map(len, sweeps))

    def __len__(self) -> int:
        return self._length

    def settings(self, index: int) -> list[Setting]:
        found: list[list[Setting]] = []
        for sweep in reversed(self._sweeps):
            index, own = divmod(index, len(sweep))
            found.append(sweep.settings(own))
        return [setting for settings in reversed(found) for setting in settings]

    def shapes(self) -> frozenset[tuple[str, ...]]:
        return _joined(self._sweeps)


class _Zipped(Sweep):
    def __init__(self, sweeps: tuple[Sweep, ...]) -> None:
        self._sweeps = sweeps

    def __len__(self) -> int:
        return len(self._sweeps[0])

    def settings(self, index: int) -> list[Setting]:
        return [setting for sweep in self._sweeps for setting in sweep.settings(index)]

    def shapes(self) -> frozenset[tuple[str, ...]]:
        return _joined(self._sweeps)


class _Concat(Sweep):
    """Where two parts vary the same paths, they might have variants of the same name, so the part's number is told too."""

    def __init__(self, sweeps: tuple[Sweep, ...]) -> None:
        self._sweeps = sweeps
        self._ends = list(itertools.accumulate(map(len, sweeps)))
        shapes = [shape for sweep in sweeps for shape in sweep.shapes()]
        self._numbered = len(set(shapes)) < len(shapes)

    def __len__(self) -> int:
        return self._ends[-1]

    def settings(self, index: int) -> list[Setting]:
        part = bisect.bisect_right(self._ends, index)
        own = self._sweeps[part].settings(index - (self._ends[part - 1] if part else 0))
        return [Setting("part", str(part), None), *own] if self._numbered else own

    def shapes(self) -> frozenset[tuple[str, ...]]:
        shapes = frozenset().union(*(sweep.shapes() for sweep in self._sweeps))
        return frozenset(("part", *shape) for shape in shapes) if self._numbered else shapes


class _Variants(Sweep):
    def __init__(self, modifiers: Mapping[str, Modifier]) -> None:
        self._modifiers = list(modifiers.values())
        self._words = _unique([_safe(name) for name in modifiers])

    def __len__(self) -> int:
        return len(self._modifiers)

    def settings(self, index: int) -> list[Setting]:
        return [Setting("", self._words[index], self._modifiers[index])]

    def shapes(self) -> frozenset[tuple[str, ...]]:
        return frozenset([("",)])


class _Sample(Sweep):
    def __init__(self, num: int, seed: int, distributions: Mapping[str, Distribution]) -> None:
        self._num, self._seed = num, seed
        self._distributions = dict(distributions)

    def __len__(self) -> int:
        return self._num

    def settings(self, index: int) -> list[Setting]:
        found = [Setting("sample", str(index), None)]
        for path, draw in self._distributions.items():
            value = draw(fraction_of(self._seed, index, path))
            found.append(Setting(path, f"{value:.4g}" if isinstance(value, float) else _word(value), (path, value)))
        return found

    def shapes(self) -> frozenset[tuple[str, ...]]:
        return frozenset([("sample", *self._distributions)])


def _joined(sweeps: tuple[Sweep, ...]) -> frozenset[tuple[str, ...]]:
    """The shapes of variants that are made of one of each sweep."""
    return frozenset(sum(shapes, ()) for shapes in itertools.product(*(sweep.shapes() for sweep in sweeps)))


def axis(path: str, values: Iterable[object]) -> Sweep:
    """A variant for each value of a path, which may be a glob. Values may be configs."""
    return _Axis(path, values if isinstance(values, range) else tuple(values))


def product(*sweeps: Sweep) -> Sweep:
    """Every combination; the last sweep changes fastest."""
    return _Product(sweeps)


def zipped(*sweeps: Sweep) -> Sweep:
    """The first variants together, the second ones together, and so on.

    Raises:
        ConfigError: The lengths differ.
    """
    if not sweeps or len({len(sweep) for sweep in sweeps}) > 1:
        told = " and ".join(f"{len(sweep)} of {_told(sweep)}" for sweep in sweeps) or "none"
        raise ConfigError(f"zipped wants sweeps of one length, got {told}")
    return _Zipped(sweeps)


def _told(sweep: Sweep) -> str:
    return ", ".join(dict.fromkeys(key for shape in sorted(sweep.shapes()) for key in shape))


def concat(*sweeps: Sweep) -> Sweep:
    """The variants of the first sweep, then those of the second, and so on."""
    if not sweeps:
        raise ConfigError("concat wants at least one sweep")
    return _Concat(sweeps)


def variants(modifiers: Mapping[str, Modifier]) -> Sweep:
    """A variant for each modifier, under its name."""
    return _Variants(modifiers)


def sample(num: int, seed: int, distributions: Mapping[str, Distribution]) -> Sweep:
    """``num`` variants whose values are drawn: ``sample(20, 0, {"optimizer.learning_rate": log_uniform(1e-4, 1e-2)})``.

    The variants don't depend on ``num``: the first five of fifty are the five of five.
    """
    return _Sample(num, seed, distributions)


_UNSAFE = re.compile(r"[^A-Za-z0-9._+@-]+")
_LONGEST_WORD = 40


def _safe(word: str) -> str:
    """The word with nothing in it that a file's name can't have or that means something in a variant's name."""
    if _UNSAFE.search(word):
        word = _UNSAFE.sub("-", word).strip("-")
    return word[:_LONGEST_WORD] or "empty"


def _word(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, str):
        return _safe(value)
    if isinstance(value, Config):
        target = type(value).__ax_target__
        return _safe(getattr(target or type(value), "__qualname__", type(value).__qualname__))
    return _safe(text_of(value).rpartition(":")[2])  # of what stands under an import name, the name


def _words(values: Sequence[object]) -> Sequence[str]:
    if isinstance(values, range):
        return Lazy(range(len(values)), lambda i: str(values[i]))
    return _unique([_word(value) for value in values])


def _unique(words: list[str]) -> list[str]:
    """The words, those that occur again with a number."""
    taken: set[str] = set(words)
    seen: set[str] = set()
    out = []
    for word in words:
        numbered = word
        for n in itertools.count(2):
            if numbered not in seen and (numbered == word or numbered not in taken):
                break
            numbered = f"{word}-{n}"
        seen.add(numbered)
        out.append(numbered)
    return out


def _short_keys(keys: Collection[str]) -> dict[str, str]:
    """For each path the shortest end that no other path has too."""
    paths = {key: key.split(".") for key in dict.fromkeys(keys)}
    short: dict[str, str] = {}
    for key, steps in paths.items():
        others = [other for other in paths.values() if other is not steps]
        length = next((n for n in range(1, len(steps)) if all(o[-n:] != steps[-n:] for o in others)), len(steps))
        short[key] = _safe(".".join(steps[-length:]))
    return dict(zip(short, _unique(list(short.values())), strict=True))
