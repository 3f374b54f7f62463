"""A request passes few files and few calls. `python tests/architecture/walk.py -v` shows which."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

# The most files and calls of each walk. Calls vary by a few in a hundred, as threads meet.
BOUNDS = {
    "send": (54, 430),
    "stream": (54, 750),
    "call": (39, 300),
    "tool": (67, 485),
    "webhook": (76, 1280),
}

spec = importlib.util.spec_from_file_location("walk", Path(__file__).with_name("walk.py"))
assert spec is not None and spec.loader is not None
walk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(walk)


def test_every_walk_has_its_bounds() -> None:
    assert set(BOUNDS) == set(walk.WALKS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_request_passes_few_files_in_few_calls(name: str) -> None:
    files, calls = BOUNDS[name]
    found = walk.measured_apart(name)
    assert len(found) <= files, sorted(found)
    assert sum(found.values()) <= calls, found
