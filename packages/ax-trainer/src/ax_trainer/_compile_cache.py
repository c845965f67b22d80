"""Programs compiled once: JAX's persistent cache, which knows a program by its content, and how to tell whether it helped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.monitoring

_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"


def keep_compiled(folder: str | os.PathLike[str], /) -> None:
    """Keep every compiled program in ``folder``, made if need be, and take from there what was compiled before.

    Programs are found by their content, the compiler's options and version, and the devices; processes may share the folder.
    Call it before the first compilation. By default JAX keeps only what took a second to compile; a restart needs the rest too.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class Lookups:
    """How often the cache was asked."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0

    def count(self, event: str, **_: str | int) -> None:
        """Listens to ``jax.monitoring``."""
        self.hits += event == _HIT
        self.misses += event == _MISS


@contextmanager
def lookups() -> Iterator[Lookups]:
    """Counts how often compilations in this context find their program in the persistent cache, and how often not."""
    counted = Lookups()
    jax.monitoring.register_event_listener(counted.count)
    try:
        yield counted
    finally:
        jax.monitoring.unregister_event_listener(counted.count)
