"""The request handler, without HTTP."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from dragoman.compat.executor import (
    AgentCard,
    AgentSkill,
    Message,
    PushSender,
    RequestHandler,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStore,
    TextPart,
)
from dragoman.compat.executor.jsonrpc import METHODS
from dragoman.model.error import ConfigError
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE: dict[str, Any] = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
CARD = AgentCard("n", "d", "https://x.example", "1")
HOOK = {"id": "p", "url": "https://x.example"}
# The ten methods of the document, in its words, and a form of each result that nothing else has.
RESULTS: dict[str, Any] = {
    "message/send": ("task", "completed"),
    "message/stream": ("status-update", "completed"),
    "tasks/get": ("task", "working"),
    "tasks/resubscribe": ("status-update", "canceled"),
    "tasks/cancel": ("task", "canceled"),
    "tasks/pushNotificationConfig/set": HOOK,
    "tasks/pushNotificationConfig/get": HOOK,
    "tasks/pushNotificationConfig/list": [HOOK],
    "tasks/pushNotificationConfig/delete": None,
    "agent/getAuthenticatedExtendedCard": CARD.to_map(),
}


def summary(result: Any) -> Any:
    """What a result is: kind and state of what happens to a task, the webhook of a config, else the result itself."""
    if isinstance(result, list):
        return [summary(each) for each in result]
    if isinstance(result, dict) and "status" in result:
        return result["kind"], result["status"]["state"]
    return result["pushNotificationConfig"] if isinstance(result, dict) and "taskId" in result else result


def code(answer: dict[str, Any]) -> int:
    return answer["error"]["code"]


@pytest.mark.requirement("S2-20", "S2-97")
async def test_a_message_is_executed_and_its_task_is_the_answer(calling: Any, echo: Any) -> None:
    task = await calling(echo).send("hello")
    assert task["kind"] == "task"
    assert task["status"]["state"] == "completed"
    assert task["status"]["message"]["kind"] == "message"
    assert task["status"]["message"]["parts"] == [{"kind": "text", "text": "hello"}]
    assert task["history"][0]["messageId"] == "m"
    assert "artifacts" not in task
    assert "metadata" not in task


@pytest.mark.requirement("S2-20")
async def test_the_tasks_of_a_handler_are_in_its_store(calling: Any, doing: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.artifact("a", "x", last_chunk=True)
        await reporter.status(TaskState.COMPLETED)

    store = TaskStore()
    answer = await calling(doing(work), task_store=store).send("hi")
    status, task = await store.get(answer["id"])
    assert status == "ok"
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert task.artifacts[0].parts == (TextPart("x"),)
    assert task.to_map() == answer


@pytest.mark.requirement("S2-24")
async def test_each_of_the_ten_methods_does_its_work(calling: Any, doing: Any) -> None:
    begun = asyncio.Event()

    async def work(reporter: Any) -> None:
        if reporter.context.message.text == "wait":
            begun.set()
            await asyncio.Event().wait()

    caller = calling(doing(work), extended_card=CARD, push_sender=PushSender())
    task = (await caller.send("wait", blocking=False))["id"]
    await begun.wait()
    hook = {"id": task, "pushNotificationConfigId": "p"}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("message/send", {"message": MESSAGE}),
        ("message/stream", {"message": MESSAGE | {"messageId": "m2"}}),
        ("tasks/get", {"id": task}),
        ("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": HOOK}),
        ("tasks/pushNotificationConfig/get", hook),
        ("tasks/pushNotificationConfig/list", {"id": task}),
        ("tasks/pushNotificationConfig/delete", hook),
        ("agent/getAuthenticatedExtendedCard", {}),
    ]
    done: dict[str, Any] = {}
    async with aclosing(caller.follow("tasks/resubscribe", id=task)) as followed:
        assert summary((await anext(followed))["result"]) == ("task", "working")
        for method, params in [*requests, ("tasks/cancel", {"id": task})]:
            answers = [answer async for answer in caller.follow(method, **params)]
            done[method] = summary(answers[-1].get("result", answers[-1]))
        done["tasks/resubscribe"] = summary([answer async for answer in followed][-1]["result"])
    assert done == RESULTS
    assert code(await caller.ask("tasks/pushNotificationConfig/get", **hook)) == -32001
    assert set(METHODS) == set(RESULTS)


@pytest.mark.requirement("S2-24")
async def test_a_running_task_can_be_followed_by_a_second_listener(calling: Any, doing: Any) -> None:
    go = asyncio.Event()

    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.WORKING, "begun")
        await go.wait()
        await reporter.artifact("a", "x")

    caller = calling(doing(work))
    task = await caller.send("hi", blocking=False)
    request = {"jsonrpc": "2.0", "id": 9, "method": "tasks/resubscribe", "params": {"id": task["id"]}}
    kinds: list[str] = []
    async for answer in caller.handler.handle_stream(request):
        kinds.append(answer["result"]["kind"])
        go.set()
    assert kinds[0] == "task"
    assert kinds[-2:] == ["artifact-update", "status-update"]


@pytest.mark.parametrize("method", [method for method in METHODS if "push" in method])
async def test_without_a_sender_webhooks_are_not_supported(calling: Any, echo: Any, method: str) -> None:
    params = {"id": "t", "taskId": "t", "pushNotificationConfigId": "p", "pushNotificationConfig": HOOK}
    assert code(await calling(echo).ask(method, **params)) == -32003


async def test_a_streaming_method_is_not_answered_at_once(calling: Any, echo: Any) -> None:
    answer = await calling(echo).ask("message/stream", message=MESSAGE)
    assert code(answer) == -32004
    assert "handle_stream" in answer["error"]["message"]


async def test_a_method_that_does_not_stream_is_answered_once_in_a_stream(calling: Any, echo: Any) -> None:
    caller = calling(echo)
    task = await caller.send("hi")
    request = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task["id"]}}
    answers = [answer async for answer in caller.handler.handle_stream(request)]
    assert [answer["result"] for answer in answers] == [task]


async def test_a_stream_that_cannot_begin_is_one_error(calling: Any, echo: Any) -> None:
    handler = calling(echo).handler
    request = {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": "nobody"}}
    assert [code(answer) async for answer in handler.handle_stream(request)] == [-32001]
    assert [code(answer) async for answer in handler.handle_stream({"id": 1})] == [-32600]


# -- tasks ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-103")
async def test_the_stream_of_an_executor_that_crashes_ends(calling: Any, doing: Any) -> None:
    async def work(reporter: Any) -> None:
        raise RuntimeError

    caller = calling(doing(work))
    answers = [answer async for answer in caller.stream("hi")]
    assert answers[-1]["result"]["status"]["state"] == "failed"
    assert answers[-1]["result"]["final"] is True
    assert len(caller.handler.queues) == 0


@pytest.mark.requirement("S2-88")
async def test_an_executor_that_continues_finds_the_task_with_its_artifacts(calling: Any, doing: Any) -> None:
    async def work(reporter: Any) -> None:
        if reporter.context.task is None:
            await reporter.artifact("a", "x")
            await reporter.status(TaskState.INPUT_REQUIRED, "which?")

    executor = doing(work)
    caller = calling(executor)
    task = await caller.send("first")
    await caller.send("second", taskId=task["id"])
    [_, (context, _)] = executor.executed
    assert context.task.id == task["id"]
    assert context.task.artifacts[0].parts == (TextPart("x"),)
    assert [message.text for message in context.task.history] == ["first", "which?", "second"]


# -- what a handler is made of -------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-100")
async def test_an_unknown_method_and_an_empty_one_have_different_codes(calling: Any, echo: Any) -> None:
    caller = calling(echo)
    assert code(await caller.ask("tasks/send", message=MESSAGE)) == -32601
    assert code(await caller.ask("nonsense")) == -32601
    assert code(await caller.ask("")) == -32600


async def test_an_error_answers_with_the_requests_id(calling: Any, echo: Any) -> None:
    handler = calling(echo).handler
    assert (await handler.handle({"jsonrpc": "1.0", "id": "x", "method": "tasks/get"}))["id"] == "x"
    assert (await handler.handle({"jsonrpc": "2.0", "id": [], "method": "tasks/get"}))["id"] is None


@pytest.mark.requirement("S2-101")
async def test_two_handlers_with_two_stores_know_nothing_of_each_other(calling: Any, doing: Any, echo: Any) -> None:
    async def work(reporter: Any) -> None:
        await reporter.status(TaskState.COMPLETED, "second")

    first_store, second_store = TaskStore(), TaskStore()
    first, second = calling(echo, task_store=first_store), calling(doing(work), task_store=second_store)
    mine, theirs = await first.send("first"), await second.send("hi")
    assert mine["status"]["message"]["parts"][0]["text"] == "first"
    assert theirs["status"]["message"]["parts"][0]["text"] == "second"
    assert code(await second.ask("tasks/get", id=mine["id"])) == -32001
    assert (await first_store.get(mine["id"]))[0] == "ok"
    assert await second_store.get(mine["id"]) == ("error", "not_found")


@pytest.mark.requirement("S2-40")
async def test_a_task_saved_into_the_store_is_read_and_canceled_by_the_handler(calling: Any, echo: Any) -> None:
    store = TaskStore()
    caller = calling(echo, task_store=store)
    await caller.handler.start()
    saved = Task.new_submitted(Message(Role.USER, (TextPart("hi"),), "m"))
    working = replace(saved, status=TaskStatus(TaskState.WORKING))
    await store.save(working)
    assert (await caller.ask("tasks/get", id=saved.id))["result"] == working.to_map()
    assert (await caller.ask("tasks/cancel", id=saved.id))["result"]["status"]["state"] == "canceled"
    status, task = await store.get(saved.id)
    assert status == "ok"
    assert isinstance(task, Task)
    assert task.status.state is TaskState.CANCELED


async def test_saving_a_task_wakes_its_followers(calling: Any, echo: Any) -> None:
    store = TaskStore()
    caller = calling(echo, task_store=store)
    await caller.handler.start()
    working = Task("t", "c", TaskStatus(TaskState.WORKING))
    await store.save(working)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": "t"}}
    states: list[str] = []
    async with aclosing(caller.handler.handle_stream(request)) as answers:
        async for answer in answers:
            states.append(answer["result"]["status"]["state"])
            if len(states) == 1:
                await store.save(replace(working, status=TaskStatus(TaskState.COMPLETED)))
    assert states == ["working", "completed"]


async def test_a_task_at_work_belongs_to_its_run(calling: Any, doing: Any) -> None:
    outcomes: list[Any] = []
    store = TaskStore()

    async def work(reporter: Any) -> None:
        await reporter.artifact("a", "x")
        stolen = Task(reporter.context.task_id, reporter.context.context_id, TaskStatus(TaskState.FAILED))
        outcomes.append(await store.save(stolen))
        outcomes.append(await store.delete(reporter.context.task_id))

    task = await calling(doing(work), task_store=store).send("hi")
    assert outcomes == [("error", "task is running")] * 2
    assert task["status"]["state"] == "completed"


async def test_a_custom_store_holds_the_tasks_of_the_handler(calling: Any, echo: Any) -> None:
    class Counting(MemoryStore):
        writes = 0

        def queue(self, write: Any) -> None:
            self.writes += 1
            super().queue(write)

    own = Counting()
    task = await calling(echo, task_store=TaskStore(own)).send("hi")
    assert own.writes == 2  # the task with that it is at work, and its answer with its end
    assert await own.task(task["id"]) is not None


async def test_an_invalid_executor_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        RequestHandler(object())  # type: ignore[arg-type]


@pytest.mark.requirement("S2-19")
async def test_the_extended_card_is_answered_as_it_was_given(calling: Any, echo: Any) -> None:
    card = AgentCard("n", "d", "https://x.example", "1", skills=(AgentSkill("s", "S", "secret", ()),))
    answer = await calling(echo, extended_card=card).ask("agent/getAuthenticatedExtendedCard")
    assert answer["result"] == card.to_map()


async def test_an_extended_card_that_is_missing_is_not_configured(calling: Any, echo: Any) -> None:
    answer = await calling(echo).ask("agent/getAuthenticatedExtendedCard")
    assert (code(answer), answer["error"]["message"]) == (-32007, "extended card not configured")


async def test_a_store_that_cannot_be_opened_is_an_error_and_no_exception(echo: Any, tmp_path: Path) -> None:
    (tmp_path / "tasks.db").write_bytes(b"this is no database, and long enough not to be taken for an empty one")
    handler = RequestHandler(echo, task_store=TaskStore(SqliteStore(tmp_path / "tasks.db")))
    request = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}}
    assert code(await handler.handle(request)) == -32603
