"""Small changes of the code's behavior: found in its syntax trees, chosen with a seed, found again by name.

A mutation is named by its file, its function, its kind and its code, never by a line: the same list serves later trees,
in which lines have moved. Code is compared as `ast.unparse` spells it, so its format does not count.
"""

from __future__ import annotations

import ast
import copy
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("engine", "dialects", "stores", "client", "agents")
KINDS = ("comparison", "boundary", "negation", "branch", "return", "call", "constant", "logic")

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn},
    **{ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt},
}
_MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
# Calls that end or free something, which a caller can forget without an error.
_ENDINGS = {"cancel", "close", "aclose", "clear", "discard", "pop", "release", "remove", "set", "stop", "shutdown"}
_LOGGERS = {"logger", "log", "logging", "warnings"}
# What only a debugger or a type checker sees.
_UNSEEN = {"__repr__", "__str__", "__rich_repr__"}


class Mutation(NamedTuple):
    """One change. `occurrence` counts equal code in one function, from 0."""

    file: str
    function: str
    kind: str
    code: str
    becomes: str
    occurrence: int = 0


class Place(NamedTuple):
    """Where a mutation's code is in a tree."""

    file: str
    start: int
    start_column: int
    end: int
    end_column: int


class Gone(Exception):
    """The code of a mutation is no longer there."""


def list_candidates(source: Path, package: str) -> list[Mutation]:
    """All mutations of one package, in the order of its files and lines."""
    found: list[Mutation] = []
    for path in sorted((source / package).rglob("*.py")):
        found += [mutation for mutation, _ in _mutations(path, path.relative_to(source).as_posix())]
    return found


def choose(candidates: Iterable[Mutation], count: int, seed: str) -> list[Mutation]:
    """Choose mutations by the hash of their names: of each kind in turn, one per file as long as there are files."""
    by_kind: dict[str, list[Mutation]] = {kind: [] for kind in KINDS}
    for mutation in sorted(candidates, key=lambda each: _rank(each, seed)):
        by_kind[mutation.kind].append(mutation)
    chosen: list[Mutation] = []
    taken: Counter[str] = Counter()
    kinds = [kind for kind in KINDS if by_kind[kind]]
    while len(chosen) < count and kinds:
        for kind in list(kinds)[: count - len(chosen)]:
            left = by_kind[kind]
            if not left:
                kinds.remove(kind)
                continue
            mutation = min(left, key=lambda each: taken[each.file])
            left.remove(mutation)
            taken[mutation.file] += 1
            chosen.append(mutation)
    return sorted(chosen)


def find(source: Path, mutation: Mutation) -> Place:
    """Find the code of a mutation: in its file, else in the one other file that has such a function with that code.

    Raises:
        Gone: There is no such code.
    """
    path = source / mutation.file
    if path.is_file() and (place := _find_in(path, mutation.file, mutation)) is not None:
        return place
    name = mutation.function.rpartition(".")[2]
    files = [path for path in sorted(source.rglob("*.py")) if f"def {name}(" in path.read_text(encoding="utf-8")]
    places = [_find_in(path, path.relative_to(source).as_posix(), mutation) for path in files]
    found = [place for place in places if place is not None]
    if len(found) != 1:
        raise Gone
    return found[0]


def apply(source: Path, mutation: Mutation, place: Place) -> str:
    """The text of the mutated file; nothing is written."""
    lines = (source / place.file).read_text(encoding="utf-8").splitlines(keepends=True)
    # Columns of syntax trees count bytes.
    head = lines[place.start - 1].encode()[: place.start_column].decode()
    tail = lines[place.end - 1].encode()[place.end_column :].decode()
    return "".join([*lines[: place.start - 1], head, mutation.becomes, tail, *lines[place.end :]])


def load(path: Path) -> dict[str, Mutation]:
    """Read a list: the mutations by their short names."""
    return {name: Mutation(**entry) for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()}


