"""Tasks as session servers spell them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.sessions.dialect import InvalidBody, parse_body, parse_task_request, task_json
from dragoman.model.error import ParseError
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

REQUIRED = "Validation failed: : message is required (either at top-level or inside params)"


def message_of(role: Role, text: str) -> Message:
    return Message("m", role, (Part(text=text),))


def shown(state: State = State.WORKING, message: Message | None = None, **members: Any) -> dict[str, Any]:
    status = TaskStatus(state, message, "2026-11-15T10:00:02.500Z")
    return task_json(Task("t", "c", status, **members), session_id="s", created_ms=1_794_736_800_000)


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-7")
@pytest.mark.parametrize(
    "body",
    [
        {"method": "tasks/send", "params": {"message": "Hi", "skill": "x", "timeoutMs": 5000, "depth": 2}},
        {"params": {"message": "Hi", "skill": "x", "timeoutMs": 5000.0, "depth": 2}},
        {"message": "Hi", "skill": "x", "timeoutMs": 5000, "depth": 2},
        {"message": "Hi", "skill": "x", "params": {"timeoutMs": 5000}, "depth": 2, "method": None},
    ],
)
def test_members_stand_in_params_or_at_the_top(body: dict[str, Any]) -> None:
    asked = parse_task_request({**body, "sourceAgent": "ada"})
    assert (asked.message, asked.skill, asked.timeout_ms, asked.depth, asked.source) == ("Hi", "x", 5000, 2, "ada")


@pytest.mark.requirement("S3-29")
def test_a_task_has_five_minutes_by_default() -> None:
    assert parse_task_request({"message": "Hi"}).timeout_ms == 300_000


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, REQUIRED),
        ({"params": {}}, REQUIRED),
        ({"params": {"message": None}}, REQUIRED),
        ({"params": {"message": 7}}, "Validation failed: params.message: message must be a string"),
        ({"params": {"message": " \n"}}, "Validation failed: params.message: message must not be empty"),
        ({"message": ""}, "Validation failed: message: message must not be empty"),
        ({"message": "\ud800"}, "Validation failed: message: has characters that are not Unicode"),
        ({"message": "Hi", "method": "tasks/get"}, "Validation failed: method: must be tasks/send"),
        ({"message": "Hi", "params": []}, "Validation failed: params: must be an object"),
        ({"message": "Hi", "skill": 1}, "Validation failed: skill: must be a string"),
        ({"message": "Hi", "depth": -1}, "Validation failed: depth: must be 0 or more"),
        ("Hi", "Validation failed: : the body must be a JSON object"),
        ([], "Validation failed: : the body must be a JSON object"),
    ],
)
def test_the_error_of_a_wrong_body_names_the_field(body: object, text: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        parse_task_request(body)
    assert caught.value.message == text


@pytest.mark.parametrize("given", [999, 600_001, 0, -1, 1000.5, "5000", True, float("inf"), float("nan"), []])
def test_a_time_limit_is_a_whole_number_from_a_second_to_ten_minutes(given: object) -> None:
    with pytest.raises(InvalidBody, match=r"params\.timeoutMs: must be"):
        parse_task_request({"params": {"message": "Hi", "timeoutMs": given}})


@pytest.mark.parametrize("given", [1000, 600_000])
def test_the_limits_of_the_time_limit_may_be_asked_for(given: int) -> None:
    assert parse_task_request({"message": "Hi", "timeoutMs": given}).timeout_ms == given


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"message": "\\ud800"}'])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError, match=r"^Invalid JSON body$"):
        parse_body(body)


# -- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-6")
def test_a_task_has_six_members_and_times_in_milliseconds() -> None:
    assert shown() == {
        "id": "t",
        "state": "working",
        "messages": [],
        "sessionId": "s",
        "createdAt": "2026-11-15T10:00:00.000Z",
        "updatedAt": "2026-11-15T10:00:02.500Z",
    }


@pytest.mark.requirement("S3-4")
def test_there_are_four_states() -> None:
    words = {state: shown(state)["state"] for state in State}
    assert set(words.values()) == {"submitted", "working", "completed", "failed"}
    assert words[State.INPUT_REQUIRED] == words[State.AUTH_REQUIRED] == "working"
    assert words[State.CANCELED] == words[State.REJECTED] == "failed"


@pytest.mark.requirement("S3-5")
def test_messages_are_the_user_s_then_one_for_each_artifact_then_the_last_words() -> None:
    artifacts = (
        Artifact("1", (Part(text="one "), Part(text="two"))),
        Artifact("2", (Part(data={"three": 3}),)),
        Artifact("3", (Part(raw=b"no words"),)),
    )
    history = (message_of(Role.USER, "Hi"), message_of(Role.AGENT, "What?"), message_of(Role.USER, "That"))
    task = shown(State.FAILED, message_of(Role.AGENT, "broke"), artifacts=artifacts, history=history)
    assert [(message["role"], message["parts"]) for message in task["messages"]] == [
        ("user", [{"type": "text", "text": "Hi"}]),
        ("user", [{"type": "text", "text": "That"}]),
        ("agent", [{"type": "text", "text": "one two"}]),
        ("agent", [{"type": "text", "text": '{"three":3}'}]),
        ("agent", [{"type": "text", "text": "broke"}]),
    ]


def test_what_an_agent_says_of_its_progress_is_no_message() -> None:
    assert shown(State.WORKING, message_of(Role.AGENT, "thinking"))["messages"] == []


@pytest.mark.parametrize(
    ("closing", "texts"), [("that was all", ["one two", "that was all"]), ("one two", ["one two"])]
)
def test_a_closing_message_follows_the_answer_unless_it_repeats_it(closing: str, texts: list[str]) -> None:
    answer = Artifact("a", (Part(text="one two"),))
    task = shown(State.COMPLETED, message_of(Role.AGENT, closing), artifacts=(answer,))
    assert [message["parts"][0]["text"] for message in task["messages"]] == texts
