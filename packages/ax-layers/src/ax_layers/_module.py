"""Modules: code with declared parameters and children.

A module declares both while it is built, in ``__init__``: ``self.param(name, spec)`` gives a handle whose ``value`` is the
array, ``self.child(name, config, …)`` builds a child and gives it back under its own type. Building makes no arrays: the
declarations answer ``specs()`` and ``init(key)``. Methods that others may call are marked ``@scoped``; within them the module
uses its own context and nothing else:

    class Scale(Module):
        class Config(ax_config.Config["Scale"]):
            dim: int = REQUIRED

        def __init__(self, cfg: Config, /) -> None:
            super().__init__()
            self.scale = self.param("scale", ParamSpec((cfg.dim,), np.dtype("float32"), (None,), initializers.ones))

        @scoped
        def __call__(self, x: jax.Array, /) -> jax.Array:
            return x * self.scale.value
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Concatenate, TypeVar
from typing import ParamSpec as TypingParamSpec

import jax
import jax.numpy as jnp
from ax_config import Buildable
from jax.ad_checkpoint import checkpoint_name

from ._context import Collected, Context, ContextError, RandomKey, Summary, current, entered, name_hash
from ._param_spec import ParamSpec, SpecTree
from .protocols import ArrayTree, Axes, Sharder, SupportsPaths

OF_BATCH = "of_batch:"
"""What the names begin with of outputs that are statistics of a batch, and of parameters that tell them (``Module.of_batch``)."""

M = TypeVar("M", bound="Module")
T = TypeVar("T")
P = TypingParamSpec("P")
R = TypeVar("R")


def scoped(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Mark a method that a parent may call: it runs in a context of its own."""

    @functools.wraps(method)
    def call(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with entered(self) as context:
            result = method(self, *args, **kwargs)
            context.observe(method.__name__, result)
            return result

    return call


class Param:
    """The handle of a declared parameter."""

    def __init__(self, module: Module, name: str, spec: ParamSpec) -> None:
        self.spec = spec
        self._module = module
        self._name = name

    @property
    def value(self) -> jax.Array:
        """The array, from the running context of the module that declared it."""
        where = f"parameter {self._name!r} of {self._module.where}"
        context = current()
        if context is None or context.module is not self._module:
            reader = "outside any context" if context is None else f"by {context.module.where}"
            raise ContextError(f"{where} is read {reader}; only that module's own @scoped methods may read it")
        value = context.params.get(self._name)
        if value is None:
            raise ContextError(f"{where} is missing: the parameters given are {sorted(context.params)}")
        shape = getattr(value, "shape", None)
        if shape != self.spec.shape:
            raise ContextError(f"{where} has shape {self.spec.shape}, got {type(value).__qualname__} of shape {shape}")
        return value  # type: ignore[return-value]  # something with that shape is an array


class Module:
    """Abstract: code with parameters, children and a place in a tree of modules. See the module's docstring."""

    def __init__(self) -> None:
        self._name = ""
        self._parent: Module | None = None
        self._params: dict[str, ParamSpec] = {}
        self._children: dict[str, Module] = {}

    # Declarations, for use in __init__.

    def param(self, name: str, spec: ParamSpec, /) -> Param:
        """Declare a parameter.

        Raises:
            ValueError: The name is taken, empty, or holds a "/".
        """
        self._check_name(name)
        self._params[name] = spec
        return Param(self, name, spec)

    def child(self, name: str, config: Buildable[T], /, **interface: object) -> T:
        """Build a child, told the interface that it shares with this module. What isn't a Module is only returned.

        Raises:
            ValueError: The name is taken, empty, or holds a "/", or the built module has a parent already.
        """
        self._check_name(name)
        built = config.build(**interface)
        if isinstance(built, Module):
            built._attach(self, name)
            self._children[name] = built
        return built

    def _attach(self, parent: Module, name: str) -> None:
        if self._parent is not None:
            raise ValueError(f"{self.where} is a child already, so it can't be {name!r} of {parent.where} as well")
        self._parent, self._name = parent, name

    def _check_name(self, name: str) -> None:
        if not name or "/" in name:
            raise ValueError(
                f"{type(self).__qualname__}: the name of a parameter or child has no '/' and isn't empty, got {name!r}"
            )
        if name in self._params or name in self._children:
            raise ValueError(f"{type(self).__qualname__}: {name!r} is declared twice")

    # The tree.

    @property
    def name(self) -> str:
        """The name its parent gave it; empty at the root, and for a child that a ``Wrapper`` stands for."""
        return self._name

    @property
    def parent(self) -> Module | None:
        """The module that declared it."""
        return self._parent

    @property
    def path(self) -> str:
        """The names from the root to here, joined by "/"."""
        above = self._parent.path if self._parent is not None else ""
        return "/".join(part for part in (above, self._name) if part)

    @property
    def where(self) -> str:
        """The path and the class, for messages."""
        return (
            f"{self.path!r} ({type(self).__qualname__})"
            if self.path
            else f"the root module ({type(self).__qualname__})"
        )

    @property
    def children(self) -> Mapping[str, Module]:
        """The modules that it declared, by name."""
        return MappingProxyType(self._children)

    # What is declared.

    def specs(self) -> SpecTree:
        """What the parameters will be, in nested dicts by name; allocates nothing."""
        tree: SpecTree = dict(self._params)
        for name, child in self._children.items():
            if specs := child.specs():
                tree[name] = specs
        return tree

    def init(self, key: jax.Array, /) -> ArrayTree:
        """Fresh parameters, congruent to ``specs()``.

        Each is drawn with a key that depends on its path alone. Trace it under ``jit`` with output shardings, and
        every device draws its own part only.
        """
        tree: dict[str, jax.Array | ArrayTree] = {}
        for name, spec in self._params.items():
            tree[name] = spec.initialise(jax.random.fold_in(key, name_hash(name)))
        for name, child in self._children.items():
            if params := child.init(jax.random.fold_in(key, name_hash(name))):
                tree[name] = params
        return tree

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """FLOPs of forward and backward for one token: 6 per weight of a matmul, attention in full (not halved).

        The default is the sum over the children; a module that multiplies adds its own.
        """
        return sum(child.training_flops_per_token(seq_length) for child in self._children.values())

    # The running context.

    @property
    def params(self) -> ArrayTree:
        """This module's slice of the parameters, its children's included."""
        return self._context("reads its parameters").params

    @property
    def sharder(self) -> Sharder:
        """Places arrays by logical axes; this module's own way, where the sharder tells modules apart."""
        sharder = self._context("asks for the sharder").sharder
        return sharder.at(self.path) if isinstance(sharder, SupportsPaths) else sharder

    @property
    def random(self) -> RandomKey | None:
        """The key that this call was given, to hand on through ``functional``; None if nothing is random."""
        return self._context("asks for its key").key

    def key(self, name: str, /) -> jax.Array:
        """A key for the random draw called ``name``; each name is used once in a call.

        Raises:
            ContextError: The call has no key (ask ``self.random`` before), or the name was used already.
        """
        context = self._context(f"asks for the key {name!r}")
        context.check_trace(f"{self.where} asks for the key {name!r}")
        if context.key is None:
            raise ContextError(f"{self.where} asks for the key {name!r}, but was called without one")
        if name in context.keys_used:
            raise ContextError(f"{self.where} asks for the key {name!r} twice in one call; the draws would be equal")
        context.keys_used.add(name)
        return context.key.fold(name).array()

    def summarise(self, name: str, value: jax.Array, /, weight: jax.Array | float = 1.0) -> None:
        """Report a mean; over batches, layers and hosts it is averaged by ``weight``."""
        summary = Summary(jnp.asarray(value, jnp.float32), jnp.asarray(weight, jnp.float32))
        context = self._context(f"summarises {name!r}")
        context.write(context.collected.summaries, name, summary)

    def histogram(self, name: str, values: jax.Array, /, *, low: float, high: float, num_bins: int = 16) -> None:
        """Report how ``values`` are spread: for each of ``num_bins`` bins between ``low`` and ``high`` the share in it.

        What is outside counts for the first or the last bin. Bin ``i`` is reported as ``name[i]``, a mean like any other, so
        that shares are right over layers, batches and hosts.
        """
        scaled = (values.astype(jnp.float32) - low) * (num_bins / (high - low))
        bins = jnp.clip(jnp.floor(scaled), 0, num_bins - 1).astype(jnp.int32)
        shares = jnp.bincount(bins.reshape(-1), length=num_bins).astype(jnp.float32) / values.size
        for i in range(num_bins):
            self.summarise(f"{name}[{i}]", shares[i])

    def output(self, name: str, value: jax.Array, /) -> None:
        """Hand out ``value`` besides what the call returns. Outputs named "aux_loss" are added to the loss."""
        context = self._context(f"outputs {name!r}")
        context.write(context.collected.outputs, name, value)

    def of_batch(self, name: str, value: jax.Array, /) -> jax.Array:
        """``value``, which sums over the rows that there are, as it is of the batch that they may be a part of; without a gradient.

        A training step that goes through a batch in parts, and has gone through it before to know, tells the mean over the parts
        (see ``ModuleModel.batch_statistics``); else it is ``value`` itself, float32.
        """
        context = self._context(f"asks what {name!r} is of the batch")
        value = jax.lax.stop_gradient(value.astype(jnp.float32))
        context.write(context.collected.outputs, OF_BATCH + name, value)
        whole = context.params.get(OF_BATCH + name)
        if whole is None:
            return value
        assert not isinstance(whole, Mapping), f"{name!r} is told, not a child"
        return whole

    def update(self, name: str, value: jax.Array, /) -> None:
        """Hand out the next value of a parameter that is a state: it is assigned, not learnt."""
        spec = self._params.get(name)
        if spec is None:
            raise ContextError(f"{self.where} updates {name!r}, but its parameters are {sorted(self._params)}")
        if value.shape != spec.shape or value.dtype != spec.dtype:
            raise ContextError(
                f"{self.where} updates {name!r} of shape {spec.shape} and type {spec.dtype} "
                f"with shape {value.shape} and type {value.dtype}"
            )
        context = self._context(f"updates {name!r}")
        context.write(context.collected.updates, name, value)

    def absorb(self, collected: Collected, /, *, name: str = "") -> None:
        """Take over what a child, called through ``functional``, collected; ``name`` is the child's."""
        context = self._context("absorbs what a child collected")
        context.check_trace(f"{self.where} absorbs what a child collected")
        context.merge(name, collected)

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """``x`` again, placed by the logical names of its dims."""
        return self.sharder.constrain(x, axes)

    def save_point(self, name: str, x: jax.Array, /) -> jax.Array:
        """``x`` again, under a name that ``Remat`` can be told to save or offload."""
        named: jax.Array = checkpoint_name(x, name)
        return named

    def _context(self, what: str) -> Context:
        context = current()
        if context is None:
            raise ContextError(f"{self.where} {what} outside any context; it may in its @scoped methods only")
        if context.module is not self:
            raise ContextError(f"{self.where} {what} in the context of {context.module.where}; mark the method @scoped")
        return context
