"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from bench.stats import Spread


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [_line(head), _line([":--", *("--:" for _ in head[1:])]), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """A number with as many digits as one reads."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def ranged(spread: Spread, unit: str = "") -> str:
    """A median with its range."""
    low, high = number(spread.low), number(spread.high)
    return f"{low}{unit}" if low == high else f"{number(spread.median)}{unit} ({low}–{high})"  # noqa: RUF001
