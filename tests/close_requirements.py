"""Write into tests/requirements.toml which tests prove which requirement.

Run `python tests/close_requirements.py` after adding, renaming or removing a test that carries
`@pytest.mark.requirement(...)`. Only the `tests` values change; comments and `says` lines stay.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TypeGuard

_ENTRY = re.compile(r'^\[(\S+)\]((?:\n(?!\[|tests =).*)*\n)tests = ("open"|\[(?:[^"\]]|"[^"]*")*\])', re.MULTILINE)

# Marks of tests that `make test` does not run. Of those with `skipif`, the run itself tells (tests/proofs.py).
_LEFT_OUT = {"interop", "soak", "typing", "skip", "xfail"}


def load_manifest(path: Path) -> dict[str, dict[str, object]]:
    """Read the manifest: one table per requirement number, in the order of the file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def claimed_requirements(tests_dir: Path) -> dict[str, list[str]]:
    """Map each number that marks claim to the sorted node ids of the tests that carry them.

    Raises:
        ValueError: A mark has no numbers, or numbers that are not string literals.
    """
    claims: dict[str, set[str]] = {}
    for path in _files_with_marks(tests_dir):
        for name, marks in marked_tests(path).items():
            for number in (number for mark in marks for number in _numbers(mark, path)):
                claims.setdefault(number, set()).add(f"{path.relative_to(tests_dir.parent).as_posix()}::{name}")
    return {number: sorted(node_ids) for number, node_ids in claims.items()}


def stray_marks(tests_dir: Path) -> list[str]:
    """Name as `file:line` each requirement mark that no collected test carries: it proves nothing."""
    strays: list[str] = []
    for path in _files_with_marks(tests_dir):
        carried = {mark.lineno for marks in marked_tests(path).values() for mark in marks}
        written = {node.lineno for node in ast.walk(_parse(path)) if _is_the_mark(node)}
        strays += [f"{path.relative_to(tests_dir.parent).as_posix()}:{line}" for line in sorted(written - carried)]
    return strays


@cache
def marked_tests(path: Path) -> dict[str, list[ast.Call]]:
    """Map each test pytest collects from a file, as `name` or `Class::name`, to its requirement marks."""
    found: dict[str, list[ast.Call]] = {}
    if path.name.startswith("test_") or path.name.endswith("_test.py"):
        tree = _parse(path)
        _collect(tree, "", _pytestmarks(tree), found)
    return found


def is_left_out(node_id: str, root: Path) -> bool:
    """Whether `make test` never runs a test: it belongs to another command, or is always skipped."""
    file_name, _, name = node_id.partition("[")[0].partition("::")
    scope: ast.AST = _parse(root / file_name)
    marks = _mark_names(scope)
    for part in name.split("::"):
        scope = next(node for node in ast.walk(scope) if getattr(node, "name", None) == part)
        marks |= _mark_names(scope)
    return bool(marks & _LEFT_OUT)


def tests_line(node_ids: list[str]) -> str:
    """Spell the manifest's line for these tests."""
    return f"tests = {json.dumps(node_ids or 'open')}"


def close(manifest: str, claims: dict[str, list[str]]) -> str:
    """Return the manifest's text with every `tests` value replaced by what the claims say.

    Raises:
        ValueError: A claimed number is not in the manifest.
    """
    if unknown := sorted(claims.keys() - tomllib.loads(manifest).keys()):
        raise ValueError("not in the manifest: " + ", ".join(f"{number} of {claims[number]}" for number in unknown))
    return _ENTRY.sub(lambda entry: f"[{entry[1]}]{entry[2]}{tests_line(claims.get(entry[1], []))}", manifest)


def _files_with_marks(tests_dir: Path) -> list[Path]:
    return sorted(path for path in tests_dir.rglob("*.py") if b"requirement" in path.read_bytes())


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _collect(node: ast.AST, prefix: str, marks: list[ast.Call], found: dict[str, list[ast.Call]]) -> None:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if child.name.startswith("test"):
                    found.setdefault(prefix + child.name, []).extend(marks + _requirement_marks(child.decorator_list))
            case ast.ClassDef():
                if child.name.startswith("Test"):
                    of_class = _requirement_marks(child.decorator_list) + _pytestmarks(child)
                    _collect(child, f"{prefix}{child.name}::", marks + of_class, found)
            case _:
                _collect(child, prefix, marks, found)


def _pytestmarks(scope: ast.Module | ast.ClassDef) -> list[ast.Call]:
    marks: list[ast.Call] = []
    for statement in scope.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name("pytestmark")], value=value)
                | ast.AnnAssign(target=ast.Name("pytestmark"), value=ast.expr() as value)
            ):
                marks += _requirement_marks(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
            case _:
                pass
    return marks


def _mark_names(scope: ast.AST) -> set[str]:
    """The names of all marks on a function or class, or in the `pytestmark` of a class or module."""
    expressions: list[ast.expr] = list(getattr(scope, "decorator_list", []))
    if isinstance(scope, ast.Module | ast.ClassDef):
        expressions += [
            statement.value
            for statement in scope.body
            if isinstance(statement, ast.Assign) and "pytestmark" in {ast.unparse(each) for each in statement.targets}
        ]
    return {
        node.attr
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("mark", "pytest.mark")
    }


def _requirement_marks(expressions: list[ast.expr]) -> list[ast.Call]:
    return [mark for mark in expressions if isinstance(mark, ast.Call) and _is_the_mark(mark.func)]


def _is_the_mark(node: ast.AST) -> TypeGuard[ast.Attribute]:
    match node:
        case ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark") | ast.Name("mark")):
            return True
        case _:
            return False


def _numbers(mark: ast.Call, path: Path) -> list[str]:
    numbers = [arg.value for arg in mark.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if not numbers or len(numbers) != len(mark.args) + len(mark.keywords):
        raise ValueError(f"{path}:{mark.lineno}: a requirement mark takes one or more numbers as string literals")
    return numbers


def main() -> None:
    """Rewrite the manifest next to this script and say how many requirements are closed."""
    tests_dir = Path(__file__).resolve().parent
    manifest = tests_dir / "requirements.toml"
    claims = claimed_requirements(tests_dir)
    manifest.write_text(close(manifest.read_text(encoding="utf-8"), claims), encoding="utf-8")
    sys.stdout.write(f"{len(claims)} of {len(load_manifest(manifest))} requirements are closed\n")


if __name__ == "__main__":
    main()
