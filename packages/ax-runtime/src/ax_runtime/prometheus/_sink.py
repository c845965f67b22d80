"""The newest numbers, over HTTP, for Prometheus to come and read.

Prometheus asks when it likes and keeps its own history, so there is nothing to write: a scrape is answered with what was
measured last. A gauge is named after its value, ``ax_loss``, and labelled with the group, the value's exact name, and the
run; ``ax_step`` is the step of a group's newest values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

import ax_config
from ax_config import field

if TYPE_CHECKING:
    from prometheus_client.metrics_core import GaugeMetricFamily

_LABELS = ("run", "group", "name")


@final
class PrometheusSink:
    """Serves ``http://<address>:<port>/metrics``. Fits a trainer's ``MetricSink``.

    A rewind drops what was measured at later steps; what was scraped already is Prometheus' own. Values are float64, NaN
    and infinities included. They last as long as this process does.

    Raises ValueError when the port can't be had.
    """

    class Config(ax_config.Config["PrometheusSink"]):
        """Where to listen."""

        port: int = field(default=9464, help="0 takes any that is free")
        address: str = field(default="127.0.0.1", help="0.0.0.0 lets other machines in")

    def __init__(self, cfg: Config, /, *, folder: Path) -> None:
        # Imported here, not above: it pulls in the standard library's HTTP server.
        from prometheus_client import CollectorRegistry, start_http_server

        self._run = folder.name
        self._newest: dict[tuple[str, str], tuple[int, float]] = {}
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(cfg.port, addr=cfg.address, registry=registry)
        except OSError as error:
            raise ValueError(
                f"can't serve metrics at {cfg.address}:{cfg.port}: {error.strerror or error}. Choose another port; 0 takes "
                "any that is free"
            ) from error
        self.port = int(self._server.server_port)
        """Where it listens."""

    def rewind(self, step: int, /) -> None:
        """Serve nothing of later steps any more."""
        self._newest = {key: newest for key, newest in self._newest.items() if newest[0] <= step}

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Serve these values from now on."""
        # A scrape in its own thread reads one dict or the other, never one that changes under it.
        self._newest = self._newest | {(name, key): (step, float(value)) for key, value in values.items()}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What a scrape is answered with, as ``prometheus_client`` asks for it."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        steps = GaugeMetricFamily("ax_step", "The step of the newest values of a group.", labels=_LABELS[:2])
        for (group, name), (_, value) in self._newest.items():
            gauge = "ax_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
            family = families.setdefault(gauge, GaugeMetricFamily(gauge, f"The newest {name}.", labels=_LABELS))
            family.add_metric((self._run, group, name), value)
        for group in dict.fromkeys(group for group, _ in self._newest):
            newest = max(step for (of, _), (step, _) in self._newest.items() if of == group)
            steps.add_metric((self._run, group), newest)
        yield from (steps, *families.values())

    def close(self) -> None:
        """Stop serving; closing again does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
