"""Rows in groups, each group times a matrix of its own: `base` says what it means, other backends skip what isn't asked for."""

from ._base import base as base
from ._batched import batched as batched
