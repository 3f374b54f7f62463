"""The tables of the documentation, as tests compare them with the code."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


@cache
def page(name: str = "reference.md") -> str:
    """The text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def cells(line: str) -> list[str]:
    """The cells of one line of a table."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows(*header: str, of: str = "reference.md") -> list[list[str]]:
    """The rows of the table of a page with these column names."""
    lines = page(of).splitlines()
    starts = [index for index, line in enumerate(lines) if cells(line) == list(header)]
    assert len(starts) == 1, f"{of} has {len(starts)} tables with the columns {header}"
    return [cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines[starts[0] + 2 :])]


def code(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)
