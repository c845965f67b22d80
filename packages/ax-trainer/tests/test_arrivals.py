"""When steps are done is noted in their order, whatever becomes of them."""

import time
from itertools import pairwise

import jax.numpy as jnp
from ax_trainer._arrivals import Arrival, Arrivals


def test_arrivals_come_in_order_and_survive_devices_that_fail() -> None:
    heard: list[Arrival] = []
    arrivals = Arrivals(on_arrival=heard.append)
    failed = jnp.ones(3)
    failed.delete()  # waiting for it raises
    begun = time.monotonic()
    for step, outcome in ((1, jnp.ones(3)), (2, failed), (3, jnp.ones(3))):
        arrivals.expect(step, begun, outcome)
    came = [arrivals.next() for _ in range(3)]
    assert [arrival.step for arrival in came] == [1, 2, 3]
    assert all(begun <= a.done <= b.done <= time.monotonic() for a, b in pairwise(came))
    assert heard == came
    arrivals.close()
