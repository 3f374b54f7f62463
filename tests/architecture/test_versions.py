"""Versions of A2A are spelled in `dialects/` and nowhere else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dragoman.dialects.table import VERSION_HEADER, VERSIONS

SOURCE = Path(__file__).parents[2] / "src" / "dragoman"
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "dialects")
# With or without a patch number; A2A has no 0.1.0, which is the first version of an agent.
SPELLED = re.compile(rf"(?!0\.1\.0)({'|'.join(map(re.escape, VERSIONS))})(\.\d+)?", re.ASCII)
# A source without any of these need not be parsed.
SUSPECT = re.compile(rf"{SPELLED.pattern}|{re.escape(VERSION_HEADER)}|[\"'][01]\.[\"']", re.ASCII | re.IGNORECASE)
# Versions of other things: HTTP's, and that of a package.
OTHERS = {"http_version", "version", "__version__"}


def named_by(tree: ast.Module) -> set[int]:
    """The constants that are the value of a keyword or a key, or the default of a lookup, with such a name."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword | ast.Assign):
            names = [node.arg] if isinstance(node, ast.keyword) else [getattr(each, "id", "") for each in node.targets]
            found |= {id(node.value) for name in names if name in OTHERS}
        elif isinstance(node, ast.Dict):
            found |= {id(v) for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", "") in OTHERS}
        elif isinstance(node, ast.Call) and node.args and getattr(node.args[0], "value", "") in OTHERS:
            found |= {id(each) for each in node.args[1:]}
    return found


def spelled_in(source: str) -> list[tuple[int, str]]:
    if not SUSPECT.search(source):
        return []
    tree = ast.parse(source)
    others = named_by(tree)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [
        (node.lineno, str(node.value))
        for node in constants
        if id(node) not in others
        and (SPELLED.fullmatch(str(node.value)) or str(node.value).lower() == VERSION_HEADER.lower())
    ] + [(node.lineno, ast.unparse(node)) for node in ast.walk(tree) if looks_at_the_major_number(node)]


def looks_at_the_major_number(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "startswith"
        and any(getattr(each, "value", "") in ("0.", "1.") for given in node.args for each in ast.walk(given))
    )


def test_no_module_outside_the_dialects_spells_a_version_or_its_header() -> None:
    found = {str(path.relative_to(SOURCE)): spelled_in(path.read_text()) for path in FILES}
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "source",
    ['x = "1.0"', 'if version == "0.3": pass', 'version.startswith("0.")', 'h["A2A-Version"] = 1', 'a: L["0.3.0"]'],
)
def test_a_spelled_version_is_found(source: str) -> None:
    assert spelled_in(source)


@pytest.mark.parametrize("source", ['{"http_version": "1.1"}', 'Server(version="1.0.0")', 'x = "2.0"', '"A2A 1.0, 3"'])
def test_versions_of_other_things_are_none(source: str) -> None:
    assert not spelled_in(source)
