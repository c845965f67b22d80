"""Sampling and streaming generation from anything that fits `ax_inference.protocols.Decoder`."""

from ._buckets import bucket_length as bucket_length
from ._generate import FINISHED as FINISHED
from ._generate import generate as generate
from ._sampler import Sampler as Sampler
from ._version import __version__ as __version__
