"""Orbax logs its progress and prints a traceback for every failed save; failures reach the user as our errors."""

from __future__ import annotations

import logging


def silence_orbax() -> None:
    """Drop what Orbax logs through absl, and nothing that anybody else does."""
    logger = logging.getLogger("absl")
    if _not_from_orbax not in logger.filters:
        logger.addFilter(_not_from_orbax)


def _not_from_orbax(record: logging.LogRecord) -> bool:
    return "/orbax/checkpoint/" not in record.pathname
