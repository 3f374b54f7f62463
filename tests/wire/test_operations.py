"""The operations, the same in every dialect; what each spells in its own way is in the file of that dialect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from dragoman.testing import served

MODERN = ["1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest"]
SINCE_0_3 = [*MODERN, "0.3-rpc", "0.3-rest", "0.3-grpc"]
SPEAKERS = [*SINCE_0_3, "0.1-rpc"]
PARAMS = {"rpc": -32602, "rest": 400}
NOT_FOUND = {"rpc": -32001, "rest": 404}
NOT_CANCELABLE = {"rpc": -32002, "rest": 400}
UNSUPPORTED = {"rpc": -32004, "rest": 400}


def error(answer: Any) -> tuple[int, str]:
    return answer.code, answer.reason


def begun(speaker: Any, tool: str) -> str:
    """A task that is at work for sure."""
    task = speaker.id_of(speaker.begin(tool=tool))
    speaker.wire.speaker("1.1-rpc").get(task, currentGeneration=2)
    return task


# -- sending -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-10", "S2-38")
def test_a_message_is_answered_with_the_finished_task_and_all_its_artifacts(speaker: Any) -> None:
    answer = speaker.send(tool="count", arguments={"n": 3})
    assert speaker.state(answer) == "completed"
    assert speaker.texts(answer) == ["1 2 3 "]


def test_text_alone_goes_to_the_first_skill(speaker: Any) -> None:
    assert speaker.texts(speaker.send("Hello!")) == ["Hello!"]


def test_a_skill_may_be_named_in_the_metadata(speaker: Any) -> None:
    answer = speaker.send({"a": 3, "b": 7}, metadata={"skillId": "add_numbers"})
    assert speaker.texts(answer) == ["10"]


def test_a_question_is_answered_within_its_task(speaker: Any) -> None:
    asked = speaker.send(tool="ask_name")
    assert speaker.state(asked) == "input-required"
    assert "What is your name?" in asked.text
    answered = speaker.send("Ada", task=asked)
    assert speaker.id_of(answered) == speaker.id_of(asked)
    assert speaker.state(answered) == "completed"
    assert speaker.texts(answered) == ["Hello, Ada!"]


@pytest.mark.requirement("S2-102")
def test_a_skill_that_breaks_fails_its_task_and_nothing_else(speaker: Any) -> None:
    answer = speaker.send(tool="boom")
    assert speaker.state(answer) == "failed"
    assert "execution failed: " in answer.text
    assert "secret" not in answer.text
    assert "/etc/shadow" not in answer.text
    speaker.wire.healthy()


def test_a_refusal_shows_its_reason(speaker: Any) -> None:
    answer = speaker.send(tool="deny")
    # 0.1 has no word for it.
    assert speaker.state(answer) == ("failed" if speaker.version == "0.1" else "rejected")
    assert "not today" in answer.text


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_message_that_need_not_wait_is_answered_at_once(speaker: Any) -> None:
    answer = speaker.send(tool="slow", now=True)
    assert speaker.state(answer) in ("submitted", "working")


class Gate:
    """A skill that tells when it has begun, and ends when it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()

    def gated(self) -> str:
        """Wait at the gate."""
        self.begun.set()
        assert self.open.wait(5)
        return "through"


@pytest.mark.requirement("S0-30", "S2-38")
def test_a_message_waits_for_the_end_unless_it_says_otherwise(speaker: Any, new_agent: Callable[..., Any]) -> None:
    gate, agent, answers = Gate(), new_agent(), list[Any]()
    agent.skill(gate.gated)
    with served(agent) as url:
        caller = speaker.wire.at(url).speaker(speaker.name)
        waiting = threading.Thread(target=lambda: answers.append(caller.send(tool="gated")))
        waiting.start()
        assert gate.begun.wait(5)
        caller.wire.healthy()
        assert not answers
        gate.open.set()
        waiting.join(5)
    assert speaker.state(answers[0]) == "completed"
    assert speaker.texts(answers[0]) == ["through"]


