"""The newest metrics for Prometheus to scrape; needs the extra ``prometheus``."""

from ._sink import PrometheusSink as PrometheusSink