def dump(mutations: Iterable[Mutation]) -> str:
    """Spell a list, with a short name for each mutation."""
    numbers: Counter[str] = Counter()
    tables: list[str] = []
    for mutation in mutations:
        package = mutation.file.partition("/")[0]
        numbers[package] += 1
        # JSON's spelling of strings and small numbers is TOML's.
        fields = [f"{name} = {json.dumps(value)}" for name, value in mutation._asdict().items() if value != 0]
        tables.append("\n".join([f"[{package}-{numbers[package]:02}]", *fields, ""]))
    return "\n".join(tables)


def _rank(mutation: Mutation, seed: str) -> str:
    return sha256("\0".join([seed, *map(str, mutation)]).encode()).hexdigest()


def _find_in(path: Path, file: str, mutation: Mutation) -> Place | None:
    for candidate, place in _mutations(path, file):
        if candidate[1:] == mutation[1:]:
            return place
    return None


def _mutations(path: Path, file: str) -> Iterator[tuple[Mutation, Place]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen: defaultdict[tuple[str, str, str, str], int] = defaultdict(int)
    for function, node, is_test in _nodes(tree):
        changes = [*_changes(node), *([("branch", "True"), ("branch", "False")] if is_test else [])]
        for kind, becomes in changes:
            key = (function, kind, ast.unparse(node), becomes)
            yield Mutation(file, *key, seen[key]), Place(file, *_extent(node))
            seen[key] += 1


def _extent(node: ast.stmt | ast.expr) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _nodes(tree: ast.Module) -> Iterator[tuple[str, ast.stmt | ast.expr, bool]]:
    """The code of functions: each node with the name of its function, and whether an `if` tests it."""
    for name, function in _functions(tree, ""):
        for statement in _statements(function.body):
            yield name, statement, False
            test = statement.test if isinstance(statement, ast.If) else None
            for node in _expressions(statement):
                yield name, node, node is test


def _functions(scope: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in _UNSEEN:
                yield f"{prefix}{node.name}", node
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from _functions(node, prefix)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert | ast.Raise):
            continue
        if isinstance(statement, ast.Expr) and (_is_logging(statement.value) or _is_text(statement.value)):
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _statements(part.body)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    parts: list[object] = []
    for name, value in ast.iter_fields(statement):
        if name not in ("annotation", "body", "orelse", "finalbody", "handlers", "cases"):
            parts += value if isinstance(value, list) else [value]
    while parts:
        node = parts.pop(0)
        if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr) or _is_typing(node):
            continue
        if isinstance(node, ast.expr):
            yield node
        parts[:0] = list(ast.iter_child_nodes(node))


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_logging(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    root = node.func.value
    name = root.attr if isinstance(root, ast.Attribute) else getattr(root, "id", "")
    return name.strip("_").lower() in _LOGGERS


def _changes(node: ast.stmt | ast.expr) -> Iterator[tuple[str, str]]:
    """The kinds of mutations of one node, and what it becomes by each."""
    match node:
        case ast.Compare(ops=[op]):
            yield "comparison", _text(_with_operator(node, _FLIPPED[type(op)]))
            if type(op) in _MOVED:
                yield "boundary", _text(_with_operator(node, _MOVED[type(op)]))
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int() as value)) if type(value) is int:
            changed = copy.deepcopy(node)
            changed.right = ast.Constant(value + 1)
            yield "boundary", _text(changed)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", _text(operand)
        case ast.BoolOp(op=op):
            changed = copy.deepcopy(node)
            changed.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "logic", _text(changed)
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", str(value + 1)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return", "return None"
        case ast.Expr(value=ast.Await()):
            yield "call", "pass"
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name.lstrip("_") in _ENDINGS:
            yield "call", "pass"
        case _:
            pass


def _with_operator(node: ast.Compare, operator: type[ast.cmpop]) -> ast.Compare:
    changed = copy.deepcopy(node)
    changed.ops = [operator()]
    return changed


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text(node: ast.expr) -> str:
    """The code of an expression, which stays one wherever it is put."""
    return f"({ast.unparse(node)})"
