"""A request passes few files and few calls. `python tests/architecture/walk.py -v` shows which."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

# The most files and calls of each walk.
BOUNDS = {
    "send": (30, 230),
    "stream": (34, 400),
    "call": (26, 165),
    "tool": (43, 285),
    "webhook": (56, 960),
}
# Now and then something else happens in the same moment, such as the end of an earlier request: then it is tried again.
TRIES = 3

spec = importlib.util.spec_from_file_location("walk", Path(__file__).with_name("walk.py"))
assert spec is not None and spec.loader is not None
walk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(walk)


def test_every_walk_has_its_bounds() -> None:
    assert set(BOUNDS) == set(walk.WALKS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_request_passes_few_files_in_few_calls(name: str) -> None:
    most_files, most_calls = BOUNDS[name]
    for _ in range(TRIES):
        found = walk.measured_apart(name)
        if len(found) <= most_files and sum(found.values()) <= most_calls:
            return
    pytest.fail(f"{len(found)} files, {sum(found.values())} calls: {found}")
