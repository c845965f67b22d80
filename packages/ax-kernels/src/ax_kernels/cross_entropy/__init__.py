"""The language model's head and its loss in one call: `base` says what it means, other backends hold fewer logits."""

from ._base import base as base
from ._chunked import chunked as chunked
