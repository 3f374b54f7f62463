"""Sending a message, going on with its task, reading it and canceling it: the same in every binding and version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from contract.bindings.agent import Gates
from contract.bindings.caller import Caller, Refused
from contract.bindings.deviations import state_in

from dragoman import Message, State, Task
from dragoman.model.message import ERROR_KEY
from dragoman.model.state import Role

SECONDS = 10


def at_work(caller: Caller, reader: Caller, tool: str) -> str:
    """A task that is at work for sure."""
    task = caller.begin(tool=tool)
    reader.get(task, currentGeneration=2)
    return task


def refusal(refused: pytest.ExceptionInfo[Refused]) -> tuple[str, str | None]:
    return refused.value.reason, refused.value.field


# -- sending -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-10", "S2-38")
def test_a_message_is_answered_with_the_finished_task_and_all_its_artifacts(caller: Caller) -> None:
    task = caller.send(tool="count", arguments={"n": 3})
    assert (task.state, [artifact.text for artifact in task.artifacts]) == (State.COMPLETED, ["1 2 3 "])
    assert [(message.role, message.data) for message in task.history] == [
        (Role.USER, {"tool": "count", "arguments": {"n": 3}})
    ]


def test_every_artifact_has_its_own_parts(caller: Caller) -> None:
    text, thing = caller.send(tool="both").artifacts
    assert (text.text, thing.parts[0].data) == ("a text", {"an": "object"})
    assert text.artifact_id != thing.artifact_id


def test_text_alone_goes_to_the_first_skill(caller: Caller) -> None:
    assert caller.send("Hello!").text == "Hello!"


def test_a_skill_may_be_named_in_the_metadata(caller: Caller) -> None:
    assert caller.send({"n": 2}, metadata={"skillId": "count"}).text == "1 2 "


def test_a_question_is_answered_within_its_task(caller: Caller) -> None:
    asked = caller.send(tool="ask_name")
    assert (asked.state, asked.question) == (State.INPUT_REQUIRED, "What is your name?")
    answered = caller.send("Ada", task=asked)
    assert (answered.id, answered.context_id) == (asked.id, asked.context_id)
    assert (answered.state, answered.text) == (State.COMPLETED, "Hello, Ada!")
    assert [message.text for message in answered.history] == ["", "What is your name?", "Ada"]
    assert [message.role for message in answered.history] == [Role.USER, Role.AGENT, Role.USER]


@pytest.mark.requirement("S2-102")
def test_a_skill_that_breaks_fails_its_task_and_nothing_else(caller: Caller) -> None:
    task = caller.send(tool="boom")
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.startswith("execution failed: Internal error, reference ")
    assert "secret" not in repr(task)
    assert caller.send("still there").text == "still there"


def test_a_refusal_shows_its_reason(caller: Caller) -> None:
    task = caller.send(tool="deny")
    assert (task.state, task.error) == (state_in(caller.version, State.REJECTED), "not today")


def test_a_closing_message_is_in_the_last_status(caller: Caller) -> None:
    task = caller.send(tool="export")
    assert (task.state, [artifact.parts[0].data for artifact in task.artifacts]) == (State.COMPLETED, [{"rows": 3}])
    assert task.status.message is not None
    text, file = task.status.message.parts
    assert (text.text, file.raw, file.filename) == ("All exported", b"log", "export.log")
    assert caller.get(task) == task


@pytest.mark.needs("messages")
def test_a_skill_may_answer_with_a_message_alone(caller: Caller) -> None:
    message = caller.deliver(tool="reply", context="my-context").value
    assert isinstance(message, Message)
    assert (message.text, message.role, message.context_id) == ("at once", Role.AGENT, "my-context")
    assert message.task_id is None


@pytest.mark.needs("return immediately")
def test_a_message_that_need_not_wait_is_answered_at_once(caller: Caller) -> None:
    assert caller.send(tool="slow", wait=False).state in (State.SUBMITTED, State.WORKING)


@pytest.mark.requirement("S0-30", "S2-38")
def test_a_message_waits_for_the_end_unless_it_says_otherwise(caller: Caller, gates: Gates) -> None:
    name = str(uuid4())
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(lambda: caller.send(tool="gated", arguments={"name": name}))
        gates[name].wait()
        assert caller.send("another").text == "another"
        assert not sent.done()
        gates[name].open()
        task = sent.result(SECONDS)
    assert (task.state, task.text) == (State.COMPLETED, "through")


@pytest.mark.needs("contexts of messages")
def test_tasks_of_one_context_share_it(caller: Caller) -> None:
    context = str(uuid4())
    one, other = (caller.send("hi", context=context) for _ in range(2))
    assert (one.context_id, other.context_id) == (context, context)
    assert one.id != other.id


# -- repeats -----------------------------------------------------------------------------------------------------------


@pytest.mark.needs("message ids")
def test_a_repeated_message_gets_the_task_of_the_first_and_is_marked(caller: Caller) -> None:
    number = str(uuid4())
    first = caller.deliver(tool="count", arguments={"n": 2}, message_id=number)
    again = caller.deliver(tool="count", arguments={"n": 2}, message_id=number)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.value == first.value


@pytest.mark.needs("message ids")
def test_a_repeated_stream_shows_the_same_task_again(caller: Caller) -> None:
    number = str(uuid4())
    with caller.stream("hi", message_id=number) as events:
        first = list(events)
        assert "idempotent-replayed" not in events.headers
    with caller.stream("hi", message_id=number) as events:
        again = list(events)
        assert events.headers["idempotent-replayed"] == "true"
    assert again[-1].state is State.COMPLETED
    (task,) = {caller.get(value.id).id for _, value in (first[0], again[0]) if isinstance(value, Task)}
    assert caller.get(task).state is State.COMPLETED


# -- going on with a task ----------------------------------------------------------------------------------------------


def test_an_ended_task_takes_no_more_messages(caller: Caller) -> None:
    ended = caller.send("hi")
    with pytest.raises(Refused) as refused:
        caller.send("more", task=ended)
    assert refusal(refused) == ("UNSUPPORTED_OPERATION", None)


@pytest.mark.needs("tasks by id")
def test_a_message_for_an_unknown_task_is_refused(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send("hi", task="nobody")
    assert refusal(refused) == ("TASK_NOT_FOUND", None)
    assert refused.value.metadata == {"taskId": "nobody"}


@pytest.mark.needs("contexts of messages")
def test_a_follow_up_cannot_name_another_context(caller: Caller) -> None:
    asked = caller.send(tool="ask_name")
    with pytest.raises(Refused) as refused:
        caller.send("Ada", task=asked, context="another")
    assert refusal(refused) == ("INVALID_PARAMS", "message.contextId")
    assert caller.get(asked).state is State.INPUT_REQUIRED


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_task_is_read_as_it_was_answered(caller: Caller) -> None:
    answered = caller.send(tool="count", arguments={"n": 3})
    assert caller.get(answered) == answered


def test_a_task_at_work_is_read_as_far_as_it_is(caller: Caller, reader: Caller) -> None:
    task = caller.get(at_work(caller, reader, "slow"))
    assert task.state is State.WORKING
    assert task.status.message is not None
    assert task.status.message.text == "begun"


def test_an_unknown_task_cannot_be_read(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.get("nobody")
    assert (*refusal(refused), refused.value.message) == ("TASK_NOT_FOUND", None, "Task not found")


@pytest.mark.requirement("S2-12")
def test_the_history_is_cut_to_its_last_messages(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    whole = caller.send("Ada", task=task).history
    assert len(whole) == 3
    for length, kept in ((1, 1), (2, 2), (3, 3), (99, 3)):
        assert caller.get(task, historyLength=length).history == whole[3 - kept :]


@pytest.mark.requirement("S2-12")
@pytest.mark.needs("empty history")
def test_a_history_of_no_messages_is_empty(caller: Caller) -> None:
    task = caller.send("hi", history_length=0)
    assert (task.history, caller.get(task, historyLength=0).history) == ((), ())
    assert len(caller.get(task).history) == 1


def test_the_history_is_cut_in_the_answer_to_a_message_too(caller: Caller) -> None:
    asked = caller.send(tool="ask_name")
    assert [message.text for message in caller.send("Ada", task=asked, history_length=1).history] == ["Ada"]


# -- canceling ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-6", "S2-13")
@pytest.mark.parametrize("tool", ["slow", "until_message"])
def test_a_task_at_work_is_canceled_and_stays_so(caller: Caller, reader: Caller, tool: str) -> None:
    task = at_work(caller, reader, tool)
    with caller.subscribe(task) as events:
        events.next()
        canceled = caller.cancel(task)
        assert [event.state for event in events][-1] is State.CANCELED
    assert (canceled.id, canceled.state) == (task, State.CANCELED)
    assert caller.get(task).state is State.CANCELED
    with pytest.raises(Refused) as refused:
        caller.cancel(task)
    assert refusal(refused) == ("TASK_NOT_CANCELABLE", None)


def test_a_task_that_waits_can_be_canceled(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    assert caller.cancel(task).state is State.CANCELED
    with pytest.raises(Refused) as refused:
        caller.send("Ada", task=task)
    assert refusal(refused) == ("UNSUPPORTED_OPERATION", None)


@pytest.mark.requirement("S2-13")
def test_an_ended_task_cannot_be_canceled(caller: Caller) -> None:
    for tool in ("echo", "boom", "deny"):
        task = caller.send("hi", tool=tool)
        with pytest.raises(Refused) as refused:
            caller.cancel(task)
        assert refusal(refused) == ("TASK_NOT_CANCELABLE", None)
        assert refused.value.metadata == {"taskId": task.id}
        assert caller.get(task) == task


@pytest.mark.requirement("S2-13")
def test_an_unknown_task_cannot_be_canceled(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.cancel("nobody")
    assert refusal(refused) == ("TASK_NOT_FOUND", None)


# -- errors that a skill raises ----------------------------------------------------------------------------------------


def test_an_error_that_a_skill_raises_is_the_answer_and_fails_its_task(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send(tool="book", arguments={"city": "Atlantis"})
    assert (*refusal(refused), refused.value.message) == ("INVALID_PARAMS", "city", "no such city: Atlantis")
    task = caller.get(refused.value.metadata["taskId"])
    assert (task.state, task.error) == (State.FAILED, "no such city: Atlantis")
    assert task.status.message is not None
    assert task.status.message.metadata == {
        ERROR_KEY: {"code": -32602, "reason": "INVALID_PARAMS", "field": "city"},
    }


def test_an_error_of_the_agent_s_own_keeps_its_reason(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send(tool="buy")
    assert (*refusal(refused), refused.value.message) == ("QUOTA_USED_UP", None, "no more credits")


def test_a_skill_may_refuse_its_caller(caller: Caller) -> None:
    with pytest.raises(Refused) as refused:
        caller.send(tool="enter")
    assert (*refusal(refused), refused.value.message) == ("PERMISSION_DENIED", None, "members only")


@pytest.mark.parametrize(("after", "seconds"), [("3", 3), ("soon\r\nX-Evil: 1", None)])
def test_a_busy_skill_may_say_when_to_come_back(caller: Caller, after: str, seconds: int | None) -> None:
    with pytest.raises(Refused) as refused:
        caller.send(tool="hurry", arguments={"after": after})
    assert (refusal(refused), refused.value.retry_after) == (("RESOURCE_EXHAUSTED", None), seconds)
    assert "x-evil" not in refused.value.headers


def test_a_caller_who_answers_a_task_gets_that_task_even_if_it_fails(caller: Caller) -> None:
    asked = caller.send(tool="trip")
    task = caller.send("Atlantis", task=asked)
    assert (task.id, task.state, task.error) == (asked.id, State.FAILED, "no such city: Atlantis")
