"""Metrics for TensorBoard; needs the extra ``tensorboard``."""

from ._sink import TensorBoardSink as TensorBoardSink
