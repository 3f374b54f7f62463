"""A2A 1.1: generations, long polls, and messages for a task as it was last seen."""

from __future__ import annotations

import threading
from typing import Any

import pytest

SPEAKERS = ["1.1-rpc", "1.1-rest"]
MISMATCH = {"rpc": -32010, "rest": 409}
OLDER = ["1.0-rpc", "1.0-rest"]


# -- generations -------------------------------------------------------------------------------------------------------


def test_a_task_says_its_generation(speaker: Any) -> None:
    task = speaker.task(speaker.send("hi"))
    assert task["generation"] == "4"
    assert speaker.get(task).result["generation"] == "4"
    listed = speaker.list(contextId=task["contextId"]).result["tasks"]
    assert [each["generation"] for each in listed] == ["4"]


def test_every_event_says_its_generation_which_is_its_id(speaker: Any) -> None:
    with speaker.stream(tool="count", arguments={"n": 3}) as reading:
        events = list(reading)
    said = [next(iter(speaker.event(event).values()))["generation"] for event in events]
    assert said == [event.id for event in events] == [str(number) for number in range(1, 7)]


def test_a_subscription_and_a_resumed_stream_say_generations_too(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task) as reading:
        assert speaker.event(reading.next())["task"]["generation"] == "3"
    with speaker.subscribe(task, after=1) as reading:
        assert speaker.event(reading.next())["statusUpdate"]["generation"] == "2"


def test_a_canceled_task_says_its_generation(speaker: Any) -> None:
    task = speaker.send(tool="ask_name")
    assert speaker.cancel(task).result["generation"] == "4"


def test_a_bare_message_has_none(speaker: Any) -> None:
    assert "generation" not in speaker.send(tool="reply").text


@pytest.mark.parametrize("speaker", [*OLDER, "0.3-rpc", "0.3-rest", "0.1-rpc"], indirect=True)
def test_no_other_version_says_generations(speaker: Any) -> None:
    asked = speaker.send(tool="ask_name")
    with speaker.subscribe(asked) as reading:
        texts = [asked.text, speaker.get(asked).text, reading.next().data, speaker.cancel(asked).text]
        texts += [event.data for event in reading]
    assert not any("generation" in text for text in texts)


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest"], indirect=True)
@pytest.mark.parametrize(("version", "counts"), [("1.1", True), ("1.1.0", True), ("1.0", False), ("1.0.1", False)])
def test_the_version_is_asked_for_in_a_header_or_in_the_query(speaker: Any, version: str, counts: bool) -> None:
    header = speaker.send("hi", headers={"A2A-Version": version})
    method, path, options = speaker.spell("send", speaker.params("hi"))
    del options["headers"]["A2A-Version"]
    query = speaker.wire.request(method, f"{path}?A2A-Version={version}", **options)
    assert [("generation" in answer.result["task"]) for answer in (header, query)] == [counts, counts]


def test_the_header_counts_before_the_query(wire: Any) -> None:
    speaker = wire.speaker("1.0-rest")
    answer = wire.rest("POST", "/message:send?A2A-Version=1.1", speaker.params("hi"), **{"A2A-Version": "1.0"})
    assert "generation" not in answer.result["task"]


# -- long polls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [0, 2, "2"])
def test_a_newer_task_is_answered_at_once(speaker: Any, known: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    assert speaker.get(task, currentGeneration=known).result["generation"] == "3"


def test_an_ended_task_is_answered_at_once(speaker: Any) -> None:
    task = speaker.id_of(speaker.send("hi"))
    assert speaker.get(task, currentGeneration=99).result["generation"] == "4"


def test_a_poll_waits_until_the_task_is_newer(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(speaker.get(task, currentGeneration=3)))
    with speaker.subscribe(task) as reading:
        reading.next()
        poll.start()
        speaker.send("Ada", task=task)
        list(reading)
    poll.join(5)
    assert int(answers[0].result["generation"]) > 3


@pytest.mark.parametrize("speaker", OLDER, indirect=True)
def test_1_0_knows_no_long_poll(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    assert speaker.state(speaker.get(task, currentGeneration=99)) == "input-required"


# -- a message for a task as it was last seen --------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [3, "3"])
def test_a_message_for_the_task_as_it_is_is_taken(speaker: Any, seen: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    answer = speaker.send("Ada", task=task, configuration={"ifGenerationMatch": seen})
    assert speaker.state(answer) == "completed"


@pytest.mark.parametrize("operation", ["send", "stream"])
@pytest.mark.parametrize("seen", [2, 4])
def test_a_message_for_the_task_as_it_was_is_refused(speaker: Any, seen: int, operation: str) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    method, path, options = speaker.spell(
        operation, speaker.params("Ada", task=task, configuration={"ifGenerationMatch": seen})
    )
    answer = speaker.wire.request(method, path, **options)
    assert (answer.code, answer.reason) == (MISMATCH[speaker.binding], "TASK_GENERATION_MISMATCH")
    assert answer.status == (409 if speaker.is_rest else 200)
    assert answer.details[0]["metadata"] == {
        "taskId": task,
        "expectedGeneration": str(seen),
        "currentGeneration": "3",
    }
    assert speaker.state(speaker.get(task)) == "input-required"


def test_a_message_for_a_new_task_can_expect_none(speaker: Any) -> None:
    answer = speaker.send("hi", configuration={"ifGenerationMatch": 1})
    assert answer.field == "configuration.ifGenerationMatch"


@pytest.mark.parametrize("speaker", OLDER, indirect=True)
def test_1_0_ignores_what_a_message_expects(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    answer = speaker.send("Ada", task=task, configuration={"ifGenerationMatch": 99})
    assert speaker.state(answer) == "completed"
