"""Plain text tables."""

import math
from collections.abc import Sequence

Cell = str | int | float


def show(value: Cell) -> str:
    """A cell as text: whole numbers as they are, others with a precision that fits their size, NaN as a dash."""
    if isinstance(value, str | int):
        return str(value)
    if math.isnan(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns of equal width: text to the left, numbers to the right. No newline at the end."""
    cells = [list(header), *([show(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    left = [all(isinstance(row[i], str) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
