"""Messages as maps and back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dragoman.compat.executor import DataPart, FileBytes, FilePart, Message, Role, TextPart
from dragoman.model.error import BadResponse
from dragoman.model.message import Message as ModelMessage
from dragoman.model.part import Part
from dragoman.model.state import Role as ModelRole

WHOLE = Message(
    role=Role.AGENT,
    parts=(TextPart("hi"), FilePart(FileBytes("aGk=")), DataPart({"a": 1})),
    id="m",
    context_id="c",
    task_id="t",
    reference_task_ids=("r",),
    extensions=("urn:x",),
    metadata={"k": 1},
)
WHOLE_MAP: dict[str, Any] = {
    "kind": "message",
    "role": "agent",
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "referenceTaskIds": ["r"],
    "extensions": ["urn:x"],
    "metadata": {"k": 1},
    "parts": [
        {"kind": "text", "text": "hi"},
        {"kind": "file", "file": {"bytes": "aGk="}},
        {"kind": "data", "data": {"a": 1}},
    ],
}


@pytest.mark.requirement("S2-62", "S2-98")
def test_a_message_with_everything_comes_back_as_it_went() -> None:
    assert WHOLE.to_map() == WHOLE_MAP
    assert Message.from_map(WHOLE_MAP) == ("ok", WHOLE)


@pytest.mark.requirement("S2-62")
def test_what_a_message_has_not_is_not_said() -> None:
    message = Message(Role.USER, (TextPart("hi"),), "m")
    parts = [{"kind": "text", "text": "hi"}]
    assert message.to_map() == {"kind": "message", "role": "user", "messageId": "m", "parts": parts}
    assert Message.from_map(message.to_map()) == ("ok", message)


@pytest.mark.requirement("S2-62")
def test_null_counts_as_not_there() -> None:
    nothing = {"contextId": None, "taskId": None, "metadata": None, "extensions": None}
    expected = Message(Role.USER, (TextPart("hi"),), "m")
    said: dict[str, Any] = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
    assert Message.from_map(said | nothing) == ("ok", expected)


@pytest.mark.parametrize("missing", [{}, {"messageId": None}])
def test_a_message_without_an_id_is_given_one(missing: dict[str, Any]) -> None:
    status, message = Message.from_map({"role": "user", "parts": [{"kind": "text", "text": "hi"}]} | missing)
    assert status == "ok"
    assert isinstance(message, Message)
    assert re.fullmatch(r"[0-9a-f-]{36}", message.id)


@pytest.mark.requirement("S2-63")
@pytest.mark.parametrize(
    ("word", "role"),
    [("user", Role.USER), ("agent", Role.AGENT), ("ROLE_AGENT", Role.AGENT)],
)
def test_a_role_is_user_or_agent(word: str, role: Role) -> None:
    status, message = Message.from_map(WHOLE_MAP | {"role": word})
    assert status == "ok"
    assert isinstance(message, Message)
    assert message.role is role
    assert message.to_map()["role"] in ("user", "agent")


@pytest.mark.requirement("S2-63")
@pytest.mark.parametrize("role", ["moderator", "", 7])
def test_a_role_that_does_not_exist_is_refused(role: Any) -> None:
    status, reason = Message.from_map(WHOLE_MAP | {"role": role})
    assert (status, "role" in str(reason)) == ("error", True)
    with pytest.raises(ValueError, match=f"{role!r} is not a valid Role"):
        Message(role, (TextPart("hi"),))


@pytest.mark.requirement("S2-63")
async def test_a_message_with_a_role_that_does_not_exist_is_refused_by_a_handler(calling: Any, echo: Any) -> None:
    said = {"role": "moderator", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
    error = (await calling(echo).ask("message/send", message=said))["error"]
    assert (error["code"], error["message"]) == (-32602, "message.role must be user")
    assert echo.executed == []


@pytest.mark.parametrize("field", ["role", "parts"])
def test_a_message_needs_a_role_and_parts(field: str) -> None:
    status, reason = Message.from_map({key: value for key, value in WHOLE_MAP.items() if key != field})
    assert status == "error"
    assert field in str(reason)


def test_the_text_of_a_message_is_that_of_its_text_parts() -> None:
    assert Message(Role.USER, (TextPart("a"), DataPart({}), TextPart("b"))).text == "ab"


def test_a_message_becomes_a_message_of_the_model_and_comes_back() -> None:
    model = WHOLE.to_model()
    parts = (Part(text="hi"), Part(raw=b"hi"), Part(data={"a": 1}))
    assert model == ModelMessage("m", ModelRole.AGENT, parts, "c", "t", {"k": 1}, ("urn:x",), ("r",))
    assert Message.from_model(model) == WHOLE


def test_a_message_with_bytes_that_are_no_base64_does_not_become_the_models() -> None:
    with pytest.raises(BadResponse, match="base64"):
        Message(Role.USER, (FilePart(FileBytes("!")),)).to_model()
