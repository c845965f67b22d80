"""Attention, cross-entropy and other kernels for JAX: a package an op, in it `base` and its faster equals."""

from . import attention as attention
from . import cross_entropy as cross_entropy
from . import grouped_matmul as grouped_matmul
from ._version import __version__ as __version__
