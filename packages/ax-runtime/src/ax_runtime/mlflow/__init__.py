"""Metrics for MLflow; needs the extra ``mlflow``."""

from ._sink import MlflowSink as MlflowSink
