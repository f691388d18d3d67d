"""A small exact linear program: few rows, some hundred columns, fractions instead of floats."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PIVOTS = 400


class UnendedError(Exception):
    """The search took too many steps: nothing is known."""


def least(columns: Sequence[Sequence[int]], floors: Sequence[int]) -> list[Fraction] | None:
    """Return amounts, none negative and with the least sum, with which every row reaches its floor.

    The dual simplex algorithm: all amounts zero are the best that could be, and each step repairs
    the row that is furthest below its floor.

    Args:
        columns: what one of each amount adds to every row.
        floors: what each row has to reach; a limit is a negative floor of negative columns.

    Returns:
        The amounts; None where there are none.

    Raises:
        UnendedError: it took too many steps.
    """
    rows, wide = len(floors), len(columns)
    table = [
        [Fraction(-column[row]) for column in columns]
        + [Fraction(int(other == row)) for other in range(rows)]
        + [Fraction(-floors[row])]
        for row in range(rows)
    ]
    cost = [Fraction(1)] * wide + [Fraction(0)] * (rows + 1)
    basis = [wide + row for row in range(rows)]
    for _ in range(PIVOTS):
        leaving = min(range(rows), key=lambda row: (table[row][-1], basis[row]))
        pivot_row = table[leaving]
        if pivot_row[-1] >= 0:
            amounts = [Fraction(0)] * wide
            for row, column in enumerate(basis):
                if column < wide:
                    amounts[column] = table[row][-1]
            return amounts
        choices = [column for column in range(wide + rows) if pivot_row[column] < 0]
        if not choices:
            return None
        entering = min(choices, key=lambda column: (cost[column] / -pivot_row[column], column))
        scale = pivot_row[entering]
        table[leaving] = pivot_row = [value / scale if value else value for value in pivot_row]
        filled = [column for column, value in enumerate(pivot_row) if value]
        for other in [*(one for row, one in enumerate(table) if row != leaving), cost]:
            if factor := other[entering]:
                for column in filled:
                    other[column] -= factor * pivot_row[column]
        basis[leaving] = entering
    raise UnendedError(f"more than {PIVOTS} steps")
