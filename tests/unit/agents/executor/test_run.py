"""An executor as an agent, where there is no a2a-sdk: what it is told, what it says, how it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from unit.agents.executor.scripted import Scripted, Updater, agent_of, answer_of

from dragoman import Client, State, Task
from dragoman.agents.executor.plain import PlainContext
from dragoman.agents.executor.remarks import MAX_REMARK_BYTES, Remarks
from dragoman.engine.call import CallContext
from dragoman.model.error import InvalidAgentResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.user import User

# -- what it is told ---------------------------------------------------------------------------------------------------


async def test_the_context_has_what_executors_look_at(start: Any) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None: ...

    executor = Scripted(execute)
    engine = await start(agent_of(executor))
    task = await engine.send(
        "one",
        parts=(Part(data={"n": 1}), Part(text="two")),
        context="c",
        message_metadata={"of": "message"},
        metadata={"of the": "request"},
        call=CallContext(User("ada"), "acme", frozenset({"urn:x"})),
    )
    [context] = executor.contexts
    assert isinstance(task, Task)
    assert (context.task_id, context.context_id) == (task.id, "c")
    assert context.message is not None
    assert (context.message.task_id, context.message.context_id) == (task.id, "c")
    assert context.get_user_input() == "one\ntwo"
    assert context.get_user_input(" ") == "one two"
    assert context.metadata == {"of": "message", "of the": "request"}
    assert (context.tenant, context.requested_extensions) == ("acme", {"urn:x"})
    assert (context.call_context.user.is_authenticated, context.call_context.user.user_name) == (True, "ada")
    assert context.configuration is not None
    assert (context.current_task, context.related_tasks) == (None, [])
    context.attach_related_task(task)
    context.add_activated_extension("urn:x")
    assert context.related_tasks == [task]


async def test_a_caller_nobody_knows_is_not_authenticated() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        user = context.call_context.user
        await updater.status("completed", f"{user.is_authenticated} {user.user_name!r}")

    assert (await answer_of(execute)).text == "False ''"


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_a_message_is_an_answer_without_a_task() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.queue.enqueue_event(
            {"messageId": "m", "role": "agent", "parts": [{"text": "Hello"}, {"data": 1}]}
        )

    async with Client(agent_of(Scripted(execute))) as client:
        answer = await client.send("hi")
        assert isinstance(answer, Message)
        assert answer.parts == (Part(text="Hello"), Part(data=1))
        assert [event.kind async for event in client.stream("hi")] == ["message"]


@pytest.mark.parametrize("text", [None, "thinking"])
async def test_a_message_after_a_status_completes_its_task(text: str | None) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("working", text)
        await updater.queue.enqueue_event({"messageId": "m", "role": "agent", "parts": [{"text": "Hello"}]})

    task = await answer_of(execute)
    assert (task.state, task.text, task.artifacts) == (State.COMPLETED, "Hello", ())


@pytest.mark.parametrize(
    ("word", "state", "text"),
    [
        ("completed", State.COMPLETED, "well"),
        ("failed", State.FAILED, "well"),
        ("rejected", State.REJECTED, "well"),
        ("canceled", State.FAILED, "well"),
        ("completed", State.COMPLETED, None),
        ("failed", State.FAILED, None),
        ("rejected", State.REJECTED, None),
        ("canceled", State.FAILED, None),
    ],
)
async def test_the_end_it_says_is_the_end_of_the_task(word: str, state: State, text: str | None) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("working")
        await updater.status(word, text)

    task = await answer_of(execute)
    assert task.state is state
    if text is not None:
        assert task.status.message is not None
        assert task.status.message.text == text


async def test_an_executor_that_enqueues_what_is_no_event_fails_with_its_name_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.queue.enqueue_event(SimpleNamespace(what="is this"))

    with pytest.raises(InvalidAgentResponse, match="a SimpleNamespace that cannot be read"):
        await answer_of(execute)
    assert "a SimpleNamespace that cannot be read" in caplog.text


async def test_an_executor_that_cancels_itself_has_failed() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        raise asyncio.CancelledError

    task = await answer_of(execute)
    assert (task.state, task.error) == (State.FAILED, "execution failed: the executor cancelled itself")


async def test_a_final_status_ends_the_task_while_the_executor_tidies_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tidied, tidy = asyncio.Event(), asyncio.Event()

    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("completed", "done")
        await tidy.wait()
        await updater.status("failed", "too late")
        await updater.artifact("late", {"text": "too late"})
        tidied.set()
        raise ValueError("nobody hears")

    async with Client(agent_of(Scripted(execute))) as client:
        answer = await client.send("hi")
        assert (answer.state, answer.text) == (State.COMPLETED, "done")
        with caplog.at_level(logging.WARNING):
            tidy.set()
            await tidied.wait()
            await asyncio.sleep(0)
        assert isinstance(answer, Task)
        assert (await client.get_task(answer.id)).text == "done"
    assert "goes on after the end" in caplog.text
    assert "failed after the end" in caplog.text


async def test_an_exception_right_after_the_end_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("completed", "done")
        raise RuntimeError("too late")

    with caplog.at_level(logging.WARNING):
        task = await answer_of(execute)
    assert (task.state, task.text) == (State.COMPLETED, "done")
    [record] = [record for record in caplog.records if "failed after the end" in record.message]
    assert task.id in record.message
    assert "too late" in caplog.text
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_an_agent_that_is_closed_stops_those_that_still_tidy_up(start: Any) -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("completed")
        await asyncio.Event().wait()

    executor = Scripted(execute)
    engine = await start(agent_of(executor))
    await engine.send(wait=False)
    await executor.began.wait()
    await engine.connection.close()
    assert executor.stopped.is_set()


# -- what it says on the way -------------------------------------------------------------------------------------------


async def test_artifacts_arrive_exactly_as_given() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.artifact("a", {"text": "one "}, lastChunk=False, metadata={"k": 1})
        await updater.artifact("a", {"text": "two"}, append=True, lastChunk=True)
        await updater.artifact("b", {"data": {"count": 3}})
        await updater.status("completed")

    async with Client(agent_of(Scripted(execute))) as client:
        events = [event.raw async for event in client.stream("hi")]
    updates = [event for event in events if isinstance(event, ArtifactUpdate)]
    assert [(each.artifact.artifact_id, each.append, each.last_chunk) for each in updates] == [
        ("a", False, False),
        ("a", True, True),
        ("b", False, False),
    ]
    assert updates[0].metadata == {"k": 1}
    assert updates[2].artifact.parts == (Part(data={"count": 3}),)


async def test_a_piece_that_continues_nothing_begins_its_artifact() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.artifact("a", {"text": "one "}, append=True)
        await updater.artifact("a", {"text": "two"}, append=True)

    assert (await answer_of(execute)).text == "one two"


async def test_a_message_of_a_working_status_is_progress() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("submitted")
        await updater.status("working", "half", metadata={"done": 1, "total": 2})
        await updater.status("completed")

    async with Client(agent_of(Scripted(execute))) as client:
        events = [event.raw async for event in client.stream("hi")]
    reports = [event for event in events if isinstance(event, StatusUpdate) and event.status.message is not None]
    assert [(each.status.state, each.metadata) for each in reports] == [(State.WORKING, {"done": 1, "total": 2})]


@pytest.mark.parametrize("end", ["completed", None])
async def test_messages_of_working_statuses_are_the_answer_without_another(end: str | None) -> None:
    """As the executor of Microsoft Agent Framework does by default."""

    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("submitted")
        await updater.status("working", "half", metadata={"done": 1, "total": 2})
        await updater.status("working", "one")
        await updater.status("working", "two")
        if end is not None:
            await updater.status(end)

    async with Client(agent_of(Scripted(execute))) as client:
        stream = client.stream("hi")
        assert "".join([event.text async for event in stream]) == stream.task.text == "one\n\ntwo"
        assert (await client.get_task(stream.task)).text == "one\n\ntwo"


async def test_messages_of_working_statuses_are_no_answer_beside_an_artifact() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("working", "looking")
        await updater.artifact("a", {"text": "found"})
        await updater.status("completed")

    task = await answer_of(execute)
    assert (task.text, task.status.message) == ("found", None)


async def test_the_final_message_closes_the_task_beside_an_artifact() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.artifact("a", {"text": "found"})
        await updater.status("completed", "that was all", {"data": {"n": 1}})

    task = await answer_of(execute)
    assert task.text == "found"
    assert task.status.message is not None
    assert (task.status.message.text, task.status.message.data) == ("that was all", {"n": 1})
    assert [message.text for message in task.history] == ["hi"]  # no progress was made of it


async def test_messages_of_working_statuses_are_kept_only_while_they_may_be_the_answer() -> None:
    kept: list[int] = []
    others = [each for each in gc.get_objects() if isinstance(each, Remarks)]  # of earlier tests

    def remarks() -> int:
        found = [each for each in gc.get_objects() if isinstance(each, Remarks)]
        return sum(len(each.parts) for each in found if not any(each is other for other in others))

    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("working", "reading")
        kept.append(remarks())
        await updater.artifact("a", {"text": "the answer"}, lastChunk=False)
        kept.append(remarks())
        await updater.status("working", "reading on")
        kept.append(remarks())

    assert (await answer_of(execute)).text == "the answer"
    assert kept == [1, 0, 0]


async def test_of_very_much_that_it_says_while_it_works_the_end_is_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    size = MAX_REMARK_BYTES // 4

    async def execute(context: PlainContext, updater: Updater) -> None:
        for letter in "abcdef":
            await updater.status("working", letter * size)
        await updater.status("completed")

    task = await answer_of(execute)
    assert [part.text and part.text[0] for part in task.parts] == ["d", "e", "f"]
    assert "the answer is only the end of it" in caplog.text
    assert len(caplog.records) == 1


async def test_a_whole_task_says_its_artifacts_and_its_state() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        artifact = {"artifactId": "a", "parts": [{"text": "all of it"}]}
        await updater.queue.enqueue_event({"id": "another id", "status": {"state": "submitted"}})
        await updater.queue.enqueue_event({"id": "x", "status": {"state": "completed"}, "artifacts": [artifact]})

    task = await answer_of(execute)
    assert (task.state, task.text) == (State.COMPLETED, "all of it")
