"""Metrics for Weights & Biases; needs the extra ``wandb``."""

from ._sink import WandbSink as WandbSink
