"""The loss curve, drawn in the terminal: a braille canvas (2 × 4 dots a character) with a scale on two sides."""

from __future__ import annotations

from collections.abc import Sequence

Points = Sequence[tuple[int, float]]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column within a character
_MARGIN = 9


def draw(train: Points, validation: Points, *, width: int, height: int = 12) -> str:
    """Loss over steps as text of ``width`` columns: training as a line of dots, validation as ● marks.

    The scale spans the values from the twentieth part of the run on, so that the first steps don't flatten the rest.
    """
    first, last = train[0][0], max(train[-1][0], train[0][0] + 1)
    settled = [loss for _, loss in train[len(train) // 20 :]] + [loss for _, loss in validation]
    low, high = min(settled), max(settled)
    high = high if high > low else low + 1.0
    columns = max(width - _MARGIN, 16)

    def place(step: int, loss: float, per_column: int, per_row: int) -> tuple[int, int]:
        x = round((step - first) / (last - first) * (columns * per_column - 1))
        y = round((high - min(max(loss, low), high)) / (high - low) * (height * per_row - 1))
        return x, y

    dots = [[0] * columns for _ in range(height)]
    for step, loss in train:
        x, y = place(step, loss, 2, 4)
        dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    cells = [[chr(0x2800 + dot) for dot in row] for row in dots]
    for step, loss in validation:
        x, y = place(step, loss, 1, 1)
        cells[y][x] = "●"
    labels = {0: f"{high:.3f}", height // 2: f"{(low + high) / 2:.3f}", height - 1: f"{low:.3f}"}
    lines = [f"{labels.get(i, ''):>{_MARGIN - 2}} ┤{''.join(row).rstrip(chr(0x2800))}" for i, row in enumerate(cells)]
    steps = f"{first}{last:>{columns - len(str(first))}}"
    return "\n".join(["loss (● validation) over steps", *lines, " " * _MARGIN + steps])
