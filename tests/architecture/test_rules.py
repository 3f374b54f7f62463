"""The rules of the source, checked on its syntax trees and texts."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from architecture.sources import parsed

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "dragoman"

# The one file that may name what stands above it: it registers the plug-ins.
PLUGINS = "server/plugins.py"

LATE_IMPORT = re.compile(r"dragoman(\.\w+)+(:\w+)?")

VERSIONS = {"0.1", "0.2", "0.2.x", "0.3", "0.3.0", "1.0", "1.1"}
# Versions of something else than A2A: the version of HTTP in an ASGI scope.
OTHER_VERSIONS = {("net/asgi.py", "1.1"), ("transports/http.py", "1.1")}

DIALECT = re.compile(r"V\d")

# Whoever writes attributes in another way than by an assignment.
SETTERS = {"setattr", "delattr", "__setattr__", "__delattr__", "force_setattr"}

SQL = re.compile(r"\b(SELECT\b.+\bFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE)\b", re.DOTALL)
# What connects to PostgreSQL and what is woken by it, and the file of `dragoman mcp`, which is no store of tasks.
SQL_ELSEWHERE = {"net/postgres.py", "bus/postgres.py", "mcp/registry_file.py"}

# What only the old documents speak of: tables, routes, forms of ids, settings, variables.
OLD_WORDS = re.compile(
    r"(?<![A-Za-z])(?:"
    r"a2a_tasks|projections?|[Pp]rojecting|[Pp]rojectors?|[Pp]rojected|Projections?|user_number"
    r"|session_tasks|session_routes|SessionRoutes|is_session_path|session servers?|SessionTaskRequest"
    r"|task_desk|TaskDesk|agent_cards|AgentCards"
    r"|invocation_guard|InvocationGuard|A2A_MAX_DEPTH|A2A_RATE_PER_MINUTE"
    r"|tool_tasks|ToolServerDialect|TOOL_TASKS"
    r"|[Pp]ersona|[Aa]rchetype|default_project_id|skill_bundles"
    r")(?![A-Za-z])"
    # Whether a dialect has its tasks in a table. Programs have projects too.
    r"|dialect\.projects\b|\bprojects = (?:True|False)|def projects\b"
)


# -- reading -----------------------------------------------------------------------------------------------------------


@cache
def files() -> dict[str, str]:
    """The text of every module, by its path within the package."""
    return {path.relative_to(SRC).as_posix(): path.read_text() for path in sorted(SRC.rglob("*.py"))}


@cache
def nodes(file: str) -> list[ast.AST]:
    """All nodes of that tree, parents before their children."""
    return list(ast.walk(parsed(SRC / file)))


@cache
def layers() -> dict[str, int]:
    """The layer of each part of the package as pyproject.toml has it; the top one is 0."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows: list[str] = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {part.strip(): number for number, row in enumerate(rows) for part in row.split("|")}


def part_of(file: str) -> str:
    """The part of the package a module belongs to: its first folder, or itself."""
    return file.partition("/")[0].removesuffix(".py")


def is_face(file: str) -> bool:
    """True for modules beside the parts, whose public names come from anywhere."""
    return "/" not in file and part_of(file) not in layers()


@cache
def module_file(name: str) -> str | None:
    """The file of the module that a dotted name stands for, or that holds it; None when there is none."""
    words = name.partition(":")[0].split(".")[1:]
    while words:
        place = "/".join(words)
        for file in (f"{place}.py", f"{place}/__init__.py"):
            if file in files():
                return file
        words.pop()
    return None


