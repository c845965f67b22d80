"""Replacing parts: what is carried over, what is dropped, and what may stay open."""

from __future__ import annotations

import ax_config
import pytest
from ax_config import REQUIRED, Config, MissingFieldError, NoMatchError, Replacement, field, get_at, replace, role
from things import Bulb, Candle, House, Room, house, linear


class Dense:
    """A feed-forward of two widths, which its parent knows, and one that is its own."""

    class Config(ax_config.Config["Dense"]):
        in_dim: int = REQUIRED
        out_dim: int = REQUIRED
        hidden_dim: int = 8
        bias: bool = False

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


class Experts:
    """Stands in its place, and is made of some."""

    class Config(ax_config.Config["Experts"]):
        in_dim: int = REQUIRED
        out_dim: int = REQUIRED
        num_experts: int = REQUIRED
        hidden_dim: int = 16
        expert: Dense.Config = field(default_factory=Dense.Config)

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


class Layer:
    class Config(ax_config.Config["Layer"]):
        dim: int
        ffn: Dense.Config | Experts.Config = field(default_factory=Dense.Config)

    def __init__(self, cfg: Config, /) -> None:
        self.ffn = cfg.ffn.build(in_dim=cfg.dim, out_dim=cfg.dim)


class Stack:
    class Config(ax_config.Config["Stack"]):
        layers: tuple[Layer.Config, ...]

    def __init__(self, cfg: Config, /) -> None:
        self.layers = [layer.build() for layer in cfg.layers]


def stack() -> Stack.Config:
    fixed = Dense.Config(in_dim=4, out_dim=4, hidden_dim=32)
    return Stack.Config(layers=(Layer.Config(dim=4), Layer.Config(dim=4, ffn=fixed)))


def test_one_call_turns_every_feed_forward_into_a_mixture() -> None:
    told: list[Replacement] = []
    moe = replace(stack(), role("ffn"), Experts.Config(num_experts=4), report=told.append)
    assert [layer.ffn.cfg.num_experts for layer in moe.build().layers] == [4, 4]  # type: ignore[union-attr]
    assert told == [
        Replacement("layers[0].ffn", "Dense.Config", "Experts.Config", (), ()),
        Replacement("layers[1].ffn", "Dense.Config", "Experts.Config", ("in_dim", "out_dim"), ("hidden_dim",)),
    ]
    assert str(told[1]) == ("layers[1].ffn: Dense.Config → Experts.Config; carried in_dim, out_dim; dropped hidden_dim")
    assert get_at(moe, "layers[1].ffn.in_dim") == 4
    assert "in_dim" not in moe.layers[0].ffn.__dict__, "what its parent fills stays open"
    again = replace(moe, role("ffn"), Experts.Config(num_experts=2))
    assert isinstance(again.layers[0].ffn, Experts.Config), "the experts inside are not feed-forwards of a layer"
    assert again.layers[0].ffn.expert == Dense.Config()


def test_named_fields_are_carried_too() -> None:
    moe = replace(stack(), Dense, Experts.Config(num_experts=4), carry=["hidden_dim"])
    assert [get_at(moe, f"layers[{i}].ffn.hidden_dim") for i in (0, 1)] == [8, 32]
    with pytest.raises(NoMatchError, match=r"layers\[0\]\.ffn: 'bais' can't be carried, Dense\.Config has no such"):
        replace(stack(), Dense, Experts.Config(num_experts=4), carry=["bais"])
    with pytest.raises(NoMatchError, match=r"'bias' can't be carried, Experts\.Config has no such field"):
        replace(stack(), Dense, Experts.Config(num_experts=4), carry=["bias"])
    with pytest.raises(NoMatchError, match=r"layers\[0\]\.ffn\.in_dim is not set"):
        replace(stack(), Dense, Experts.Config(num_experts=4), carry=["in_dim"])


def test_what_nobody_would_fill_is_an_error() -> None:
    with pytest.raises(MissingFieldError, match=r"leaves layers\[0\]\.ffn\.num_experts open, which the Dense\.Config"):
        replace(stack(), Dense, Experts.Config())
    lit = replace(house(), Candle, Bulb.Config())  # both leave the room to their parent
    assert lit.build().rooms[0].light() == 6.0


def test_new_may_be_made_from_what_stood_there() -> None:
    def mixed(old: Config[Dense]) -> Experts.Config:
        assert isinstance(old, Dense.Config)
        return Experts.Config(num_experts=2, expert=old)

    def wider(old: Dense.Config) -> Dense.Config:
        return old.clone(hidden_dim=2 * old.hidden_dim)

    moe = replace(stack(), Dense, mixed)
    assert get_at(moe, "layers[1].ffn.expert.hidden_dim") == 32
    wide = replace(stack(), Dense.Config, wider)
    assert [get_at(wide, f"layers[{i}].ffn.hidden_dim") for i in (0, 1)] == [16, 64]


def test_items_next_to_a_replaced_one_stay_part_of_the_tree() -> None:
    new = replace(house(), Room, lambda old: Room.Config(name="new"))
    assert [room.name for room in new.rooms] == ["new", "new"]
    assert [room._ax_parent is new for room in new.rooms] == [True, True]
    (root,) = [replace(house(), House, House.Config(height=1.0))]
    assert root == House.Config(height=1.0)
    assert linear(2.0) == 2.0
