"""A server with a hundred running streams is killed, twenty times in a row, on one file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from faults.load import rounds

pytestmark = pytest.mark.soak


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_left_at_work_by_twenty_kills(launch: Any, tmp_path: Path) -> None:
    reports = rounds(launch, number=20, streams=100, seed=1)
    print("", *reports, sep="\n")
    assert len(reports) == 20
    with closing(sqlite3.connect(f"file:{tmp_path / 'tasks.db'}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
