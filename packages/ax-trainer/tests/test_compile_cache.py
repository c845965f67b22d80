"""A restart finds its programs in the cache."""

import os
import subprocess
import sys
from pathlib import Path

PROCESS = """
import sys
import jax, jax.monitoring
import optax
from ax_config import config_for
from ax_trainer import Trainer, keep_compiled
from ax_trainer.testing import BigramModel, MemoryBatches, MemorySink, SingleDevice, bigram_batches

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
keep_compiled(sys.argv[1])
sink = MemorySink()
trainer = Trainer(
    Trainer.Config(num_steps=1, optimizer=config_for(optax.adam)(learning_rate=0.1)),
    model=BigramModel(), partitioner=SingleDevice(), batches=MemoryBatches(bigram_batches(1)), sinks=[sink],
)
result = trainer.run()
missed = events.count("/jax/compilation_cache/cache_misses")
first = next(values for _, group, values in sink.records if group == "speed")
print(missed, events.count("/jax/compilation_cache/cache_hits"), first["compile_cached"])
"""


def test_a_warm_restart_compiles_nothing(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}

    def start() -> list[float]:
        ended = subprocess.run(
            [sys.executable, "-c", PROCESS, str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            timeout=50,
            env=env,
        )
        assert ended.returncode == 0, ended.stderr
        return [float(word) for word in ended.stdout.split()]

    missed, hit, cached = start()
    assert missed > 1
    assert (hit, cached) == (0, 0)
    assert start() == [0, missed, 1]
