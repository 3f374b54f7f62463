"""A request passes few files and few calls, in the order docs/architecture.md shows.

`python tests/architecture/walk.py -v --steps` prints what is measured here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from architecture import walk

# The most files and calls of each walk. Two files and a call per change more: the store says who
# has a dedupe key, and a run is counted on every store.
BOUNDS = {
    "send": (32, 198),
    "stream": (36, 400),
    "grpc": (39, 304),
    "call": (28, 178),
    "tool": (45, 304),
    "webhook": (59, 740),
}
# Now and then something else happens in the same moment, such as the end of an earlier request: then it is tried again.
TRIES = 3
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def documented_walks() -> dict[str, list[str]]:
    """The walks on the page: blocks whose lines are a file, a function and what it does, in blocks with `walk=NAME`."""
    blocks = re.findall(
        r"^```text no-run walk=(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return {name: [" ".join(line.split()[:2]) for line in text.splitlines()] for name, text in blocks}


def test_every_walk_has_its_bounds_and_is_on_the_page() -> None:
    assert set(BOUNDS) == set(walk.WALKS) == set(documented_walks())


@pytest.mark.parametrize("name", BOUNDS)
def test_a_request_goes_the_way_the_page_shows_through_few_files_in_few_calls(name: str) -> None:
    documented, (most_files, most_calls) = documented_walks()[name], BOUNDS[name]
    problems: list[str] = []
    for _ in range(TRIES):
        files, steps = walk.measured_apart(name)
        problems.clear()
        if len(files) > most_files or sum(files.values()) > most_calls:
            problems.append(f"{len(files)} files, {sum(files.values())} calls: {files}")
        if missing := [step for step in documented if step not in steps]:
            problems.append(f"the page names what is not called: {missing}")
        elif sorted(documented, key=steps.index) != documented:
            problems.append("the real order is:\n" + "\n".join(step for step in steps if step in documented))
        if not problems:
            return
    pytest.fail("\n".join(problems))


def test_what_the_page_says_is_decided_somewhere_is_there() -> None:
    rows = re.findall(
        r"^\| .+? \| (`\S+\.py`(?:, `\S+\.py`)*) \| `(\S+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) >= 15
    for files, name in rows:
        paths = [Path(walk.PACKAGE) / file for file in re.findall(r"`(\S+)`", files)]
        assert any(name in _names(path) for path in paths), f"{name} is not in {files}"


def _names(path: Path) -> set[str]:
    """Everything a module defines at its top level, and the methods of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef():
                names.add(node.name)
                names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, _FUNCTIONS)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names
