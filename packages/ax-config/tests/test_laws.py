"""What holds for every tree: its text gives it back, it shares nothing, and everything that changes it obeys its laws."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator

import pytest
from ax_config import (
    REQUIRED,
    Buildable,
    Config,
    Modifier,
    NoMatchError,
    chain,
    config_for,
    diff,
    dumps,
    fingerprint,
    flatten,
    for_each,
    get_at,
    leaves,
    loads,
    map_values,
    modifier_for,
    override,
    path_of,
    set_at,
    settable_paths,
    values_of,
    walk,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trees import (
    KINDS,
    Branch,
    Leaf,
    changed,
    confusable,
    gather,
    modifiers,
    parts,
    settings_of_leaves,
    texts,
    trees,
    twins_of,
    values,
    wrap,
)

SCALAR = {"width", "flag", "count", "ratio", "name", "raw", "limit", "mode", "x", "by", "note"}
law = settings(deadline=None, max_examples=40)


def alike(a: object, b: object) -> bool:
    """Whether a config that holds the one equals a config that holds the other (NaN equals NaN there)."""
    return Branch.Config(anything=a) == Branch.Config(anything=b)


def scalars_in(config: Config[object]) -> list[tuple[str, object]]:
    """The paths and values of the fields that hold one number, string or the like."""
    return [(path, value) for path, value in leaves(config) if path.rpartition(".")[2] in SCALAR]


def nodes(*configs: Config[object]) -> list[int]:
    return [id(node) for config in configs for _, node in walk(config)]


def assert_apart(*configs: Config[object]) -> None:
    """No config is part of two of them, and each knows its place."""
    assert len(nodes(*configs)) == len(set(nodes(*configs)))
    for config in configs:
        for path, node in walk(config):
            assert path_of(node) == path
            assert get_at(config, path) is node


# Texts, equality, differences.


@law
@given(parts)
def test_the_text_gives_the_tree_back(config: Config[object]) -> None:
    text = dumps(config)
    again = loads(text)
    assert again == config
    assert dumps(again) == text
    assert_apart(config, again)


def assert_equality_is_of_texts(a: Config[object], b: Config[object]) -> None:
    same = a == b
    assert same == (b == a) == (dumps(a) == dumps(b)) == (fingerprint(a) == fingerprint(b)) == (diff(a, b) == [])


@law
@given(trees, st.data())
def test_equal_trees_have_equal_texts_and_no_differences(a: Config[object], data: st.DataObject) -> None:
    assert_equality_is_of_texts(a, changed(a, data))
    assert_equality_is_of_texts(a, a.clone())


@settings(law, max_examples=200)
@given(confusable, st.data())
def test_equal_values_have_equal_texts_and_no_differences(value: object, data: st.DataObject) -> None:
    twin = data.draw(twins_of(value))
    assert_equality_is_of_texts(Leaf.Config(anything=value), Leaf.Config(anything=twin))
    assert_equality_is_of_texts(config_for(gather)(value), config_for(gather)(twin))


@law
@given(trees, trees)
def test_a_difference_tells_what_stands_in_both_trees(a: Config[object], b: Config[object]) -> None:
    ours, theirs = flatten(a), flatten(b)
    for change in diff(a, b):
        assert change.before != change.after
        at = change.path_before or change.path
        assert change.before is None or ours.get(at, change.before) == change.before
        assert change.after is None or theirs.get(change.path, change.after) == change.after


@law
@given(trees, st.data())
def test_what_was_set_is_what_differs(a: Config[object], data: st.DataObject) -> None:
    b = a.clone()
    for path, _ in data.draw(st.lists(st.sampled_from(scalars_in(a)), max_size=3)) if scalars_in(a) else []:
        set_at(b, path, data.draw(KINDS[path.rpartition(".")[2]], label=path))
    lines = flatten(a)
    for change in diff(a, b):
        assert lines[change.path] == change.before
        assert change.after is not None
        lines[change.path] = change.after
    assert lines == flatten(b)
    differ = [path for path, value in scalars_in(a) if not alike(value, get_at(b, path))]
    assert sorted(differ) == sorted(change.path for change in diff(a, b))


# By value.


@law
@given(trees)
def test_copies_are_equal_and_share_nothing(config: Config[object]) -> None:
    twins = [config.clone(), copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))]
    assert all(twin == config for twin in twins)
    assert_apart(config, *twins)


@law
@given(parts, st.data())
def test_a_config_in_many_places_is_many_configs(part: Config[object], data: st.DataObject) -> None:
    rows: list[Buildable[object]] = [part, part]
    named: dict[str, Buildable[object]] = {"a": part}
    whole = Branch.Config(child=part, row=(part, part), queue=rows, named=named, anything=[(part, {"b": part})])
    other = Branch.Config(child=whole.child, row=whole.row, queue=whole.queue, named=whole.named)
    other.anything = whole.anything
    assert other == whole
    rows.clear()
    named.clear()
    other_text = dumps(other)
    assert_apart(part, whole, other)
    inside = data.draw(st.sampled_from([node for _, node in walk(whole)]))
    for name in values_of(inside):
        setattr(inside, name, REQUIRED)
    assert dumps(other) == other_text


def containers(value: object) -> Iterator[list[object] | dict[str, object]]:
    if isinstance(value, list | dict):
        yield value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for item in items:
        yield from containers(item)


LIST_CHANGES: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(["__setitem__", "insert"], (0, 1)),
    **dict.fromkeys(["__iadd__", "extend"], ([1],)),
    **dict.fromkeys(["__delitem__", "__imul__", "append", "remove"], (0,)),
    **dict.fromkeys(["pop", "clear", "sort", "reverse"], ()),
}
DICT_CHANGES: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(["__setitem__", "setdefault"], ("a", 1)),
    **dict.fromkeys(["__delitem__", "pop"], ("a",)),
    **dict.fromkeys(["__ior__", "update"], ({"a": 1},)),
    **dict.fromkeys(["popitem", "clear"], ()),
}


@law
@given(trees)
def test_lists_and_dicts_in_a_tree_are_read_only(config: Config[object]) -> None:
    before = dumps(config)
    held = [c for _, node in walk(config) for value in values_of(node).values() for c in containers(value)]
    for container in held:
        for name, arguments in (DICT_CHANGES if isinstance(container, dict) else LIST_CHANGES).items():
            with pytest.raises(TypeError, match="read-only"):
                getattr(container, name)(*arguments)
    assert dumps(config) == before


# Paths.


def everything_in(config: Config[object]) -> list[tuple[str, object]]:
    """Every value with its path: the configs below the root, what they hold, and the items of containers."""

    def inside(path: str, value: object) -> Iterator[tuple[str, object]]:
        yield path, value
        if isinstance(value, list | tuple):
            for i, item in enumerate(value):
                yield from inside(f"{path}[{i}]", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from inside(f"{path}[{key!r}]", item)

    fields = ((f"{p}.{n}".lstrip("."), v) for p, node in walk(config) for n, v in values_of(node).items())
    return [found for path, value in fields for found in inside(path, value)]


@law
@given(trees)
def test_setting_what_is_there_changes_nothing(config: Config[object]) -> None:
    twin = config.clone()
    for path, value in everything_in(config):
        assert get_at(twin, path) == value or alike(get_at(twin, path), value)
        set_at(twin, path, value)
        assert twin == config
    assert_apart(config, twin)


@law
@given(trees, values | parts, st.data())
def test_what_is_set_is_there_and_nothing_else_changes(
    config: Config[object], value: object, data: st.DataObject
) -> None:
    free = [path for path, _ in everything_in(config) if "anything" in path.rpartition(".")[2]]
    assume(free)
    path = data.draw(st.sampled_from(free))
    twin = config.clone()
    set_at(twin, path, value)
    assert alike(get_at(twin, path), value)
    assert all(
        change.path.startswith(("anything", path.partition("anything")[0] + "anything"))
        for change in diff(config, twin)
    )
    set_at(twin, path, get_at(config, path))
    assert twin == config


# Overrides.


def in_one_line(config: Config[object]) -> list[tuple[str, object, str]]:
    """The values of a tree whose text is one line: their paths, themselves, their texts."""
    lines = flatten(config)
    above = {line[: match.start()] for line in lines for match in re.finditer(r"\.(?!$)|\[", line)}
    return [(path, value, lines[path]) for path, value in leaves(config) if path not in above]


spaces = st.sampled_from(["", " ", "  ", "\t"])


@law
@given(trees, st.data(), spaces, spaces)
def test_an_override_gives_exactly_the_value_written(
    config: Config[object], data: st.DataObject, a: str, b: str
) -> None:
    other = changed(config, data)
    written = in_one_line(other)
    assume(written)
    path, value, text = data.draw(st.sampled_from(written))
    assert alike(get_at(override(other, [f"{path}{a}={b}{text}{a}"]), path), value)
    if path in settable_paths(config):
        before = dumps(config)
        set_by_hand = config.clone()
        set_at(set_by_hand, path, value)
        assert override(config, [f"{path}={text}"]) == set_by_hand
        assert dumps(config) == before


@law
@given(texts)
def test_words_need_no_quotes_unless_they_are_literals(text: str) -> None:
    assume(text == text.strip() and text[:1] not in ("'", '"', "b", "r", "u", "f", "("))
    assert get_at(override(Leaf.Config(), [f"name={text}"]), "name") == text


@law
@given(trees, st.text(st.characters(codec="ascii"), max_size=8), st.data())
def test_paths_that_lead_nowhere_match_nothing(config: Config[object], odd: str, data: st.DataObject) -> None:
    before = data.draw(st.sampled_from(["", *(f"{path}." for path, _ in walk(config) if path)]))
    path = f"{before}{odd}"
    assume(path not in settable_paths(config) and not any(mark in odd for mark in "*?[]=."))
    with pytest.raises(NoMatchError):
        override(config, [f"{path}=1"])


# Modifiers.


@law
@given(modifiers, trees)
def test_a_modifier_is_pure_and_always_gives_the_same(modifier: Modifier, tree: Config[object]) -> None:
    before = dumps(tree)
    first, second = modifier(tree), modifier(tree)
    assert first == second
    assert dumps(tree) == before
    assert_apart(tree, first, second)


@law
@given(modifiers, trees)
def test_a_modifier_has_a_text_that_gives_it_back(modifier: Modifier, tree: Config[object]) -> None:
    again = loads(dumps(modifier))
    assert again == modifier
    assert isinstance(again, Modifier)
    assert again(tree) == modifier(tree)
    assert_apart(modifier, again)


@law
@given(trees, modifiers)
def test_nothing_chained_is_the_identity(tree: Config[object], modifier: Modifier) -> None:
    assert chain()(tree) == tree
    assert chain(modifier)(tree) == chain(modifier, chain())(tree) == chain(chain(), modifier)(tree) == modifier(tree)
    assert for_each("**", chain())(tree) == tree
    assert map_values(tree, lambda path, value: value) == tree


@law
@given(trees, modifiers, modifiers, modifiers)
def test_chaining_is_associative(tree: Config[object], a: Modifier, b: Modifier, c: Modifier) -> None:
    assert chain(a, chain(b, c))(tree) == chain(chain(a, b), c)(tree) == chain(a, b, c)(tree) == c(b(a(tree)))


@law
@given(trees)
def test_for_each_reaches_every_part_once(tree: Config[object]) -> None:
    wrapped = for_each("**", modifier_for(wrap, name="outer"))(tree)
    assert len(nodes(wrapped)) == 2 * len(nodes(tree))


@law
@given(trees, settings_of_leaves)
def test_setting_twice_is_setting_once(tree: Config[object], modifier: Modifier) -> None:
    assert modifier(modifier(tree)) == modifier(tree)
