"""Scaled dot-product attention: `base` says what it means, every other backend gives the same faster."""

from ._base import base as base
from ._blocked import blocked as blocked
from ._partial_blocked import PartialBlocked as PartialBlocked
