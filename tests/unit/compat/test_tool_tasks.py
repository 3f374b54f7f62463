"""0.1 as servers of tools speak it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.dialects.negotiate import Dialects
from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v1.dialect import V1_0
from dragoman.model.message import PROGRESS_KEY, Message
from dragoman.model.operation import Operation, TaskPushNotificationConfig
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

TIME = "2026-11-15T10:00:00.000Z"
ASKED = Message("m", Role.USER, (Part(text="hi"), Part(data={"tool": "echo"})), metadata={"a": 1})
REASON = Message("r", Role.AGENT, (Part(text="because"),))
RESULT = Artifact("echo-result", (Part(text="hi", media_type="text/plain"),), "echo-result", "what it is", {"b": 2})


def task_of(state: State, *, message: Message | None = None, artifacts: Any = (), context: str = "7") -> Task:
    return Task("7", context, TaskStatus(state, message, TIME), artifacts, (ASKED,), {"c": 3})


def shown(task: Task) -> Any:
    return json.loads(TOOL_TASKS.write_result(Operation.GET, task))


@pytest.mark.requirement("S0-56", "S0-59", "S0-60")
@pytest.mark.parametrize("operation", [Operation.SEND, Operation.GET, Operation.CANCEL])
def test_a_task_has_four_members_in_every_response(operation: Operation) -> None:
    assert json.loads(
        TOOL_TASKS.write_result(operation, task_of(State.COMPLETED, message=REASON, artifacts=(RESULT,)))
    ) == {
        "id": "7",
        "status": {"state": "completed", "timestamp": TIME},
        "history": [
            {"role": "user", "parts": [{"type": "text", "text": "hi"}, {"type": "data", "data": {"tool": "echo"}}]}
        ],
        "artifacts": [{"name": "echo-result", "parts": [{"type": "text", "text": "hi"}]}],
    }


def test_a_session_is_shown_when_it_is_not_the_task_s_own() -> None:
    assert shown(task_of(State.COMPLETED, context="talk"))["sessionId"] == "talk"
    assert "sessionId" not in shown(task_of(State.COMPLETED))


@pytest.mark.parametrize("state", [State.FAILED, State.REJECTED])
def test_a_reason_is_in_the_status_where_no_artifact_has_it(state: State) -> None:
    alone = shown(task_of(state, message=REASON))["status"]
    assert alone == {
        "state": "failed",
        "message": {"role": "agent", "parts": [{"type": "text", "text": "because"}]},
        "timestamp": TIME,
    }
    assert "message" not in shown(task_of(state, message=REASON, artifacts=(RESULT,)))["status"]
    assert "message" not in shown(task_of(state))["status"]


def test_progress_and_the_like_are_not_in_the_status() -> None:
    for state in (State.SUBMITTED, State.WORKING, State.COMPLETED, State.CANCELED):
        assert shown(task_of(state, message=REASON))["status"].keys() == {"state", "timestamp"}


def test_progress_is_no_part_of_the_history_which_has_no_room_for_its_mark() -> None:
    progress = Message("p", Role.AGENT, (Part(text="half"),), metadata={PROGRESS_KEY: True})
    before = task_of(State.COMPLETED)
    task = structs.replace(before, history=(*before.history, progress))
    assert shown(task) == shown(before)
    assert TOOL_TASKS.history(task) == TOOL_TASKS.history(before)


@pytest.mark.requirement("S0-54", "S0-55")
def test_the_columns_hold_what_the_answer_holds() -> None:
    task = task_of(State.COMPLETED, artifacts=(RESULT,))
    assert json.loads(TOOL_TASKS.history(task)) == shown(task)["history"]
    assert json.loads(TOOL_TASKS.artifacts(task)) == shown(task)["artifacts"]
    assert TOOL_TASKS.artifacts(task_of(State.WORKING)) == b"[]"


def test_everything_else_is_plain_0_1() -> None:
    webhook = TaskPushNotificationConfig("https://example.com", task_id="7")
    for result in (ASKED, webhook):
        mine, plain = (
            json.loads(dialect.write_result(Operation.GET_PUSH, result)).keys() for dialect in (TOOL_TASKS, V01_RPC)
        )
        assert mine == plain
    assert (TOOL_TASKS.version, TOOL_TASKS.origin, TOOL_TASKS.asks) == ("0.1", "0.1/tools", False)
    assert (V01_RPC.origin, V1_0.origin) == ("0.1", "1.0")


def test_tools_are_answered_for_in_their_own_form() -> None:
    tools, plain = Dialects(legacy=TOOL_TASKS), Dialects()
    assert tools.for_method("tasks/send", None).dialect is TOOL_TASKS
    assert tools.for_method("tasks/get", "0.1").dialect is TOOL_TASKS
    assert tools.for_method("message/send", None).dialect is tools.v03
    assert plain.for_method("tasks/send", None).dialect is V01_RPC
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        choice = tools.for_method(method, None)
        assert tools.response_dialect(choice, TOOL_TASKS.origin) is TOOL_TASKS
        assert tools.response_dialect(choice, V01_RPC.origin) is V01_RPC
        assert tools.response_dialect(choice, "1.0") is tools.v03
        # Tools that are gone leave tasks behind.
        assert plain.response_dialect(plain.for_method(method, None), TOOL_TASKS.origin) is V01_RPC
        asked = tools.for_method(method, "0.3")
        assert tools.response_dialect(asked, TOOL_TASKS.origin) is tools.v03
