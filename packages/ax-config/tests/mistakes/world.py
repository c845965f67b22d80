"""The small world that the mistakes are made in: a model of blocks, each with some norm."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, Protocol

import ax_config
from ax_config import REQUIRED, Buildable, field


class Norm(Protocol):
    def normalise(self, x: float, /) -> float: ...


class Precision(enum.Enum):
    LOW = "bf16"
    HIGH = "fp32"


@dataclass(frozen=True)
class Shape:
    batch: int
    seq: int = 128


class RMSNorm:
    class Config(ax_config.Config["RMSNorm"]):
        dim: int = REQUIRED
        eps: float = 1e-6

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def normalise(self, x: float, /) -> float:
        return x / self.cfg.dim


class Linear:
    class Config(ax_config.Config["Linear"]):
        in_dim: int
        out_dim: int = REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def apply(self, x: float, /) -> float:
        return x * self.cfg.in_dim


class Block:
    class Config(ax_config.Config["Block"]):
        norm: Buildable[Norm] = field(default_factory=RMSNorm.Config)
        rms: RMSNorm.Config = field(default_factory=RMSNorm.Config)
        dropout: float = 0.0

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


class Model:
    class Config(ax_config.Config["Model"]):
        dim: int
        block: Block.Config = field(default_factory=Block.Config)
        head: Buildable[Linear] | None = None
        last: Buildable[Linear | RMSNorm] | None = None
        stages: tuple[Block.Config, ...] = ()
        norms: list[Buildable[Norm]] = field(default_factory=list[Buildable[Norm]])
        heads: dict[str, Buildable[Linear]] = field(default_factory=dict[str, Buildable[Linear]])
        tags: tuple[str, ...] = ()
        weights: dict[str, float] = field(default_factory=dict[str, float])
        sizes: list[int] = field(default_factory=list[int])
        window: tuple[int, int] = (0, 0)
        task: Literal["train", "eval"] = "train"
        precision: Precision = Precision.LOW
        shape: Shape = Shape(8)
        seed: int | None = None

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


def schedule(peak: float, *, steps: int = 100, name: str = "cosine") -> float:
    return peak / steps + len(name)


def model() -> Model.Config:
    return Model.Config(dim=4, stages=(Block.Config(), Block.Config()))
