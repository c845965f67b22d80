"""Configs used as they should be: nobody complains, and every type is what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar, assert_type

from ax_config import (
    REQUIRED,
    AnyModifier,
    Buildable,
    Change,
    Config,
    Explanation,
    Modifier,
    Replacement,
    built,
    chain,
    config_for,
    describes,
    diff,
    explain,
    field,
    for_each,
    get_at,
    loads,
    map_values,
    modifier_for,
    override,
    overriding,
    partial_for,
    replace,
    replacing,
    role,
    select,
    setting,
    to_yaml,
    when,
)
from ax_config.sweeps import Named, axis, product, variants

from .world import Block, Linear, Model, Norm, Precision, RMSNorm, Shape, model, schedule

ConfigT = TypeVar("ConfigT", bound=Config[object])


def what_a_config_builds() -> None:
    assert_type(Linear.Config(in_dim=4), Linear.Config)
    assert_type(Linear.Config(in_dim=4).build(out_dim=3), Linear)
    assert_type(model().build(), Model)
    assert_type(RMSNorm.Config(dim=4).build().normalise(2.0), float)


def fields() -> None:
    config = model()
    assert_type(config.dim, int)
    assert_type(config.block, Block.Config)
    assert_type(config.block.norm, Buildable[Norm])
    assert_type(config.block.norm.build(dim=4), Norm)
    assert_type(config.head, Buildable[Linear] | None)
    assert_type(config.stages[0].rms.eps, float)
    assert_type(config.heads, dict[str, Buildable[Linear]])
    assert_type(config.task, Literal["train", "eval"])
    config.dim = 8
    config.block.rms.eps = 1
    config.block.norm = RMSNorm.Config(eps=1e-3)
    config.head = Linear.Config(in_dim=4)
    config.last = Linear.Config(in_dim=4)
    config.last = RMSNorm.Config()
    config.norms = [RMSNorm.Config(), RMSNorm.Config(dim=3)]
    config.heads = {"a": Linear.Config(in_dim=4)}
    config.window = (1, 2)
    config.task = "eval"
    config.precision = Precision.HIGH
    config.shape = Shape(4, seq=8)
    config.seed = None
    del config.seed


def fields_left_open() -> None:
    assert_type(config_for(schedule)(REQUIRED, steps=2).build(peak=1.0), float)
    config = Linear.Config(in_dim=REQUIRED)
    config.out_dim = REQUIRED
    assert_type(config.build(in_dim=4, out_dim=3), Linear)


def copies_keep_the_class() -> None:
    assert_type(model().clone(dim=3), Model.Config)
    assert_type(replace(model(), RMSNorm, RMSNorm.Config(eps=1.0)), Model.Config)
    assert_type(replace(model(), RMSNorm, lambda old: old), Model.Config)
    assert_type(replace(model(), "stages[*].norm", RMSNorm.Config()), Model.Config)
    assert_type(override(model(), ["dim=3", "**.eps=0.1"]), Model.Config)


def _measure(layer: Linear, norm: RMSNorm | None = None, *, share: float = 1.0) -> float:
    return share * layer.cfg.in_dim + (0 if norm is None else norm.cfg.dim)


def functions() -> None:
    layer = Linear.Config(in_dim=4, out_dim=3)
    assert_type(config_for(_measure)(built(layer), built(RMSNorm.Config(dim=3))).build(), float)
    assert_type(config_for(_measure)(built(layer), share=built(config_for(schedule)(1.0))).build(), float)
    assert_type(config_for(schedule)(1.0, steps=3).build(), float)
    assert_type(config_for(schedule)(peak=1.0, name="linear").build(), float)
    assert_type(config_for(schedule)(built(config_for(schedule)(1.0))).build(), float)
    assert_type(config_for(Shape)(8).build(), Shape)
    assert_type(built(RMSNorm.Config()), RMSNorm)
    assert_type(partial_for(schedule, steps=3).build()(1.0), float)


def whole_trees() -> None:
    config = model()
    assert_type(loads(""". = new mistakes.world:RMSNorm.Config"""), Config[object])
    assert_type(get_at(config, "block.rms.eps"), object)
    assert_type(diff(config, config), list[Change])
    assert_type(select(config, Block), list[tuple[str, Config[object]]])
    assert_type(_whatever_it_is(config), object)
    assert_type(_whatever_builds_it(config), Model)


def _whatever_it_is(config: Config[object]) -> object:
    return config.build()


def _whatever_builds_it(config: Buildable[Model]) -> Model:
    return config.build()


def _widen(config: Model.Config, *, times: int) -> Model.Config:
    config.dim *= times
    return config


def _sharpen(config: ConfigT, *, eps: float) -> ConfigT:
    return setting(RMSNorm, eps=eps)(config)


class Twice(Modifier):
    then: AnyModifier = field(default_factory=chain)

    def apply(self, tree: Config[object]) -> Config[object]:
        return self.then(self.then(tree))


def modifiers() -> None:
    sharpen = modifier_for(_sharpen, eps=1e-3)
    assert_type(modifier_for(_widen, times=2)(model()), Model.Config)
    assert_type(sharpen(model()), Model.Config)
    assert_type(sharpen(Block.Config()), Block.Config)
    both = chain(sharpen, modifier_for(_widen, times=2), setting(Model, seed=3), overriding("task=eval"))
    assert_type(both(model()), Model.Config)
    assert_type(when(role("head"), sharpen, otherwise=chain())(model()), Model.Config)
    assert_type(when(lambda node: isinstance(node, Model.Config), sharpen)(model()), Model.Config)
    assert_type(for_each(Block, sharpen)(model()), Model.Config)
    assert_type(for_each(describes(schedule), chain())(config_for(schedule)(1.0)).build(), float)
    assert_type(replacing(RMSNorm, RMSNorm.Config(), carry=["eps"])(model()), Model.Config)
    assert_type(Twice(then=sharpen)(Block.Config()), Block.Config)
    any_kind: list[AnyModifier] = [sharpen, both, chain(), Twice()]
    assert_type([modify(model()) for modify in any_kind], list[Model.Config])
    assert_type(map_values(model(), lambda path, value: value), Model.Config)


def sweeps() -> None:
    sweep = product(axis("dim", [4, 8]), variants({"plain": chain(), "sharp": setting(RMSNorm, eps=1e-3)}))
    assert_type(sweep[0].modifier(model()), Model.Config)
    assert_type([named.config for named in sweep.on(model())], list[Model.Config])
    assert_type(sweep.on(model())[1:], Sequence[Named[Model.Config]])


def what_is_told() -> None:
    replaced: list[Replacement] = []
    replace(model(), RMSNorm, RMSNorm.Config(eps=1.0), report=replaced.append)
    assert_type(replaced[0].carried, tuple[str, ...])
    assert_type(explain(model(), "block.rms.eps"), Explanation)
    assert_type(to_yaml(model()), str)


def classes_of_configs() -> None:
    class Parent(Config[Mapping[str, int]]):
        a: int = 1
        b: str = field(default="b", help="the second")
        c: Linear.Config = field(default_factory=lambda: Linear.Config(in_dim=3))
        d: int = REQUIRED

        def make(self, **extras: object) -> Mapping[str, int]:
            return {self.b: self.a}

    class Child(Parent):
        e: float

    assert_type(Child(e=1.0, d=3, a=2).build(), Mapping[str, int])
