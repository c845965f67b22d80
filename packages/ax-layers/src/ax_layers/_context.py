"""The invocation context: what a module's code may use while it runs, without threading it by hand.

A context belongs to one call of one module. It holds that module's slice of the parameters, a random key that depends
on the module's *name* (and so not on which siblings it has), and stores that start empty. Contexts form a stack for
each thread: entering a child pushes one, returning merges the child's stores into its parent's under the child's name.

A context also remembers the JAX trace that it was made in. Within a scan, a grad or any other transform there is
another trace, and what a child wrote there would leak out of it; so entering a child or writing under another trace is an
error. ``functional`` makes the fresh context that such code needs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import jax

from .protocols import ArrayTree, Sharder

T = TypeVar("T")


class ContextError(RuntimeError):
    """A module was called, or used its context, in a way that can't work; the message names the module's path."""


class Callee(Protocol):
    """What a context knows of the module that is being called."""

    @property
    def name(self) -> str:
        """What its parent calls it."""
        ...

    @property
    def where(self) -> str:
        """What it is and its path, for messages."""
        ...

    @property
    def path(self) -> str:
        """The names from the root to it, joined by "/"."""
        ...

    @property
    def parent(self) -> object:
        """The module whose child it is; None for the root."""
        ...

    def specs(self) -> Mapping[str, object]:
        """Its parameters; empty if it has none."""
        ...


class Summary(NamedTuple):
    """A weighted mean, as reported by a module; stacked by ``Repeat`` on a leading dim."""

    mean: jax.Array
    weight: jax.Array

    def total(self) -> Summary:
        """The one mean of all that are stacked here."""
        weight = self.weight.sum()
        return Summary((self.mean * self.weight).sum() / jax.numpy.maximum(weight, 1e-30), weight)


class Collected(NamedTuple):
    """What modules wrote during a call, by path and name: ``"layers/ffn/aux_loss"``. A pytree."""

    summaries: dict[str, Summary]
    outputs: dict[str, jax.Array]
    updates: dict[str, jax.Array]
    results: dict[str, jax.Array]
    """What calls returned, ``"layers/ffn"``; empty unless somebody observes."""

    @classmethod
    def empty(cls) -> Collected:
        """Nothing yet."""
        return cls({}, {}, {}, {})


@dataclass(frozen=True)
class Observer:
    """Asks for the results of all calls, and learns in which order they are computed."""

    num_dims: dict[str, int] = field(default_factory=dict)
    """Of each result where it was computed, that is without dims along which it is stacked since; in order."""


def current_trace() -> object:
    """A token for the JAX trace that is under way; equal tokens mean the same trace."""
    from jax.extend.core import get_opaque_trace_state  # here and not above: it takes 40 ms to import

    return get_opaque_trace_state()


def name_hash(name: str) -> int:
    """A number for ``name`` that is the same in every process, to fold into a key."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


@dataclass(frozen=True)
class RandomKey:
    """A key with folds that are not computed before somebody asks, so that code without randomness traces none."""

    base: jax.Array
    folds: tuple[int | jax.Array, ...] = ()

    def fold(self, data: str | jax.Array | int, /) -> RandomKey:
        """The key for ``data``, a name or a number."""
        return RandomKey(self.base, (*self.folds, name_hash(data) if isinstance(data, str) else data))

    def array(self) -> jax.Array:
        """The key that ``jax.random`` takes."""
        return functools.reduce(jax.random.fold_in, self.folds, self.base)

    def computed(self) -> RandomKey:
        """The same key with its folds done: one array, for code that wants its inputs as arrays."""
        return RandomKey(self.array())


# A pytree, so that it can be handed into a transform as it is.
jax.tree_util.register_pytree_node(
    RandomKey, lambda key: ((key.base, *key.folds), None), lambda _, parts: RandomKey(parts[0], tuple(parts[1:]))
)


