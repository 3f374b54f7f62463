"""From an executor to an agent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import Agent, Client
from dragoman.compat.executor import (
    AgentExecutor,
    Artifact,
    DataPart,
    EventQueues,
    Message,
    RequestContext,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    run_of,
)
from dragoman.engine.call import CallContext
from dragoman.model.error import ConfigError, InvalidAgentResponse
from dragoman.model.message import Message as ModelMessage
from dragoman.model.operation import CancelTaskRequest, Operation, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role as ModelRole
from dragoman.model.state import State
from dragoman.model.task import Task as ModelTask
from dragoman.server.agent.in_process import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.server.agent.in_process import ServiceConnection


async def answer_of(executor: Any, text: str = "hi") -> ModelTask:
    async with Client(Agent("x", run=run_of(executor))) as client:
        answer = await client.send(text)
        assert isinstance(answer, ModelTask)
        return answer


@asynccontextmanager
async def connected(executor: Any, **options: Any) -> AsyncIterator[ServiceConnection]:
    connection = connect(Agent("x", run=run_of(executor, **options)))
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


def request(text: str = "hi", **configuration: Any) -> SendMessageRequest:
    message = ModelMessage("m", ModelRole.USER, (Part(text=text),))
    return SendMessageRequest(message, SendMessageConfiguration(**configuration))


async def events_of(executor: Any) -> list[Any]:
    """The events of a stream, from the task to its end."""
    async with connected(executor) as connection:
        stream = connection.open_stream(Operation.STREAM, request(), None)
        return [record.event async for batch in stream for record in batch]


@pytest.mark.requirement("S2-21", "S2-43")
async def test_an_executor_is_called_with_the_context_and_the_tasks_id(doing: Any, echo: Any) -> None:
    task = await answer_of(echo)
    [(context, task_id)] = echo.executed
    assert task_id == context.task_id == task.id
    assert task.state is State.COMPLETED


@pytest.mark.requirement("S2-21")
def test_an_executor_must_have_both_execute_and_cancel() -> None:
    class Half(AgentExecutor):
        async def execute(self, context: RequestContext, task_id: str) -> None: ...

    with pytest.raises(TypeError, match="cancel"):
        Half()  # type: ignore[abstract]


@pytest.mark.requirement("S2-88")
async def test_the_context_holds_ids_message_and_metadata(echo: Any) -> None:
    async with connected(echo) as connection:
        message = ModelMessage("m", ModelRole.USER, (Part(text="hi"),), "c", metadata={"of": "message"})
        await connection.perform(Operation.SEND, SendMessageRequest(message, metadata={"of the": "request"}))
    [(context, _)] = echo.executed
    assert context.context_id == "c"
    assert context.message.text == "hi"
    assert context.message.id == "m"
    assert context.message.role is Role.USER
    assert context.metadata == {"of": "message", "of the": "request"}
    assert context.task is None
    assert context.queue.task_id == context.task_id


@pytest.mark.requirement("S2-95")
async def test_an_executor_may_come_with_a_configuration(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.COMPLETED, "configured")

    assert (await answer_of((doing, work))).text == "configured"


@pytest.mark.requirement("S2-95")
async def test_an_executor_may_be_one_or_a_class_of_one(echo: Any) -> None:
    class Plain(AgentExecutor):
        async def execute(self, context: RequestContext, task_id: str) -> None:
            await context.queue.enqueue(Message(Role.AGENT, (TextPart("plain"),)))

        async def cancel(self, context: RequestContext, task_id: str) -> None: ...

    assert (await answer_of(Plain)).text == "plain"
    assert (await answer_of(Plain())).text == "plain"


@pytest.mark.parametrize("spec", [None, object(), (object(), {}), dict])
def test_an_invalid_executor_is_refused_at_once(spec: Any) -> None:
    with pytest.raises(ConfigError, match="AgentExecutor"):
        run_of(spec)


# -- what an executor says -----------------------------------------------------------------------------------------


async def test_a_message_with_the_completed_status_is_the_tasks_answer(echo: Any) -> None:
    task = await answer_of(echo, "hello")
    assert task.state is State.COMPLETED
    assert task.status.message is not None
    assert task.status.message.role is ModelRole.AGENT
    assert task.status.message.text == "hello"


async def test_a_message_alone_completes_the_task_with_all_its_parts(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.context.queue.enqueue(Message(Role.AGENT, (TextPart("a"), DataPart({"b": 1}))))

    task = await answer_of(doing(work))
    assert task.state is State.COMPLETED
    assert task.status.message is not None
    assert task.status.message.parts == (Part(text="a"), Part(data={"b": 1}))


async def test_an_executor_that_says_nothing_completes_its_task(doing: Any) -> None:
    async def work(reporter: Any) -> None: ...

    task = await answer_of(doing(work))
    assert (task.state, task.status.message, task.artifacts) == (State.COMPLETED, None, ())


async def test_chunks_of_one_artifact_are_put_together_under_the_executors_id(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.artifact("mine", "a")
        await reporter.artifact("mine", "b", append=True)
        await reporter.artifact("mine", None, append=True, last_chunk=True)
        await reporter.artifact("other", "c", last_chunk=True)
        await reporter.status(TaskState.COMPLETED)

    task = await answer_of(doing(work))
    assert [(artifact.artifact_id, artifact.text) for artifact in task.artifacts] == [("mine", "ab"), ("other", "c")]


async def test_a_stream_shows_the_executors_flags_as_they_are(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.artifact("mine", "a")
        await reporter.artifact("mine", "b", append=True, last_chunk=True)

    events = await events_of(doing(work))
    flags = [(event.append, event.last_chunk) for event in events if hasattr(event, "append")]
    assert flags == [(False, False), (True, True)]


async def test_a_message_while_working_is_shown_as_progress(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.WORKING)
        await reporter.status(TaskState.WORKING, "half way")

    events = await events_of(doing(work))
    texts = [event.status.message.text for event in events[1:] if event.status.message]
    assert texts == ["half way"]


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED, TaskState.INPUT_REQUIRED])
async def test_metadata_and_message_ids_of_an_executor_reach_the_stream(doing: Any, state: TaskState) -> None:
    async def work(reporter: Any) -> None:
        ids = (reporter.context.task_id, reporter.context.context_id)
        half = Message(Role.AGENT, (TextPart("half way"), DataPart({"n": 1})), "my-first", metadata={"of": "message"})
        await reporter.context.queue.enqueue(
            TaskStatusUpdateEvent(*ids, TaskStatus(TaskState.WORKING, half), metadata={"step": 1})
        )
        await reporter.context.queue.enqueue(
            TaskArtifactUpdateEvent(*ids, Artifact("a", (TextPart("x"),)), last_chunk=True, metadata={"step": 2})
        )
        end = Message(Role.AGENT, (TextPart("the end"),), "my-last", metadata={"tokens": 7})
        await reporter.context.queue.enqueue(
            TaskStatusUpdateEvent(*ids, TaskStatus(state, end), state.terminal, metadata={"step": 3})
        )

    events = await events_of(doing(work))
    shown = [(event.metadata or {}).get("step") for event in events[1:]]
    assert [step for step in shown if step] == [1, 2, 3]
    first, last = (
        event.status.message for event in events[1:] if hasattr(event, "status") and event.status.message is not None
    )
    assert first is not None
    assert last is not None
    assert (first.message_id, first.parts) == ("my-first", (Part(text="half way"), Part(data={"n": 1})))
    assert (first.metadata or {})["of"] == "message"
    assert (last.message_id, last.metadata, last.text) == ("my-last", {"tokens": 7}, "the end")
    assert events[-1].status.state is state.to_model()


@pytest.mark.parametrize(
    ("state", "text", "shown"),
    [
        (TaskState.FAILED, "no luck", "no luck"),
        (TaskState.FAILED, None, "execution failed"),
        (TaskState.REJECTED, "not today", "not today"),
        (TaskState.REJECTED, None, "rejected"),
    ],
)
async def test_a_failed_or_rejected_task_says_why(doing: Any, state: TaskState, text: str | None, shown: str) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(state, text)

    task = await answer_of(doing(work))
    assert (task.state, task.error) == (state.to_model(), shown)


async def test_a_whole_task_counts_with_its_artifacts_and_its_status(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        context = reporter.context
        begun = Task(context.task_id, context.context_id, TaskStatus(TaskState.SUBMITTED))
        await context.queue.enqueue(begun)
        result = Artifact("a", (TextPart("x"),))
        ended = Task(context.task_id, context.context_id, TaskStatus(TaskState.COMPLETED), (result,))
        await context.queue.enqueue(ended)

    task = await answer_of(doing(work))
    assert task.state is State.COMPLETED
    assert task.text == "x"


async def test_ids_an_executor_makes_up_do_not_reach_the_task(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        artifact = Artifact("a", (TextPart("x"),))
        await reporter.context.queue.enqueue(TaskArtifactUpdateEvent("other", "context", artifact))
        status = TaskStatus(TaskState.COMPLETED)
        await reporter.context.queue.enqueue(TaskStatusUpdateEvent("other", "context", status, final=True))

    events = await events_of(doing(work))
    assert {event.task_id for event in events[1:]} == {events[0].id}


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
async def test_a_question_parks_the_task_and_the_answer_runs_the_executor_again(doing: Any, state: TaskState) -> None:
    async def work(reporter: Any) -> None:
        if reporter.context.task is None:
            await reporter.status(state, "which?")

    executor = doing(work)
    async with Client(Agent("x", run=run_of(executor))) as client:
        asked = await client.send("first")
        assert isinstance(asked, ModelTask)
        assert (asked.state, asked.question) == (state.to_model(), "which?")
        answered = await client.send("second", task=asked)
    assert answered.state is State.COMPLETED
    [_, (context, task_id)] = executor.executed
    assert task_id == asked.id
    assert context.message.text == "second"
    assert [message.text for message in context.task.history] == ["first", "which?", "second"]


async def test_a_question_without_words_still_asks_and_shows_its_data(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        message = Message(Role.AGENT, (DataPart({"form": 1}),))
        status = TaskStatus(TaskState.INPUT_REQUIRED, message)
        await reporter.context.queue.enqueue(TaskStatusUpdateEvent("t", "c", status))

    task = await answer_of(doing(work))
    assert task.status.message is not None
    assert task.status.message.parts == (Part(text="input required"), Part(data={"form": 1}))


# -- how an executor ends ------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-102")
async def test_an_executor_that_crashes_fails_its_task_and_nothing_else(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        if reporter.context.message.text == "boom":
            raise RuntimeError("secret")
        await reporter.status(TaskState.COMPLETED, "well")

    async with Client(Agent("x", run=run_of(doing(work)))) as client:
        crashed = await client.send("boom")
        fine = await client.send("hi")
    assert crashed.state is State.FAILED
    assert (crashed.error or "").startswith("execution failed: ")
    assert "secret" not in (crashed.error or "")
    assert fine.text == "well"


async def test_an_executor_may_return_its_failure(doing: Any) -> None:
    async def work(reporter: Any) -> Any:
        return ("error", "no luck")

    task = await answer_of(doing(work))
    assert (task.state, task.error) == (State.FAILED, "execution failed: no luck")


@pytest.mark.parametrize("value", ["ok", ("ok", None), ("ok",)])
async def test_other_return_values_of_an_executor_are_no_failure(doing: Any, value: Any) -> None:
    async def work(reporter: Any) -> Any:
        return value

    assert (await answer_of(doing(work))).state is State.COMPLETED


async def test_artifacts_from_before_a_crash_are_kept(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.artifact("a", "x")
        raise RuntimeError

    task = await answer_of(doing(work))
    assert (task.state, task.artifacts[0].text) == (State.FAILED, "x")


async def test_the_first_final_status_of_an_executor_stands(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.COMPLETED, "well")
        await reporter.status(TaskState.FAILED, "late")
        raise RuntimeError("later")

    task = await answer_of(doing(work))
    assert (task.state, task.text) == (State.COMPLETED, "well")


async def test_an_executor_may_clean_up_after_its_final_status(doing: Any) -> None:
    tidied: list[bool] = []

    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.COMPLETED)
        for _ in range(10):
            await asyncio.sleep(0)
        tidied.append(True)

    await answer_of(doing(work))
    assert tidied == [True]


@pytest.mark.parametrize("goes_on", [False, True])
async def test_something_that_is_no_event_fails_the_task(doing: Any, goes_on: bool) -> None:
    async def work(reporter: Any) -> None:
        with suppress(InvalidAgentResponse) if goes_on else nullcontext():
            await reporter.context.queue.enqueue("not an event")
        await reporter.status(TaskState.COMPLETED)

    with pytest.raises(InvalidAgentResponse, match="a str, which is no event"):
        await answer_of(doing(work))


async def test_an_executor_that_cancels_itself_fails_its_task(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        raise asyncio.CancelledError

    assert (await answer_of(doing(work))).state is State.FAILED


async def test_a_canceled_status_without_a_cancel_fails_the_task(doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.CANCELED)

    task = await answer_of(doing(work))
    assert (task.state, task.error) == (State.FAILED, "canceled by the agent")


@pytest.mark.requirement("S2-103")
@pytest.mark.parametrize("end", ["return", "crash", "ask"])
async def test_the_queue_is_closed_however_the_executor_ends(doing: Any, end: str) -> None:
    queues = EventQueues()
    seen: list[Any] = []

    async def work(reporter: Any) -> None:
        seen.append((reporter.context.queue, queues.lookup(reporter.context.task_id)))
        if end == "crash":
            raise RuntimeError
        if end == "ask":
            await reporter.status(TaskState.INPUT_REQUIRED, "which?")

    async with connected(doing(work), queues=queues) as connection:
        await connection.perform(Operation.SEND, request())
        [(queue, found)] = seen
        assert found == ("ok", queue)
        await queue.done()
    assert len(queues) == 0


@pytest.mark.requirement("S2-103")
@pytest.mark.parametrize("end", ["return", "crash", "ask"])
async def test_nothing_can_be_enqueued_once_the_executor_has_returned(doing: Any, end: str) -> None:
    outcomes: list[Any] = []
    background: set[asyncio.Task[None]] = set()

    async def work(reporter: Any) -> None:
        returned = asyncio.Event()

        async def go_on_behind_its_back() -> None:
            await returned.wait()
            artifact = Artifact("late", (TextPart("late"),))
            update = TaskArtifactUpdateEvent(reporter.context.task_id, reporter.context.context_id, artifact)
            outcomes.append(await reporter.context.queue.enqueue(update))

        background.add(asyncio.create_task(go_on_behind_its_back()))
        if end == "ask":
            await reporter.status(TaskState.INPUT_REQUIRED, "which?")
        await asyncio.sleep(0)
        returned.set()  # wakes it at the next step of the loop, when this has returned
        if end == "crash":
            raise RuntimeError

    task = await answer_of(doing(work))
    await asyncio.wait(background)
    assert outcomes == [("error", "not_found")]
    assert task.artifacts == ()


@pytest.mark.requirement("S2-21", "S2-41", "S2-43")
async def test_canceling_a_task_calls_cancel_and_then_stops_the_work(doing: Any) -> None:
    order: list[str] = []
    begun = asyncio.Event()

    async def work(reporter: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("stopped")

    async def cancel(reporter: Any) -> None:
        order.append("canceled")
        await reporter.status(TaskState.CANCELED)

    executor = doing(work, cancel)
    queues = EventQueues()
    async with connected(executor, queues=queues) as connection:
        task = await connection.perform(Operation.SEND, request(return_immediately=True))
        assert isinstance(task, ModelTask)
        await begun.wait()
        queue = queues.get_or_create(task.id)
        answer = await connection.service.cancel(CallContext(), CancelTaskRequest(task.id))
        assert answer.result.state is State.CANCELED
        await queue.done()
    assert order == ["canceled", "stopped"]
    [(context, task_id)] = executor.canceled
    assert task_id == context.task_id == task.id


@pytest.mark.parametrize("how", ["raises", "refuses"])
async def test_a_cancel_that_fails_does_not_keep_the_task(doing: Any, how: str, caplog: Any) -> None:
    begun = asyncio.Event()

    async def work(reporter: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def cancel(reporter: Any) -> Any:
        if how == "raises":
            raise RuntimeError
        return ("error", "busy")

    queues = EventQueues()
    async with connected(doing(work, cancel), queues=queues) as connection:
        task = await connection.perform(Operation.SEND, request(return_immediately=True))
        assert isinstance(task, ModelTask)
        await begun.wait()
        queue = queues.get_or_create(task.id)
        answer = await connection.service.cancel(CallContext(), CancelTaskRequest(task.id))
        await queue.done()
    assert answer.result.state is State.CANCELED
    assert "cancel failed" in caplog.text


async def test_a_server_that_stops_does_not_call_cancel(doing: Any) -> None:
    begun = asyncio.Event()

    async def work(reporter: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    executor = doing(work)
    async with connected(executor) as connection:
        await connection.perform(Operation.SEND, request(return_immediately=True))
        await begun.wait()
    assert executor.canceled == []
