"""What differs between two trees, as a person would say it.

The trees are compared, not their texts: equal parts are passed by, and the text of a value is made only where there is a
change to tell. Items of tuples and lists that were inserted or removed are told as that, and the others are compared with
their counterparts, wherever they stand now. A part whose class changed is one change, followed by what else it has or
lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from ._config import Config, is_dataclass, same
from ._text import OPEN, PLAIN, Part, Writer, literal, split_last

_MOST_PAIRS = 10_000
"""Alignment of two lists looks at each pair of items; where there are more than these, they are paired by position."""


class Change(NamedTuple):
    """One difference between two trees.

    Attributes:
        path: Where it stands in the tree after the change; of what was removed, in the tree before.
        before: The text before, None where there was nothing.
        after: The text after, None where there is nothing.
        path_before: Where it stood, if that is elsewhere: an item was inserted or removed before it.
    """

    path: str
    before: str | None
    after: str | None
    path_before: str = ""

    def __str__(self) -> str:
        """One line, marked as in a diff."""
        if self.before is None:
            return f"+ {self.path} = {self.after}"
        if self.after is None:
            return f"- {self.path} = {self.before}"
        was = f" (was {self.path_before})" if self.path_before else ""
        return f"~ {self.path}{was} = {self.before} → {self.after}"


def diff(before: Config[object], after: Config[object]) -> list[Change]:
    """What differs between two trees, in the order of the trees. Empty if and only if their texts are equal."""
    comparison = _Comparison()
    comparison.compare(".", before, ".", after)
    return comparison.changes


def diff_texts(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """What differs between two texts, path by path; for texts that can't be loaded any more."""
    paths = [*before, *(path for path in after if path not in before)]
    return [Change(p, before.get(p), after.get(p)) for p in paths if before.get(p) != after.get(p)]