@dataclass(eq=False)
class Context:
    """One call of one module; see the module's docstring."""

    module: Callee
    params: ArrayTree
    key: RandomKey | None
    sharder: Sharder
    observer: Observer | None = None
    trace: object = field(default_factory=current_trace)
    collected: Collected = field(default_factory=Collected.empty)
    keys_used: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)

    def check_trace(self, what: str) -> None:
        """Raise unless we are still in the trace that this context was made in."""
        if current_trace() != self.trace:
            raise ContextError(
                f"{what} within a JAX transform (jit, scan, grad, vmap, checkpoint, …) that began after "
                f"{self.module.where} was called: what is written there would leak out of it. Call the child through "
                "functional(child)(params, key, …) inside the transform, and merge what it collected"
            )

    def write(self, store: dict[str, T], name: str, value: T) -> None:
        """Put ``value`` into one of the stores of ``collected``."""
        self.check_trace(f"{self.module.where} writes {name!r}")
        if not name or "/" in name:
            raise ContextError(f"{self.module.where}: a name to write under has no '/' and isn't empty, got {name!r}")
        self._put(store, name, value)

    def merge(self, prefix: str, collected: Collected) -> None:
        """Add what a child collected, under its name."""
        lead = f"{prefix}/" if prefix else ""
        for name, summary in collected.summaries.items():
            self._put(self.collected.summaries, lead + name, summary)
        for name, output in collected.outputs.items():
            self._put(self.collected.outputs, lead + name, output)
        for name, update in collected.updates.items():
            self._put(self.collected.updates, lead + name, update)
        call = f"{prefix}#{self.calls[prefix]}" if self.calls.get(prefix, 1) > 1 else prefix
        for name, result in collected.results.items():
            self.collected.results[_within(call, name)] = result

    def observe(self, method: str, result: object) -> None:
        """Keep what a call of the module returned, if somebody observes.

        It is named like the module; with ``.method()`` if it isn't ``__call__``, and ``[0]`` and the like if there are several
        arrays. Of a wrapper and its child, which share a path, the child's is kept.
        """
        if self.observer is None:
            return
        for path, leaf in jax.tree_util.tree_leaves_with_path(result):
            name = ("" if method == "__call__" else f".{method}()") + jax.tree_util.keystr(path)
            if isinstance(leaf, jax.Array) and name not in self.collected.results:
                self.collected.results[name] = leaf
                self.observer.num_dims[_within(self.module.path, name)] = leaf.ndim

    def _put(self, store: dict[str, T], name: str, value: T) -> None:
        if name in store:
            raise ContextError(f"{self.module.where} writes {name!r} twice in one call; a name is written once")
        store[name] = value

    def child_params(self, name: str, child: Callee) -> ArrayTree:
        """The slice of the parameters for a child."""
        if name not in self.params:
            if child.specs():
                raise ContextError(
                    f"there are no parameters for {child.where}: {self.module.where} was given {sorted(self.params)}"
                )
            return {}
        params = self.params[name]
        if not isinstance(params, Mapping):
            raise ContextError(f"the parameters of {child.where} are a dict, got {type(params).__qualname__}")
        return params


def _within(path: str, name: str) -> str:
    """The name of a result of the module at ``path``, or of what is below it."""
    return f"{path}/{name}" if path and name and name[0] not in ".[" else path + name


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Context] = []


_stack = _Stack()


def current() -> Context | None:
    """The innermost context of this thread."""
    return _stack.contexts[-1] if _stack.contexts else None


@contextlib.contextmanager
def pushed(context: Context) -> Iterator[Context]:
    """Make ``context`` the innermost one for a while."""
    _stack.contexts.append(context)
    try:
        yield context
    finally:
        _stack.contexts.pop()


@contextlib.contextmanager
def entered(module: Callee) -> Iterator[Context]:
    """The context of a call of ``module``: pushed under its parent's, or the running one if the module calls itself."""
    outer = current()
    if outer is None:
        raise ContextError(
            f"{module.where} was called outside any context, so it has no parameters; "
            "call it as functional(module)(params, key, …)"
        )
    outer.check_trace(f"{module.where} was called")
    if outer.module is module:
        yield outer
        return
    if module.parent is not outer.module:
        raise ContextError(
            f"{module.where} was called by {outer.module.where}, which isn't its parent; a module calls its own children only"
        )
    name = module.name
    count = outer.calls.get(name, 0)
    outer.calls[name] = count + 1
    key = outer.key
    if key is not None:
        key = key.fold(name) if count == 0 else key.fold(name).fold(count)
    with pushed(
        Context(module, outer.child_params(name, module), key, outer.sharder, outer.observer, outer.trace)
    ) as inner:
        with jax.named_scope(name):
            yield inner
        outer.merge(name, inner.collected)
