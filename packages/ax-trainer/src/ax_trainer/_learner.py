"""The usual optimizer, as a config over optax: clip, rule, weight decay, learning rate; and what goes around it.

It is an ``optax.chain``, equal number for number to ``chain(clip_by_global_norm(c), adamw(…))``, that differs in what it
needs not recompute and what it tells: clipping takes the gradients' norm from the step, the learning rate stands in the
state where the step can report it, and which parameters decay is read from their specs. (Counting an array's own dims,
as is usual, would decay the norms of a stack of scanned layers, which are ``[layers, dim]``.)

From the inside out: each group of parameters has a chain of its own, gradients are clipped together, parameters are averaged,
and steps are skipped. What isn't configured isn't there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import ax_config
import jax
from ax_config import Buildable, field

from ._groups import DEFAULT, ParameterGroup, assigned, path_of
from ._learning_rate import Schedule, scale_by_learning_rate
from ._rules import Rule, adam, made
from ._skipping import skipping
from ._widths import Factors, WidthScaling, scaled
from .protocols import Averaging, Optimizer, SkipRule, Spec, SupportsWeightDecay

if TYPE_CHECKING:
    from ._learning import Learning


class Learner:
    """Makes the optimizer for a model's parameters; see the module's docstring."""

    class Config(ax_config.Config["Learner"]):
        """What optimizer to make. With the defaults and a schedule it is AdamW without weight decay."""

        schedule: Buildable[Schedule]
        """The learning rate: ``config_for(optax.warmup_cosine_decay_schedule)(…)``."""
        rule: Rule = field(default_factory=adam)
        """What turns gradients into a direction, learning rate not included: an ``optax.scale_by_…``, or a ``Muon.Config``."""
        clip_norm: float | None = None
        """Gradients of a larger global norm are scaled down to it."""
        weight_decay: float = 0.0
        """How much of a parameter is added to its direction (decoupled, as in AdamW), where it decays at all."""
        groups: dict[str, Buildable[ParameterGroup]] = field(default_factory=dict)
        """Parameters that are learnt differently, by the name under which their learning rate is reported."""
        average: Buildable[Averaging] | None = None
        """What is averaged over steps, to be evaluated: ``ParameterAverage``, ``ScheduleFree``."""
        skip: tuple[Buildable[SkipRule], ...] = ()
        """Each may say of a step that it is skipped: ``SkipNonFinite``, ``SkipSpikes``, ``LossScale``."""
        widths: Buildable[WidthScaling] | None = None
        """The base model whose learning rates these are, so that they go with the width."""
        stacking_axes: tuple[str, ...] = ("layers",)
        """Logical axes along which parameters are merely stacked, so that they count for no dim in ``decay_mask``."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def for_specs(self, specs: object, /) -> Learning:
        """The ``optax.GradientTransformationExtraArgs`` for parameters of these specs; it ``SupportsFreezing`` and ``SupportsFirstValues``.

        Raises:
            ValueError: A group doesn't fit these parameters; see ``ParameterGroup``.
        """
        import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

        from ._learning import Learning

        cfg = self.cfg
        factors = {} if cfg.widths is None else cfg.widths.build().factors(specs)
        groups = {name: group.build() for name, group in cfg.groups.items()}
        labels = assigned(groups, specs)
        frozen = {name for name, group in groups.items() if group.cfg.frozen}
        leaves = jax.tree_util.tree_leaves_with_path(labels)
        frozen_parameters = frozenset(path_of(path) for path, label in leaves if label in frozen)
        specs = jax.tree.map(lambda label, spec: None if label in frozen else spec, labels, specs)
        labels = jax.tree.map(lambda label: None if label in frozen else label, labels)

        links: list[object] = [] if cfg.clip_norm is None else [_clip(cfg.clip_norm)]
        learnt = {label: groups.get(label) for label in jax.tree.leaves(labels)}
        if learnt.keys() <= {DEFAULT}:
            links += self._links(specs, None, factors)
        else:
            chains = {label: optax.chain(*self._links(specs, group, factors)) for label, group in learnt.items()}
            links.append(optax.partition(chains, labels))
        optimizer = cast("Optimizer", optax.chain(*links))
        if cfg.average is not None:
            optimizer = cfg.average.build().around(optimizer, cfg.schedule.build())
        if cfg.skip:
            optimizer = skipping(optimizer, [rule.build() for rule in cfg.skip])
        first_values = {path: each.first_values for path, each in factors.items()}
        return Learning.of(optimizer, frozen_parameters=frozen_parameters, first_values=first_values)

    def _links(self, specs: object, group: ParameterGroup | None, factors: Mapping[str, Factors]) -> list[object]:
        """What a group does to its gradients, clipping aside; None are the parameters of no group."""
        import optax

        cfg, own = self.cfg, None if group is None else group.cfg
        rule, schedule, weight_decay, factor = cfg.rule, cfg.schedule, cfg.weight_decay, 1.0
        if own is not None:
            rule = rule if own.rule is None else own.rule
            schedule = schedule if own.schedule is None else own.schedule
            weight_decay = cfg.weight_decay if own.weight_decay is None else own.weight_decay
            factor = own.learning_rate_factor
        links: list[object] = [made(rule, specs)]
        if factors:
            rates = {path: each.learning_rate for path, each in factors.items()}
            links.append(optax.stateless(lambda updates, _: scaled(updates, rates)))
        if weight_decay:
            links.append(optax.add_decayed_weights(weight_decay, mask=decay_mask(specs, cfg.stacking_axes)))
        links.append(scale_by_learning_rate(schedule.build(), factor=factor))
        return links


def decay_mask(specs: object, stacking_axes: tuple[str, ...] = ("layers",)) -> object:
    """Which parameters decay: a tree of bools, to be given to optax as a ``mask``.

    A spec that has ``weight_decay`` says it itself (``SupportsWeightDecay``). Of the others matrices decay: those that have
    two dims or more beside the ``stacking_axes``.
    """

    def decays(spec: Spec) -> bool:
        if isinstance(spec, SupportsWeightDecay):
            return spec.weight_decay
        return sum(axis not in stacking_axes for axis in spec.axes) >= 2

    return jax.tree.map(decays, specs)


def _clip(max_norm: float) -> Optimizer:
    """``optax.clip_by_global_norm`` that is told the norm."""
    import optax

    def update(
        updates: object, state: object, _params: object = None, *, grad_norm: jax.Array, **_: object
    ) -> tuple[object, object]:
        def clip(x: jax.Array) -> jax.Array:
            return jax.lax.select(grad_norm < max_norm, x, (x / grad_norm.astype(x.dtype)) * max_norm)

        return jax.tree.map(clip, updates), state

    return cast("Optimizer", optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update))