class _Comparison:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._writer = Writer()

    def compare(self, path_a: str, a: object, path_b: str, b: object) -> None:
        """Add what differs between two values that stand for the same thing."""
        kind = type(a)
        if a is b:
            return
        if isinstance(a, Config) and isinstance(b, Config):
            if kind is type(b):
                self._compare_configs(path_a, a, path_b, b)
            else:
                self._change(path_a, a, path_b, b)
                self._compare_parts(path_a, a, path_b, b)
        elif kind is not type(b):
            self._change(path_a, a, path_b, b)
            self._lost(path_a, self._writer.told(a)[1])
            self._gained(path_b, self._writer.told(b)[1])
        elif isinstance(a, tuple | list) and (literal(a) is None or literal(b) is None):
            self._compare_sequences(path_a, a, path_b, cast("Sequence[object]", b))
        elif isinstance(a, dict) and (literal(a) is None or literal(b) is None):
            self._compare_parts(path_a, a, path_b, b)
            if a.keys() == cast("dict[str, object]", b).keys() and list(a) != list(cast("dict[str, object]", b)):
                self._change(path_a, a, path_b, b)  # nothing but the order
        elif not same(a, b):
            if is_dataclass(a) and self._writer.told(a)[1] and self._writer.told(b)[1]:
                self._compare_parts(path_a, a, path_b, b)
            else:
                self._change(path_a, a, path_b, b)
                self._lost(path_a, self._writer.told(a)[1])
                self._gained(path_b, self._writer.told(b)[1])

    def _compare_configs(self, path_a: str, a: Config[object], path_b: str, b: Config[object]) -> None:
        """Two configs of one class; nearly all are equal, so paths are made late."""
        ours, theirs = a.__dict__, b.__dict__
        gained: list[Part] = []
        for name, announced in self._writer.plan(type(a)).fields:
            x, y = ours.get(name, OPEN), theirs.get(name, OPEN)
            if x is y or (type(x) in PLAIN and type(x) is type(y) and x == y):
                continue
            if y is OPEN and not announced:
                self._lost(path_a, [(f".{name}", x)])
            elif x is OPEN and not announced:
                gained.append((f".{name}", y))
            else:
                self.compare(_join(path_a, f".{name}"), x, _join(path_b, f".{name}"), y)
        self._gained(path_b, gained)

    def _compare_parts(self, path_a: str, a: object, path_b: str, b: object) -> None:
        """Two values whose parts have names: what only one of them has, and what differs in both."""
        ours, theirs = dict(self._writer.told(a)[1] or _items(a)), dict(self._writer.told(b)[1] or _items(b))
        for step, value in ours.items():
            if step in theirs:
                self.compare(_join(path_a, step), value, _join(path_b, step), theirs[step])
            else:
                self._lost(path_a, [(step, value)])
        self._gained(path_b, [(step, value) for step, value in theirs.items() if step not in ours])

    def _compare_sequences(self, path_a: str, a: Sequence[object], path_b: str, b: Sequence[object]) -> None:
        for i, j in self._aligned(a, b):
            if j is None:
                self._lost(path_a, [(f"[{i}]", a[cast("int", i)])])
            elif i is None:
                self._gained(path_b, [(f"[{j}]", b[j])])
            else:
                self.compare(f"{path_a}[{i}]", a[i], f"{path_b}[{j}]", b[j])

    def _aligned(self, a: Sequence[object], b: Sequence[object]) -> Iterator[tuple[int | None, int | None]]:
        """Which items stand for the same thing, None for nothing; without the equal ones at both ends."""
        if len(a) == len(b):
            yield from zip(range(len(a)), range(len(b)), strict=True)
            return
        short = min(len(a), len(b))
        head = next((i for i in range(short) if not same(a[i], b[i])), short)
        tail = next((i for i in range(short - head) if not same(a[-1 - i], b[-1 - i])), short - head)
        for i, j in self._cheapest(a[head : len(a) - tail], b[head : len(b) - tail]):
            yield None if i is None else i + head, None if j is None else j + head

    def _cheapest(self, a: Sequence[object], b: Sequence[object]) -> Sequence[tuple[int | None, int | None]]:
        """The pairing, in order, that leaves the fewest lines to tell."""
        if not a or not b or len(a) * len(b) > _MOST_PAIRS:
            pairs: list[tuple[int | None, int | None]] = [(i, i) for i in range(min(len(a), len(b)))]
            return (
                pairs + [(i, None) for i in range(len(pairs), len(a))] + [(None, j) for j in range(len(pairs), len(b))]
            )
        lines_a, lines_b = [self._lines_of(item) for item in a], [self._lines_of(item) for item in b]
        # cost[i][j]: the fewest lines for what follows a[i] and b[j]
        cost = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i in range(len(a), -1, -1):
            for j in range(len(b), -1, -1):
                options = []
                if i < len(a):
                    options.append(cost[i + 1][j] + len(lines_a[i]))
                if j < len(b):
                    options.append(cost[i][j + 1] + len(lines_b[j]))
                if i < len(a) and j < len(b):
                    options.append(cost[i + 1][j + 1] + len(lines_a[i] ^ lines_b[j]))
                cost[i][j] = min(options, default=0)
        chosen: list[tuple[int | None, int | None]] = []
        i = j = 0
        while i < len(a) or j < len(b):
            if i < len(a) and j < len(b) and cost[i][j] == cost[i + 1][j + 1] + len(lines_a[i] ^ lines_b[j]):
                chosen.append((i, j))
                i, j = i + 1, j + 1
            elif i < len(a) and cost[i][j] == cost[i + 1][j] + len(lines_a[i]):
                chosen.append((i, None))
                i += 1
            else:
                chosen.append((None, j))
                j += 1
        return chosen

    def _lines_of(self, value: object) -> frozenset[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        self._writer.lines(".", value, out)
        return frozenset(out)

    def _change(self, path_a: str, a: object, path_b: str, b: object) -> None:
        moved = "" if path_a == path_b else path_a
        self.changes.append(Change(path_b, self._writer.told(a)[0], self._writer.told(b)[0], moved))

    def _lost(self, path: str, parts: Sequence[Part]) -> None:
        self.changes += [Change(at, text, None) for at, text in self._lines_below(path, parts)]

    def _gained(self, path: str, parts: Sequence[Part]) -> None:
        self.changes += [Change(at, None, text) for at, text in self._lines_below(path, parts)]

    def _lines_below(self, path: str, parts: Sequence[Part]) -> list[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        for step, value in parts:
            self._writer.lines(_join(path, step), value, out)
        return out


def _items(value: object) -> list[Part]:
    """The parts of a dict that has a line of its own, but stands against one that hasn't."""
    return [(f"[{key!r}]", item) for key, item in value.items()] if isinstance(value, dict) else []


def _join(path: str, step: str) -> str:
    return step.removeprefix(".") if path == "." else path + step


_NO_INK = {"+": "", "-": "", "~": "", "title": "", "end": ""}
_ANSI = {"+": "\x1b[32m", "-": "\x1b[31m", "~": "\x1b[33m", "title": "\x1b[1m", "end": "\x1b[0m"}


def render_diff(changes: Sequence[Change], *, colour: bool) -> str:
    """The changes for a person: a line each, aligned, under the config that they belong to.

    What is below a part that came, went or changed its class stands under that part.

    Args:
        changes: What ``diff`` gave.
        colour: Whether the terminal shows ANSI colours: green what is new, red what is gone, yellow what changed.
    """
    ink = _ANSI if colour else _NO_INK
    groups: dict[str, list[str]] = {}
    rows: dict[str, list[tuple[str, str, str]]] = {}
    whole = ""  # the part that the changes are below of, if it came, went or changed its class
    for change in changes:
        mark, text = _told(change)
        above, name = split_last(change.path)
        if whole and change.path.startswith((f"{whole}.", f"{whole}[")):
            rows[whole].append((mark, change.path[len(whole) :].removeprefix("."), text))
        elif _is_head(change.before) or _is_head(change.after):
            whole = "" if change.path == "." else change.path
            was = f"  (was {change.path_before})" if change.path_before else ""
            groups[whole] = [f"{ink[mark]}{mark} {whole or 'the root'}: {text}{was}{ink['end']}"]
            rows[whole] = []
        else:
            whole = ""
            if above not in groups:
                moved = split_last(change.path_before)[0] if change.path_before else above
                was = f"  (was {moved})" if moved != above else ""
                groups[above] = [f"{ink['title']}{above or 'the root'}{ink['end']}{was}"]
                rows[above] = []
            rows[above].append((mark, name, text))
    for title, lines in groups.items():
        width = max((len(name) for _, name, _ in rows[title]), default=0)
        lines += [f"  {ink[mark]}{mark} {name:<{width}}  {text}{ink['end']}" for mark, name, text in rows[title]]
    return "".join(f"{line}\n" for lines in groups.values() for line in lines)


def _told(change: Change) -> tuple[str, str]:
    if change.before is None:
        return "+", change.after or ""
    if change.after is None:
        return "-", change.before
    return "~", f"{change.before} → {change.after}"


def _is_head(text: str | None) -> bool:
    return text is not None and text.startswith(("new ", "call ", "partial ", "modify "))