def imports(file: str) -> Iterator[str]:
    """The modules of the package that a module imports, at the top or within a function."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dragoman."))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "dragoman":
                yield from (f"dragoman.{alias.name}" for alias in node.names)
            elif node.module.startswith("dragoman."):
                yield node.module


def _called(call: ast.Call) -> str | None:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def late_imports(file: str) -> Iterator[str]:
    """Texts that name a module of the package, as those do that are imported later.

    The names of loggers, and of modules that are run in a process of their own (`-m`), are none.
    """
    skipped: set[ast.AST] = set()
    for node in nodes(file):
        if isinstance(node, ast.Call) and _called(node) == "getLogger":
            skipped.update(node.args)
        elif isinstance(node, ast.List | ast.Tuple):
            pairs = zip(node.elts, node.elts[1:], strict=False)
            skipped.update(name for flag, name in pairs if isinstance(flag, ast.Constant) and flag.value == "-m")
        elif node not in skipped and isinstance(node, ast.Constant) and LATE_IMPORT.fullmatch(str(node.value)):
            yield str(node.value)


# -- the rules: each gives what breaks it ------------------------------------------------------------------------------


def imports_go_down() -> Iterator[str]:
    """A module imports from its own part and from layers below, in whatever way."""
    for file in files():
        if is_face(file) or file == PLUGINS:
            continue
        part = part_of(file)
        if part not in layers():
            yield f"{file}: {part} is in no layer of pyproject.toml"
            continue
        for names, own_layer_is_allowed in ((imports(file), False), (late_imports(file), True)):
            for name in names:
                target = module_file(name)
                other = part_of(target) if target is not None else None
                if other is None or other == part or other not in layers():
                    continue
                if layers()[other] < layers()[part] + (not own_layer_is_allowed):
                    yield f"{file}: {name}"


def versions_are_in_dialects() -> Iterator[str]:
    """No version of A2A is named, and none compared with, outside of dialects/."""
    for file in files():
        if part_of(file) == "dialects":
            continue
        if any(_is_version(file, node) for node in nodes(file)):
            yield file


def _is_version(file: str, node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value in VERSIONS and (file, node.value) not in OTHER_VERSIONS
    if isinstance(node, ast.Compare):
        return any(_is_version_of_dialect(file, side) for side in (node.left, *node.comparators))
    return False


def _is_version_of_dialect(file: str, side: ast.expr) -> bool:
    """True for a dialect that is called after its version, as in `V1_0`, and for `NAME.version` of any of them."""
    if isinstance(side, ast.Attribute) and side.attr == "version":
        return isinstance(side.value, ast.Name) and side.value.id in _names_of_dialects(file)
    return isinstance(side, ast.Name) and DIALECT.match(side.id) is not None and side.id in _names_of_dialects(file)


@cache
def _names_of_dialects(file: str) -> set[str]:
    return {
        alias.asname or alias.name
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragoman.dialects")
        for alias in node.names
    }


def sql_is_in_stores() -> Iterator[str]:
    """No SQL outside of stores/, except in three files that have their own."""
    for file in files():
        if part_of(file) == "stores" or file in SQL_ELSEWHERE:
            continue
        texts = (node.value for node in nodes(file) if isinstance(node, ast.Constant))
        if any(isinstance(text, str) and SQL.search(text) for text in texts):
            yield file


def engine_writes_own_attributes() -> Iterator[str]:
    """In engine/, a method writes attributes of its own object and of no other."""
    for file in files():
        if part_of(file) != "engine":
            continue
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    yield f"{file}: {ast.unparse(node)}"
            elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in SETTERS:
                yield f"{file}: {ast.unparse(node.func)}"


def old_words_are_in_compat() -> Iterator[str]:
    """What only the old documents speak of stands in compat/ and where plug-ins are registered."""
    for file, text in files().items():
        if part_of(file) != "compat" and file != PLUGINS and (OLD_WORDS.search(text) or OLD_WORDS.search(file)):
            yield file


RULES: dict[str, Callable[[], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        imports_go_down,
        versions_are_in_dialects,
        sql_is_in_stores,
        engine_writes_own_attributes,
        old_words_are_in_compat,
    )
}


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_the_source_keeps_the_rule(name: str) -> None:
    assert sorted(set(RULES[name]())) == [], RULES[name].__doc__
