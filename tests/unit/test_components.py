"""The 24 components that a complete A2A library for agents of a kit has: each is here by name, and tested."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
EXECUTOR = "dragoman.compat.executor"

# A row of the table of components: the names it has, where they are here, and where their tests are.
COMPONENTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "parts": (EXECUTOR, ("TextPart", "FilePart", "DataPart"), ("compat/executor/test_types.py",)),
    "message": (EXECUTOR, ("Message",), ("compat/executor/test_types.py",)),
    "task": (EXECUTOR, ("Task", "TaskStatus", "TaskState"), ("compat/executor/test_types.py",)),
    "artifact": (EXECUTOR, ("Artifact",), ("compat/executor/test_types.py",)),
    "update events": (
        EXECUTOR,
        ("TaskStatusUpdateEvent", "TaskArtifactUpdateEvent"),
        ("compat/executor/test_types.py",),
    ),
    "event union": (
        EXECUTOR,
        ("Event", "event_from_map"),
        ("compat/executor/test_types.py",),
    ),
    "card": (EXECUTOR, ("AgentCard", "AgentCapabilities", "AgentSkill"), ("compat/executor/test_types.py",)),
    "error": (EXECUTOR, ("Error", "ErrorType"), ("compat/executor/test_jsonrpc.py",)),
    "JSON-RPC": (
        EXECUTOR,
        ("decode_request", "encode_response", "encode_error", "error_code"),
        ("compat/executor/test_jsonrpc.py",),
    ),
    "params": (
        EXECUTOR,
        ("TaskIDParams", "TaskQueryParams", "MessageSendParams", "MessageSendConfig"),
        ("compat/executor/test_types.py",),
    ),
    "push types": (EXECUTOR, ("PushConfig", "PushAuthInfo", "TaskPushConfig"), ("compat/executor/test_types.py",)),
    "ids": (EXECUTOR, ("new_id",), ("compat/executor/test_ids.py",)),
    "task store": (EXECUTOR, ("TaskStore",), ("compat/executor/test_task_store.py",)),
    "event queue": (EXECUTOR, ("EventQueue", "EventQueues"), ("compat/executor/test_event_queue.py",)),
    "executor": (EXECUTOR, ("AgentExecutor", "RequestContext"), ("compat/executor/test_bridge.py",)),
    "push config store": (EXECUTOR, ("PushConfigStore",), ("compat/executor/test_push.py",)),
    "push sender": (EXECUTOR, ("PushSender",), ("compat/executor/test_push.py",)),
    "request handler": (
        EXECUTOR,
        ("RequestHandler",),
        ("compat/executor/test_handler.py", "compat/executor/test_custom.py"),
    ),
    "server": (EXECUTOR, ("RequestHandler",), ("compat/executor/test_http.py",)),
    "converter": (EXECUTOR, ("Converter",), ("compat/executor/test_adk.py",)),
    "ADK executor": (EXECUTOR, ("ADKExecutor",), ("compat/executor/test_adk.py",)),
    "SSE reader": ("dragoman.transports.sse", ("SseReader",), ("transports",)),
    "client": ("dragoman", ("Client",), ("client",)),
    "remote agent": ("dragoman.adk", ("RemoteAgent",), ("agents/adk/test_remote_agent.py",)),
}


@cache
def cases(place: str) -> dict[str, set[str]]:
    """The tests of a file or a folder, each with the names that its file imports from Dragoman and that are used in it.

    Names that a test reaches through a function or a fixture of its file count as used by the file.
    """
    path = TESTS / place
    found: dict[str, set[str]] = {}
    for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
        tree = ast.parse(file.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragoman")
            for alias in node.names
        }
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & imported
        found |= {f"{file}::{node.name}": used for node in functions if node.name.startswith("test_")}
    return found


@pytest.mark.requirement("S2-84")
@pytest.mark.parametrize("component", list(COMPONENTS))
def test_a_component_is_here_by_its_name_and_tested_by_it(component: str) -> None:
    module, names, places = COMPONENTS[component]
    for name in names:
        assert callable(getattr(importlib.import_module(module), name)), name
        assert any(name in used for place in places for used in cases(place).values()), f"{name} has no test"


@pytest.mark.requirement("S2-84")
def test_the_components_have_more_than_217_cases(request: pytest.FixtureRequest) -> None:
    assert len(COMPONENTS) == 24
    tested = {
        test
        for _, names, places in COMPONENTS.values()
        for place in places
        for test, used in cases(place).items()
        if used & set(names)
    }
    wanted = {f"tests/unit/{Path(test).relative_to(TESTS)}" for test in tested}
    found = [item.nodeid for item in request.session.items]
    if {test.partition("::")[0] for test in wanted} <= {test.partition("::")[0] for test in found}:
        # A run of the whole suite, which knows what it runs: each value of a parameter is a case.
        assert wanted <= {test.partition("[")[0] for test in found}
        assert len([test for test in found if test.partition("[")[0] in wanted]) >= 217
    else:
        assert len(wanted) > 100