@pytest.mark.requirement("S2-7")
def test_text_data_and_files_are_kept_in_the_history(speaker: Any) -> None:
    files = {
        "0.1-rpc": [
            {"type": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
            {"type": "file", "file": {"uri": "https://example.com/a.png"}},
        ],
        "0.3-rpc": [
            {"kind": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
            {"kind": "file", "file": {"uri": "https://example.com/a.png"}},
        ],
        "0.3-rest": [
            {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
            {"file": {"fileWithUri": "https://example.com/a.png"}},
        ],
    }.get(
        speaker.form,
        [{"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}, {"url": "https://example.com/a.png"}],
    )
    named = "content" if speaker.form == "0.3-rest" else "parts"
    parts = [speaker.part("look"), speaker.part({"tool": "echo", "arguments": {}}), *files]
    task = speaker.send(message={named: parts})
    assert speaker.texts(task) == ["look"]
    assert speaker.get(task).result["history"][0][named] == parts


# -- going on with a task ----------------------------------------------------------------------------------------------


def test_an_ended_task_takes_no_more_messages(speaker: Any) -> None:
    ended = speaker.send("hi")
    assert error(speaker.send("more", task=ended)) == (UNSUPPORTED[speaker.binding], "UNSUPPORTED_OPERATION")


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_message_for_an_unknown_task_is_refused(speaker: Any) -> None:
    assert error(speaker.send("hi", task="nobody")) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND")


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_follow_up_inherits_its_context_and_cannot_name_another(speaker: Any) -> None:
    asked = speaker.task(speaker.send(tool="ask_name"))
    wrong = speaker.send("Ada", task=asked, message={"contextId": "another"})
    assert error(wrong) == (PARAMS[speaker.binding], "INVALID_PARAMS")
    assert wrong.field == "message.contextId"
    answered = speaker.task(speaker.send("Ada", task=asked))
    assert answered["contextId"] == asked["contextId"]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_task_is_read_as_it_was_answered(speaker: Any) -> None:
    answered = speaker.task(speaker.send(tool="count", arguments={"n": 3}))
    assert speaker.get(answered).result == answered


def test_a_task_at_work_is_read_as_far_as_it_has_come(speaker: Any) -> None:
    answer = speaker.get(begun(speaker, "slow"))
    assert speaker.state(answer) == "working"
    assert '"begun"' in answer.text


def test_an_unknown_task_cannot_be_read(speaker: Any) -> None:
    assert error(speaker.get("nobody")) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND")


@pytest.mark.requirement("S2-12")
@pytest.mark.parametrize(("length", "kept"), [(1, 1), (2, 2), (3, 3), (99, 3), (0, 0)])
def test_the_history_is_cut_to_its_last_messages(speaker: Any, length: int, kept: int) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    speaker.send("Ada", task=task)
    whole = speaker.get(task).result["history"]
    assert len(whole) == 3
    if speaker.form == "0.3-rest" and length == 0:
        kept = 3  # proto3 cannot tell 0 from nothing, and nothing is unlimited
    answer = speaker.get(task, historyLength=length).result
    assert answer.get("history", []) == whole[len(whole) - kept :]
    # In 0.3 the answer says that there is none; later versions leave empty lists out.
    assert "history" in answer or speaker.form not in ("0.3-rpc", "0.1-rpc")


@pytest.mark.parametrize("length", [1, 0])
def test_the_history_is_cut_in_the_answer_to_a_message_too(speaker: Any, length: int) -> None:
    if speaker.version == "0.1":
        answer = speaker.send("hi", historyLength=length)
    else:
        answer = speaker.send("hi", configuration={"historyLength": length})
    shown = answer.result.get("task", answer.result).get("history", [])
    assert len(shown) == (1 if speaker.form == "0.3-rest" else length)


# -- canceling ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-6", "S2-13")
@pytest.mark.parametrize("tool", ["slow", "until_told"])
def test_a_task_at_work_is_canceled_and_stays_so(speaker: Any, tool: str) -> None:
    task = begun(speaker, tool)
    with speaker.subscribe(task) as reading:
        reading.next()
        answer = speaker.cancel(task)
        events = list(reading)
    assert speaker.state(answer) == "canceled"
    assert speaker.state(speaker.event(events[-1])) == "canceled"
    assert speaker.state(speaker.get(task)) == "canceled"
    assert error(speaker.cancel(task)) == (NOT_CANCELABLE[speaker.binding], "TASK_NOT_CANCELABLE")


def test_a_task_that_waits_can_be_canceled(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    assert speaker.state(speaker.cancel(task)) == "canceled"
    assert error(speaker.send("Ada", task=task)) == (UNSUPPORTED[speaker.binding], "UNSUPPORTED_OPERATION")


@pytest.mark.requirement("S2-13")
@pytest.mark.parametrize("tool", ["echo", "boom", "deny"])
def test_an_ended_task_cannot_be_canceled(speaker: Any, tool: str) -> None:
    task = speaker.send("hi", tool=tool)
    assert error(speaker.cancel(task)) == (NOT_CANCELABLE[speaker.binding], "TASK_NOT_CANCELABLE")
    assert speaker.get(task).result == task.result.get("task", task.result)


@pytest.mark.requirement("S2-13")
def test_an_unknown_task_cannot_be_canceled(speaker: Any) -> None:
    assert error(speaker.cancel("nobody")) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND")


# -- listing -----------------------------------------------------------------------------------------------------------


def in_tenant(speaker: Any) -> tuple[Any, dict[str, Any]]:
    """A speaker whose tasks nobody else sees, and what it must say for that."""
    tenant = f"tenant-{uuid4()}"
    return (speaker.at(f"/{tenant}"), {}) if speaker.is_rest else (speaker, {"tenant": tenant})


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_every_task_is_listed_exactly_once_newest_first(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    sent = [speaker.id_of(speaker.send(f"number {number}", **named)) for number in range(7)]
    pages: list[Any] = []
    token = ""
    while token or not pages:
        pages.append(speaker.list(pageSize=3, **({"pageToken": token} if token else {}), **named).result)
        token = pages[-1]["nextPageToken"]
    assert [len(page["tasks"]) for page in pages] == [3, 3, 1]
    assert [task["id"] for page in pages for task in page["tasks"]] == sent[::-1]
    assert {(page["pageSize"], page["totalSize"]) for page in pages} == {(3, 7)}


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_a_task_that_comes_while_pages_are_turned_disturbs_none_of_them(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    sent = [speaker.id_of(speaker.send(f"number {number}", **named)) for number in range(4)]
    first = speaker.list(pageSize=2, **named).result
    speaker.send("late", **named)
    second = speaker.list(pageSize=2, pageToken=first["nextPageToken"], **named).result
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == sent[::-1]
    assert second["nextPageToken"] == ""


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_tasks_are_listed_by_context_by_state_and_by_time(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    done = speaker.task(speaker.send("hi", **named))
    asking = speaker.task(speaker.send(tool="ask_name", message={"contextId": done["contextId"]}, **named))
    other = speaker.task(speaker.send(tool="ask_name", **named))

    def listed(**filters: Any) -> set[str]:
        page = speaker.list(**filters, **named).result
        assert page["totalSize"] == len(page["tasks"])
        return {task["id"] for task in page["tasks"]}

    assert listed() == {done["id"], asking["id"], other["id"]}
    assert listed(contextId=done["contextId"]) == {done["id"], asking["id"]}
    assert listed(status="TASK_STATE_INPUT_REQUIRED") == {asking["id"], other["id"]}
    assert listed(contextId=done["contextId"], status="TASK_STATE_COMPLETED") == {done["id"]}
    assert listed(contextId="nowhere") == set()
    assert listed(statusTimestampAfter="2000-01-01T00:00:00Z") == {done["id"], asking["id"], other["id"]}
    assert listed(statusTimestampAfter="2999-01-01T00:00:00Z") == set()


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_artifacts_and_history_are_listed_as_far_as_they_are_asked_for(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    task = speaker.task(speaker.send("hi", **named))
    yes = "true" if speaker.is_rest and not speaker.is_grpc else True

    def only(**asked: Any) -> Any:
        (found,) = speaker.list(**asked, **named).result["tasks"]
        return found

    assert only() == {key: value for key, value in task.items() if key != "artifacts"}
    assert only(includeArtifacts=yes) == task
    assert set(task) - set(only(includeArtifacts=yes, historyLength=0)) == {"history"}


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_the_token_of_a_list_with_other_filters_is_refused(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    for number in range(2):
        speaker.send(f"number {number}", **named)
    token = speaker.list(pageSize=1, **named).result["nextPageToken"]
    for other in (
        {"contextId": "c"},
        {"status": "TASK_STATE_WORKING"},
        {"statusTimestampAfter": "2000-01-01T00:00:00Z"},
    ):
        answer = speaker.list(pageSize=1, pageToken=token, **other, **named)
        assert (error(answer), answer.field) == ((PARAMS[speaker.binding], "INVALID_PARAMS"), "pageToken")
    elsewhere, named = in_tenant(speaker)
    assert elsewhere.list(pageSize=1, pageToken=token, **named).field == "pageToken"


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_a_page_has_fifty_tasks_unless_another_size_is_asked_for(speaker: Any) -> None:
    speaker, named = in_tenant(speaker)
    assert speaker.list(**named).result == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert speaker.list(pageSize=100, **named).result["pageSize"] == 100


# -- what this agent does not do ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/extendedAgentCard", "/acme/extendedAgentCard"])
def test_there_is_no_extended_card(wire: Any, path: str) -> None:
    assert error(wire.rpc("GetExtendedAgentCard")) == (-32004, "UNSUPPORTED_OPERATION")
    assert error(wire.rest("GET", path)) == (400, "UNSUPPORTED_OPERATION")
