"""How much of a step the stages of a pipeline wait, by the clock of the schedules' own tables; as rows of a Markdown table.

    python packages/ax-layers/benchmarks/bubbles.py

The first figure of each pair is for tasks that take equally long, the second for backwards that compute the forward again, as
``Pipeline``'s do, and so take twice as long.
"""

from __future__ import annotations

from ax_layers import Costs, Schedule, bubble, gpipe, late_weights, one_forward_one_backward, zero_bubble

COSTS = (Costs(), Costs(backward=2.0))
SIZES = ((4, 8), (4, 32), (8, 32), (16, 64))
ROWS: tuple[tuple[str, Schedule, int, bool], ...] = (
    ("`gpipe`", gpipe, 1, True),
    ("`one_forward_one_backward`", one_forward_one_backward, 1, True),
    ("the same, `num_chunks=2`", one_forward_one_backward, 2, True),
    ("the same, `num_chunks=4`", one_forward_one_backward, 4, True),
    ("`late_weights`", late_weights, 1, True),
    ("the same, `num_chunks=2`", late_weights, 2, True),
    ("`zero_bubble`, `lockstep=False`", zero_bubble, 1, False),
)


def main() -> None:
    print("| schedule |" + "".join(f" {stages} stages, {number} microbatches |" for stages, number in SIZES))
    print("|---|" + "---|" * len(SIZES))
    for name, schedule, chunks, lockstep in ROWS:
        tables = [schedule(stages, chunks, number) for stages, number in SIZES]
        waits = [" / ".join(f"{bubble(table, costs, lockstep=lockstep):.1%}" for costs in COSTS) for table in tables]
        print(f"| {name} |" + "".join(f" {wait} |" for wait in waits))


if __name__ == "__main__":
    main()
