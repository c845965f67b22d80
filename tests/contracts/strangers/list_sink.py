"""Metrics in a list, for a notebook."""

from __future__ import annotations

from collections.abc import Mapping


class ListSink:
    """Fits ``MetricSink`` of ax-trainer."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str, dict[str, float]]] = []

    def rewind(self, step: int, /) -> None:
        self.records = [record for record in self.records if record[0] <= step]

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        self.records.append((step, name, dict(values)))

    def close(self) -> None:
        pass

    def losses(self) -> dict[int, float]:
        """The training loss by step."""
        return {step: values["loss"] for step, name, values in self.records if name == "train"}
