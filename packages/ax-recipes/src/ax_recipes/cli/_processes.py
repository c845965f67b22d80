"""One of several processes that train together, a host each: how it finds the others, and how it leaves them.

Leaving matters. A process that ends in order waits for the others at JAX's coordination service, which is right after training, and
wrong after a failure: the others would wait for it in a collective. So a failure ends the process at once, the connections break, and
the others fail too, within moments; whoever started them starts them again.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer


@dataclass(frozen=True)
class Processes:
    """What ``ax train`` is told about the processes; all unset means that there is only this one."""

    coordinator: str | None = None
    """``HOST:PORT`` of the first."""
    number: int | None = None
    index: int | None = None
    detect: bool = False
    """Whether what is unset is asked of the cluster: Slurm, a TPU pod, Open MPI, Kubernetes."""

    def join(self) -> None:
        """Wait for the others. To be called before JAX touches a device.

        Raises:
            ValueError: Something is missing, and no cluster tells it.
        """
        given = (self.coordinator, self.number, self.index)
        if given == (None, None, None) and not self.detect:
            return
        if None in given and not self.detect:
            raise ValueError(
                f"of --coordinator, --processes and --process all or none are needed, got {given}; --distributed asks the cluster"
            )
        import jax

        jax.distributed.initialize(self.coordinator, self.number, self.index)


def part() -> None:
    """Wait until all others have come as far, and be alone from now on."""
    import jax

    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """End the process without waiting for the others, if it ends while there are others and not in order."""
    try:
        yield
    except BaseException as error:
        if not _has_others():
            raise
        code = 1
        if isinstance(error, typer.Exit):
            code = error.exit_code
        elif isinstance(error, SystemExit) and isinstance(error.code, int):
            code = error.code
        else:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _has_others() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.distributed.is_initialized())
