"""docs/guides/observing.md lists the fields of JSON logs and the events of the audit log, and the code has the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dragoman.telemetry.loop import RunningSkill

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dragoman"
PAGE = (ROOT / "docs" / "guides" / "observing.md").read_text(encoding="utf-8")
# Functions whose dicts are fields: those of requests, runs, traces and webhooks.
FIELD_FUNCTIONS = {"log_fields", "_log_fields", "_trace_fields", "mark_observed"}
AUDIT = "telemetry/audit.py"
# A source without any of these need not be parsed.
SUSPECT = re.compile(rf"\bextra=|record_change|{'|'.join(FIELD_FUNCTIONS)}")


def table(heading: str) -> set[str]:
    """The first column of the table below a heading."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `([\w-]+)` \|", section, re.M))


@cache
def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of the source that may write a field or an event, with its file."""
    return [
        (file.relative_to(SOURCE).as_posix(), node)
        for file in SOURCE.rglob("*.py")
        if SUSPECT.search(text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def calls(function: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls in a function, by the last word of what is called."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


LOGGING = {"debug", "info", "warning", "error", "exception", "log", "makeRecord"}


def logs_fields(function: ast.AST) -> bool:
    return any(name in LOGGING and "extra" in {each.arg for each in call.keywords} for name, call in calls(function))


def texts(nodes: list[ast.expr | None]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def keys_in(function: ast.AST) -> set[str]:
    """The keys of the dicts in a function, of those it makes and those it adds to."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            found |= texts(list(node.keys))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= texts([node.slice])
    return found


def written() -> set[str]:
    """The fields that the code writes."""
    fields = {"user", "address", *RunningSkill._fields}  # what callers of quotas are, and what blocks the loop
    for file, function in functions():
        if logs_fields(function) or function.name in FIELD_FUNCTIONS:
            fields |= keys_in(function)
        if file == AUDIT:
            fields |= keys_in(function) | ({"by"} if function.name == "record_change" else set())
        for name, call in calls(function):
            if name == "record_change":
                fields |= {each.arg for each in call.keywords if each.arg}
    formatter = ast.parse((SOURCE / "telemetry/logs.py").read_text(encoding="utf-8"))
    return fields | keys_in(formatter)


def test_the_guide_lists_every_field_and_no_other() -> None:
    assert written() == table("All fields")


def test_the_guide_lists_every_event_of_the_audit_log_and_no_other() -> None:
    events = {"limited"}
    for file, function in functions():
        for name, call in calls(function):
            if name == "record_change" or (name == "_write" and file == AUDIT):
                events |= texts(list(call.args))
    assert events == table("The audit log")
