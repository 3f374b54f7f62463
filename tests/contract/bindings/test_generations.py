"""A2A 1.1: generations, long polls, and messages for a task as it was last seen."""

from __future__ import annotations

import threading

import pytest
from contract.bindings.caller import Caller, Refused, Site
from contract.bindings.deviations import BEFORE_1_1

from dragoman import Message, State, Task
from dragoman.model.event import ArtifactUpdate, StatusUpdate

numbered = pytest.mark.needs("generations")


@numbered
def test_a_task_says_its_generation(caller: Caller) -> None:
    task = caller.send("hi")
    assert (task.generation, caller.get(task).generation) == (4, 4)
    assert [each.generation for each in caller.list(contextId=task.context_id).tasks] == [4]
    asked = caller.send(tool="ask_name")
    assert caller.cancel(asked).generation == 4


@numbered
def test_every_event_says_its_generation_which_is_its_number(caller: Caller) -> None:
    with caller.stream(tool="count", arguments={"n": 3}) as reading:
        events = list(reading)
    generations = [each.value.generation for each in events if not isinstance(each.value, Message)]
    assert generations == [event.number for event in events] == [1, 2, 3, 4, 5, 6]


@numbered
def test_a_subscription_and_a_resumed_stream_say_generations_too(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    for after, kind, generation in ((None, Task, 3), (1, StatusUpdate, 2)):
        with caller.subscribe(task, after=after) as reading:
            value = reading.next().value
        assert isinstance(value, kind)
        assert not isinstance(value, Message)
        assert value.generation == generation


@pytest.mark.parametrize("name", BEFORE_1_1)
def test_no_other_version_says_generations(name: str, house: Site) -> None:
    caller = house.caller(name)
    asked = caller.send(tool="ask_name")
    with caller.subscribe(asked) as reading:
        values = [asked, caller.get(asked), reading.next().value, caller.cancel(asked)]
        values += [event.value for event in reading]
    assert all(isinstance(value, (Task, StatusUpdate, ArtifactUpdate)) and value.generation is None for value in values)


@numbered
@pytest.mark.parametrize("known", [0, 2])
def test_a_newer_task_is_answered_at_once(caller: Caller, known: int) -> None:
    assert caller.get(caller.send(tool="ask_name"), currentGeneration=known).generation == 3


@numbered
def test_an_ended_task_is_answered_at_once(caller: Caller) -> None:
    assert caller.get(caller.send("hi"), currentGeneration=99).generation == 4


@numbered
def test_a_poll_waits_until_the_task_is_newer(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    answers: list[Task] = []
    poll = threading.Thread(target=lambda: answers.append(caller.get(task, currentGeneration=3)))
    with caller.subscribe(task) as reading:
        reading.next()
        poll.start()
        caller.send("Ada", task=task)
        list(reading)
    poll.join(5)
    assert (answers[0].generation or 0) > 3


@numbered
def test_a_message_for_the_task_as_it_is_is_taken(caller: Caller) -> None:
    assert caller.send("Ada", task=caller.send(tool="ask_name"), if_generation=3).state is State.COMPLETED


@numbered
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("seen", [2, 4])
def test_a_message_for_the_task_as_it_was_is_refused(caller: Caller, seen: int, streams: bool) -> None:
    task = caller.send(tool="ask_name")
    with pytest.raises(Refused) as refused:
        if streams:
            with caller.stream("Ada", task=task, if_generation=seen):
                pass
        else:
            caller.send("Ada", task=task, if_generation=seen)
    assert refused.value.reason == "TASK_GENERATION_MISMATCH"
    assert refused.value.metadata == {
        "taskId": task.id,
        "expectedGeneration": str(seen),
        "currentGeneration": "3",
    }
    assert caller.get(task).state is State.INPUT_REQUIRED


@numbered
def test_a_message_for_a_new_task_can_expect_no_generation(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send("hi", if_generation=1)
    assert refused.value.field == "configuration.ifGenerationMatch"


@pytest.mark.parametrize("name", ["1.0-rpc", "1.0-rest", "1.0-grpc"])
def test_1_0_has_neither_long_polls_nor_expectations(name: str, house: Site) -> None:
    caller = house.caller(name)
    task = caller.send(tool="ask_name")
    assert caller.get(task, currentGeneration=99).state is State.INPUT_REQUIRED
    assert caller.send("Ada", task=task, if_generation=99).state is State.COMPLETED
