"""The 24 components that a complete A2A library for agents of a kit has: each is here, and each is tested."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

# What it is, where it is here, and where its tests are.
COMPONENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "parts": (
        ("dragoman.compat.executor:TextPart", "dragoman.compat.executor:DataPart"),
        ("compat/executor/test_parts.py",),
    ),
    "message": (("dragoman:Message", "dragoman.compat.executor:Message"), ("compat/executor/test_message.py",)),
    "task": (("dragoman:Task", "dragoman.compat.executor:TaskState"), ("compat/executor/test_task.py",)),
    "artifact": (("dragoman:Artifact", "dragoman.compat.executor:Artifact"), ("compat/executor/test_task.py",)),
    "update events": (("dragoman.compat.executor:TaskStatusUpdateEvent",), ("compat/executor/test_events.py",)),
    "event union": (("dragoman.compat.executor:event_from_map",), ("compat/executor/test_events.py",)),
    "card": (("dragoman:AgentCard", "dragoman.compat.executor:AgentSkill"), ("compat/executor/test_card.py",)),
    "error": (("dragoman.errors:A2AError", "dragoman.compat.executor:Error"), ("dialects",)),
    "JSON-RPC": (("dragoman.compat.executor.jsonrpc:decode_request",), ("compat/executor/test_jsonrpc.py",)),
    "params": (("dragoman.compat.executor:MessageSendParams",), ("compat/executor/test_params.py",)),
    "push types": (("dragoman.compat.executor:PushConfig",), ("compat/executor/test_push.py",)),
    "ids": (("dragoman.compat.executor:new_id",), ("compat/executor/test_ids.py",)),
    "task store": (("dragoman.compat.executor:TaskStore",), ("compat/executor/test_task_store.py",)),
    "event queue": (("dragoman.compat.executor:EventQueue",), ("compat/executor/test_event_queue.py",)),
    "executor": (
        ("dragoman.compat.executor:AgentExecutor", "dragoman.compat.executor:RequestContext"),
        ("agents/executor",),
    ),
    "push config store": (("dragoman.compat.executor:PushConfigStore",), ("compat/executor/test_push.py",)),
    "push sender": (
        ("dragoman.compat.executor:PushSender", "dragoman.webhooks.service:DeliveryService"),
        ("webhooks",),
    ),
    "request handler": (("dragoman.compat.executor:RequestHandler",), ("compat/executor/test_handler.py",)),
    "server": (("dragoman:Server",), ("server",)),
    "converter": (("dragoman.agents.adk.parts:to_genai", "dragoman.agents.adk.parts:from_genai"), ("agents/adk",)),
    "ADK executor": (("dragoman.agents.adk.run:AdkRuns",), ("agents/adk",)),
    "SSE reader": (("dragoman.transports.sse",), ("transports",)),
    "client": (("dragoman:Client",), ("client",)),
    "remote agent": (("dragoman.adk:RemoteAgent",), ("agents/adk",)),
}


def cases(place: str) -> set[str]:
    path = TESTS / place
    files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    found: set[str] = set()
    for file in files:
        tree = ast.walk(ast.parse(file.read_text()))
        names = [node.name for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        found |= {f"{file}::{name}" for name in names if name.startswith("test_")}
    return found


@pytest.mark.requirement("S2-84")
@pytest.mark.rows("component", list(COMPONENTS))
def test_a_component_is_here_and_tested(component: str) -> None:
    places, tests = COMPONENTS[component]
    for place in places:
        module, _, name = place.partition(":")
        found = importlib.import_module(module)
        assert not name or callable(getattr(found, name))
    assert all(cases(place) for place in tests)


@pytest.mark.requirement("S2-84")
def test_the_components_have_more_than_217_cases(request: pytest.FixtureRequest) -> None:
    assert len(COMPONENTS) == 24
    if len(request.session.items) > 1000:  # a run of the whole suite, which knows what it runs
        ran = {item.nodeid.partition("::")[0] for item in request.session.items}
        places = [place for _, tests in COMPONENTS.values() for place in tests]
        assert all(any(file.startswith(f"tests/unit/{place}") for file in ran) for place in places)
    assert len(set().union(*(cases(place) for _, tests in COMPONENTS.values() for place in tests))) > 217
