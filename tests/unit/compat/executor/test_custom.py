"""Task stores, push config stores and push senders of the user's own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import Agent, Client, User
from dragoman.compat.executor import (
    Message,
    PushAuthInfo,
    PushConfig,
    PushSender,
    RequestHandler,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStore,
    TextPart,
)
from dragoman.compat.executor.custom.tasks import WriteThroughStore
from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.store import DedupeKey
from dragoman.model.error import ConfigError, ServerError
from dragoman.model.json import encode
from dragoman.model.message import Message as ModelMessage
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role as ModelRole
from dragoman.model.state import State
from dragoman.model.task import Task as ModelTask
from dragoman.model.task import TaskStatus as ModelStatus
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock
from dragoman.testing.store_writes import NOW, row_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URL = "https://hooks.example.com/a2a"
MESSAGE: dict[str, Any] = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
HOOK = {"url": URL, "id": "p", "token": "T0K3N", "authentication": {"schemes": ["Bearer"], "credentials": "S3CR3T"}}
CONFIG = PushConfig(URL, "p", "T0K3N", PushAuthInfo(("Bearer",), "S3CR3T"))


class OwnTasks:
    """A task store as a reader writes it: plain methods, a dict, no base class."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.calls: list[tuple[str, str]] = []
        self.trouble: Callable[[Task], Any] = lambda _: None

    def get(self, task_id: str) -> Any:
        self.calls.append(("get", task_id))
        task = self.tasks.get(task_id)
        return ("error", "not_found") if task is None else ("ok", task)

    def save(self, task: Task) -> Any:
        self.calls.append(("save", task.status.state.value))
        trouble = self.trouble(task)
        if trouble is None:
            self.tasks[task.id] = task
            return ("ok", task)
        return trouble

    def delete(self, task_id: str) -> Any:
        self.calls.append(("delete", task_id))
        self.tasks.pop(task_id, None)
        return "ok"

    @property
    def saved(self) -> list[str]:
        return [what for method, what in self.calls if method == "save"]


class AsyncTasks(OwnTasks):
    """The same with coroutines, None for nothing, and JSON values in place of objects."""

    async def get(self, task_id: str) -> Any:
        outcome = super().get(task_id)
        await asyncio.sleep(0)
        return outcome[1].to_map() if outcome[0] == "ok" else None

    async def save(self, task: Task) -> Any:
        outcome = super().save(task)
        await asyncio.sleep(0)
        return outcome if outcome[0] == "error" else None

    async def delete(self, task_id: str) -> Any:
        super().delete(task_id)


class OwnConfigs:
    """A push config store of the user's own."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, PushConfig]] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.misses: asyncio.Queue[str] = asyncio.Queue()
        self.trouble: Callable[[], Any] = lambda: None

    def set(self, task_id: str, config: PushConfig) -> Any:
        self.calls.append(("set", task_id, config))
        trouble = self.trouble()
        if trouble is None:
            self.configs.setdefault(task_id, {})[config.id or ""] = config
        return trouble

    def get(self, task_id: str, config_id: str | None = None) -> Any:
        self.calls.append(("get", task_id, config_id))
        found = [each for each in self.configs.get(task_id, {}).values() if config_id in (None, each.id)]
        if not found:
            self.misses.put_nowait(task_id)
        return self.trouble() or (("ok", found[0]) if found else ("error", "not_found"))

    async def list(self, task_id: str) -> Any:
        self.calls.append(("list", task_id))
        return self.trouble() or tuple(self.configs.get(task_id, {}).values())

    async def delete(self, task_id: str, config_id: str) -> Any:
        self.calls.append(("delete", task_id, config_id))
        self.configs.get(task_id, {}).pop(config_id, None)
        return self.trouble()


class OwnSender:
    """A push sender of the user's own, which writes down what it sends."""

    def __init__(self) -> None:
        self.sent_tasks: list[tuple[Task, PushConfig]] = []
        self.news = asyncio.Condition()
        self.trouble: Callable[[], Any] = lambda: None

    async def send(self, task: Task, config: PushConfig) -> Any:
        async with self.news:
            self.sent_tasks.append((task, config))
            self.news.notify_all()
        return self.trouble()

    @property
    def states(self) -> list[str]:
        return [task.status.state.value for task, _ in self.sent_tasks]

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(condition), 10)


async def work(reporter: Any) -> None:
    await reporter.artifact("a", "x", last_chunk=True)
    await reporter.status(TaskState.COMPLETED)


async def ask_first(reporter: Any) -> None:
    if reporter.context.task is None:
        await reporter.status(TaskState.INPUT_REQUIRED, "which?")
    else:
        await reporter.status(
            TaskState.COMPLETED, f"{reporter.context.task.history[1].text} {reporter.context.message.text}"
        )


def code(answer: dict[str, Any]) -> int:
    return answer["error"]["code"]


# -- the task store --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-94", "S2-22", "S2-44")
@pytest.mark.parametrize("make", [OwnTasks, AsyncTasks])
async def test_every_change_of_a_task_is_saved_in_order(calling: Any, doing: Any, make: type[OwnTasks]) -> None:
    own = make()
    task = await calling(doing(work), task_store=own).send("hi")
    assert own.saved == ["submitted", "working", "working", "completed"]
    assert own.tasks[task["id"]].to_map() == task
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "x"}]


@pytest.mark.requirement("S2-94", "S2-40")
@pytest.mark.parametrize("make", [OwnTasks, AsyncTasks])
async def test_a_task_is_read_from_the_users_store(calling: Any, echo: Any, make: type[OwnTasks]) -> None:
    own = make()
    caller = calling(echo, task_store=own)
    own.tasks["t"] = Task(
        "t", "c", TaskStatus(TaskState.WORKING), history=(Message(Role.USER, (TextPart("hi"),), "m"),)
    )
    assert (await caller.ask("tasks/get", id="t"))["result"] == own.tasks["t"].to_map()
    own.tasks["t"] = Task("t", "c", TaskStatus(TaskState.COMPLETED))
    assert (await caller.ask("tasks/get", id="t"))["result"] == own.tasks["t"].to_map() | {"history": []}
    del own.tasks["t"]
    assert code(await caller.ask("tasks/get", id="t")) == -32001
    assert {method for method, _ in own.calls} == {"get"}


@pytest.mark.requirement("S2-94")
@pytest.mark.parametrize("make", [OwnTasks, AsyncTasks])
async def test_another_handler_continues_the_tasks_of_the_store(calling: Any, doing: Any, make: type[OwnTasks]) -> None:
    own = make()
    first = await calling(doing(ask_first), task_store=own).send("first")
    assert first["status"]["state"] == "input-required"
    second = await calling(doing(ask_first), task_store=own).send("second", taskId=first["id"])
    assert second["status"]["message"]["parts"][0]["text"] == "which? second"
    assert [each["parts"][0]["text"] for each in second["history"]] == ["first", "which?", "second"]
    assert own.saved[-2:] == ["working", "completed"]
    assert own.tasks[first["id"]].to_map() == second


@pytest.mark.requirement("S2-94")
async def test_tasks_may_be_in_a_custom_database(calling: Any, doing: Any, tmp_path: Path) -> None:
    class Database:
        def __init__(self) -> None:
            self.connection = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
            self.connection.execute("CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, task TEXT)")

        def get(self, task_id: str) -> Any:
            row = self.connection.execute("SELECT task FROM tasks WHERE id = ?", (task_id,)).fetchone()
            return None if row is None else json.loads(row[0])

        def save(self, task: Task) -> None:
            self.connection.execute("REPLACE INTO tasks VALUES (?, ?)", (task.id, json.dumps(task.to_map())))

        def delete(self, task_id: str) -> None:
            self.connection.execute("DELETE FROM tasks WHERE id = ?", (task_id,))

    first, second = Database(), Database()
    task = await calling(doing(ask_first), task_store=first).send("first")
    first.connection.close()
    caller = calling(doing(ask_first), task_store=second)
    assert (await caller.ask("tasks/get", id=task["id"]))["result"] == task
    ended = await caller.send("second", taskId=task["id"])
    assert ended["status"]["state"] == "completed"
    assert second.get(task["id"]) == ended
    second.delete(task["id"])
    caller = calling(doing(ask_first), task_store=second)  # without what the other one has in memory
    assert code(await caller.ask("tasks/get", id=task["id"])) == -32001
    second.connection.close()


@pytest.mark.requirement("S2-94")
async def test_a_canceled_task_is_saved_too(calling: Any, doing: Any) -> None:
    own = OwnTasks()
    caller = calling(doing(ask_first), task_store=own)
    task = await caller.send("first")
    assert (await caller.ask("tasks/cancel", id=task["id"]))["result"]["status"]["state"] == "canceled"
    assert own.saved[-1] == "canceled"
    assert code(await caller.ask("tasks/cancel", id=task["id"])) == -32002


async def test_a_task_is_saved_before_its_executor_is_called(calling: Any, doing: Any) -> None:
    own = OwnTasks()
    found: list[list[str]] = []

    async def look(reporter: Any) -> None:
        found.append(own.saved.copy())

    await calling(doing(look), task_store=own).send("hi")
    assert found == [["submitted", "working"]]


async def test_a_message_to_a_working_task_is_saved_in_its_history(calling: Any, doing: Any) -> None:
    own, go = OwnTasks(), asyncio.Event()

    async def wait(reporter: Any) -> None:
        await reporter.status(TaskState.WORKING, "begun")
        await go.wait()

    caller = calling(doing(wait), task_store=own)
    task = await caller.send("first", blocking=False)
    await caller.send("second", blocking=False, taskId=task["id"])
    assert [each.text for each in own.tasks[task["id"]].history if each.role is Role.USER] == ["first", "second"]
    go.set()


@pytest.mark.requirement("S2-94")
async def test_a_save_that_fails_is_an_error_and_nothing_is_executed(
    calling: Any, echo: Any, caplog: pytest.LogCaptureFixture
) -> None:
    own = OwnTasks()
    caller = calling(echo, task_store=own)

    def explode(task: Task) -> Any:
        raise OSError("/secret/path is full")

    own.trouble = explode
    answer = await caller.ask("message/send", message=MESSAGE)
    assert code(answer) == -32000
    assert answer["error"]["message"] == "the task store failed to save: the log says why"
    assert "secret" not in json.dumps(answer)
    assert "/secret/path is full" in caplog.text
    own.trouble = lambda _: ("error", "quota exceeded")
    answer = await caller.ask("message/send", message=MESSAGE)
    assert (code(answer), answer["error"]["message"]) == (-32000, "the task store failed to save: quota exceeded")
    assert echo.executed == []
    own.trouble = lambda _: None
    assert (await caller.send("hi"))["status"]["state"] == "completed"


async def test_a_save_that_cancels_itself_has_failed(calling: Any, echo: Any) -> None:
    own = OwnTasks()

    def cancel(task: Task) -> Any:
        raise asyncio.CancelledError

    own.trouble = cancel
    async with asyncio.timeout(10):
        answer = await calling(echo, task_store=own).ask("message/send", message=MESSAGE)
    assert answer["error"]["message"] == "the task store failed to save: it was cancelled"


@pytest.mark.requirement("S2-94")
async def test_a_save_that_fails_during_the_work_fails_the_task(calling: Any, doing: Any) -> None:
    own, clock = OwnTasks(), Clock()
    own.trouble = lambda task: ("error", "quota exceeded") if task.artifacts else None
    caller = calling(doing(work), task_store=own, clock=clock)
    answer = await caller.ask("message/send", message=MESSAGE)
    assert answer["error"]["message"] == "the task store failed to save: quota exceeded"
    [task_id] = own.tasks
    assert own.tasks[task_id].status.state is TaskState.WORKING
    own.trouble = lambda _: None
    await clock.advance(1)
    task = (await caller.ask("tasks/get", id=task_id))["result"]
    assert task["status"]["state"] == "failed"
    assert task["status"]["message"]["parts"][0]["text"] == "the store could not take writes"
    assert own.tasks[task_id].to_map() == task


@pytest.mark.requirement("S2-94")
async def test_a_get_that_fails_is_an_error_that_says_so(calling: Any, echo: Any) -> None:
    class Failing(OwnTasks):
        def get(self, task_id: str) -> Any:
            if task_id == "r":
                raise OSError("secret")
            return {
                "b": ("error", "no connection"),
                "x": 7,
                "j": {"id": "j"},
                "w": Task("v", "c", TaskStatus(TaskState.WORKING)),
            }[task_id]

    caller = calling(echo, task_store=Failing())
    texts = {
        "r": "the task store failed to get: the log says why",
        "b": "the task store failed to get: no connection",
        "x": "the task store failed to get: it returned int, which is no task",
        "j": "the task store failed to get: it returned a task that cannot be read: "
        "contextId is required and must not be empty",
        "w": "the task store failed to get: it returned another task",
    }
    for task_id, text in texts.items():
        answer = await caller.ask("tasks/get", id=task_id)
        assert (code(answer), answer["error"]["message"]) == (-32000, text)


async def test_an_object_that_is_no_store_is_refused_at_once(echo: Any) -> None:
    class Half:
        def get(self, task_id: str) -> Any: ...
        def save(self, task: Task, context: Any) -> Any: ...

    with pytest.raises(ConfigError, match=r"task_store: an object of type Half has no method `save\(task\)`"):
        RequestHandler(echo, task_store=Half())  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"push_sender: an object of type object has no method `send\(task, config\)`"
    ):
        RequestHandler(echo, push_sender=object())  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"push_config_store: an object of type object has no method `set\(task_id, config\)`"
    ):
        RequestHandler(echo, push_sender=PushSender(), push_config_store=object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="push_config_store needs a push_sender"):
        RequestHandler(echo, push_config_store=OwnConfigs())


@pytest.mark.parametrize("make", [OwnTasks, AsyncTasks])
async def test_reading_a_task_that_has_not_changed_writes_nothing(
    calling: Any, doing: Any, make: type[OwnTasks]
) -> None:
    caller = calling(doing(ask_first), task_store=make())
    task = await caller.send("first")
    journal: Any = caller.handler.app()._store
    before = await journal.task(task["id"])
    for _ in range(3):
        assert (await caller.ask("tasks/get", id=task["id"]))["result"] == task
    assert await journal.task(task["id"]) == before


async def test_a_handler_that_is_closed_has_saved_everything(doing: Any) -> None:
    class Slow(OwnTasks):
        async def save(self, task: Task) -> Any:
            for _ in range(20):
                await asyncio.sleep(0)
            return super().save(task)

    own, begun = Slow(), asyncio.Event()

    async def wait(reporter: Any) -> None:
        await reporter.artifact("a", "x", last_chunk=True)
        begun.set()

    handler = RequestHandler(doing(wait), task_store=own)
    params = with_hook() | {"configuration": {"blocking": False}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    await handler.handle(request)
    await begun.wait()
    await handler.close()
    assert own.saved == ["submitted", "working", "working", "completed"]


# -- the push sender and the push config store -----------------------------------------------------------------------


def with_hook() -> dict[str, Any]:
    return {"message": MESSAGE, "configuration": {"blocking": True, "pushNotificationConfig": HOOK}}


@pytest.mark.requirement("S2-55")
@pytest.mark.parametrize("has_own_configs", [False, True])
async def test_a_custom_sender_gets_every_state_of_the_task(calling: Any, doing: Any, has_own_configs: bool) -> None:
    sender, configs = OwnSender(), OwnConfigs() if has_own_configs else None
    caller = calling(doing(work), push_sender=sender, push_config_store=configs)
    task = (await caller.ask("message/send", **with_hook()))["result"]
    await sender.wait(lambda: "completed" in sender.states)
    assert sender.states == ["working", "completed"]
    assert [(sent.id, config) for sent, config in sender.sent_tasks] == [(task["id"], CONFIG)] * 2
    assert sender.sent_tasks[-1][0].to_map() == task


@pytest.mark.requirement("S2-55")
@pytest.mark.parametrize("trouble", ["returns", "raises"])
async def test_a_sender_that_fails_is_called_again(
    calling: Any, doing: Any, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    sender, clock = OwnSender(), Clock()

    def fail() -> Any:
        if trouble == "raises":
            raise OSError("no route")
        return ("error", "no route")

    sender.trouble = fail
    caller = calling(doing(work), push_sender=sender, clock=clock)
    with caplog.at_level("INFO"):
        await caller.ask("message/send", **with_hook())
        await sender.wait(lambda: len(sender.sent_tasks) == 1)
        sender.trouble = lambda: None
        while "completed" not in sender.states:
            await clock.advance(60)
    assert sender.states == ["working", "working", "completed"]
    assert "no route" in caplog.text


@pytest.mark.requirement("S2-55")
async def test_a_push_sender_with_another_send_is_called(calling: Any, echo: Any) -> None:
    sent_tasks: asyncio.Queue[Task] = asyncio.Queue()

    class Recording(PushSender):
        async def send(self, task: Task, config: PushConfig) -> Any:
            await sent_tasks.put(task)
            return "ok"

    caller = calling(echo, push_sender=Recording(allow=["127.0.0.1"]))
    hook = with_hook()
    hook["configuration"]["pushNotificationConfig"] = {"url": "http://127.0.0.1:9/"}
    await caller.ask("message/send", **hook)
    assert (await sent_tasks.get()).status.state is TaskState.WORKING
    assert (await sent_tasks.get()).status.state is TaskState.COMPLETED


@pytest.mark.requirement("S2-56", "S2-94", "S2-42")
async def test_the_methods_for_webhooks_call_a_custom_store(calling: Any, doing: Any) -> None:
    configs = OwnConfigs()
    caller = calling(doing(ask_first), push_sender=OwnSender(), push_config_store=configs)
    task_id = (await caller.send("hi"))["id"]

    async def ask(method: str, **params: Any) -> Any:
        return await caller.ask(f"tasks/pushNotificationConfig/{method}", **params)

    made = await ask("set", taskId=task_id, pushNotificationConfig=HOOK)
    assert made["result"]["taskId"] == task_id
    read = (await ask("get", id=task_id, pushNotificationConfigId="p"))["result"]
    assert read == {
        "taskId": task_id,
        "pushNotificationConfig": {"url": URL, "id": "p", "authentication": {"schemes": ["Bearer"]}},
    }
    assert (await ask("list", id=task_id))["result"] == [read]
    await ask("delete", id=task_id, pushNotificationConfigId="p")
    assert configs.calls == [
        ("set", task_id, CONFIG),
        ("get", task_id, "p"),
        ("list", task_id),
        ("delete", task_id, "p"),
    ]
    assert (await ask("list", id=task_id))["result"] == []
    assert code(await ask("get", id=task_id, pushNotificationConfigId="p")) == -32001


@pytest.mark.requirement("S2-56", "S2-94")
async def test_a_webhook_of_a_message_is_stored_too(calling: Any, doing: Any) -> None:
    configs = OwnConfigs()
    caller = calling(doing(work), push_sender=OwnSender(), push_config_store=configs)
    task = (await caller.ask("message/send", **with_hook()))["result"]
    assert configs.calls[0] == ("set", task["id"], CONFIG)


@pytest.mark.requirement("S2-56")
async def test_nothing_is_sent_to_a_webhook_that_the_store_no_longer_has(calling: Any, doing: Any) -> None:
    configs, sender = OwnConfigs(), OwnSender()
    caller = calling(doing(ask_first), push_sender=sender, push_config_store=configs)
    task = (await caller.ask("message/send", **with_hook()))["result"]
    await sender.wait(lambda: "input-required" in sender.states)
    moved = PushConfig("https://hooks.example.com/new", "p")
    configs.configs[task["id"]] = {"p": moved}
    await caller.send("second", taskId=task["id"])
    await sender.wait(lambda: "completed" in sender.states)
    assert sender.sent_tasks[-1][1] == moved
    other = (await caller.ask("message/send", **with_hook()))["result"]
    await sender.wait(lambda: sender.sent_tasks[-1][0].id == other["id"] and sender.states[-1] == "input-required")
    configs.configs.clear()
    sent = len(sender.sent_tasks)
    await caller.send("second", taskId=other["id"])
    async with asyncio.timeout(10):
        await configs.misses.get()
    assert len(sender.sent_tasks) == sent


@pytest.mark.requirement("S2-56", "S2-94")
@pytest.mark.parametrize("method", ["set", "get", "list", "delete"])
async def test_a_config_store_that_fails_is_an_error_that_says_so(calling: Any, doing: Any, method: str) -> None:
    configs = OwnConfigs()
    caller = calling(doing(ask_first), push_sender=OwnSender(), push_config_store=configs)
    task_id = (await caller.send("hi"))["id"]
    configs.trouble = lambda: ("error", "no connection")
    params = {"taskId": task_id, "pushNotificationConfig": HOOK} if method == "set" else {"id": task_id}
    more = {"pushNotificationConfigId": "p"} if method in ("get", "delete") else {}
    answer = await caller.ask(f"tasks/pushNotificationConfig/{method}", **params, **more)
    assert code(answer) == -32000
    assert answer["error"]["message"] == f"the push config store failed to {method}: no connection"


@pytest.mark.requirement("S2-56")
async def test_a_message_whose_webhook_cannot_be_set_starts_nothing(calling: Any, echo: Any) -> None:
    configs = OwnConfigs()
    configs.trouble = lambda: ("error", "no connection")
    caller = calling(echo, push_sender=OwnSender(), push_config_store=configs)
    answer = await caller.ask("message/send", **with_hook())
    assert answer["error"]["message"] == "the push config store failed to set: no connection"
    assert echo.executed == []


async def call(exchange: Any, app: Any, method: str, caller: str = "", **params: Any) -> Any:
    """The answer of an app to one request of JSON-RPC."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return (await exchange(app, "POST", "/", body, caller).whole()).json()


# -- Agent.from_executor ---------------------------------------------------------------------------------------------


class Pieces:
    """An executor of a2a-sdk's shape, which needs no a2a-sdk."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        artifact = {"artifactId": "a", "parts": [{"text": "x"}]}
        update = {"taskId": context.task_id, "contextId": context.context_id, "artifact": artifact, "lastChunk": True}
        await event_queue.enqueue_event({"artifactUpdate": update})

    async def cancel(self, context: Any, event_queue: Any) -> None: ...


@pytest.mark.requirement("S2-94", "S2-56", "S2-55")
async def test_an_agent_made_of_an_executor_uses_them_too(exchange: Any) -> None:
    tasks, configs, sender = OwnTasks(), OwnConfigs(), OwnSender()
    agent = Agent.from_executor(Pieces(), task_store=tasks, push_config_store=configs, push_sender=sender)
    app = agent.app(store="memory:", drain=0)
    task = (await call(exchange, app, "message/send", **with_hook()))["result"]
    assert tasks.saved == ["submitted", "working", "working", "completed"]
    assert tasks.tasks[task["id"]].to_map() == task
    assert configs.calls[0] == ("set", task["id"], CONFIG)
    await sender.wait(lambda: "completed" in sender.states)
    assert sender.sent_tasks[-1][0].to_map() == task
    await app.stop()


@pytest.mark.requirement("S2-94")
async def test_an_agent_that_is_called_in_process_saves_its_tasks_too() -> None:
    tasks = OwnTasks()
    async with Client(Agent.from_executor(Pieces(), task_store=tasks)) as client:
        await client.send("hi")
        assert tasks.saved == ["submitted", "working", "working", "completed"]
        tasks.trouble = lambda _: ("error", "quota exceeded")
        with pytest.raises(ServerError, match="the task store failed to save: quota exceeded"):
            await client.send("again")
    assert [task.status.state for task in tasks.tasks.values()] == [TaskState.COMPLETED]


@pytest.mark.requirement("S2-94")
async def test_many_tasks_at_once_are_saved_each_in_its_order(exchange: Any, tmp_path: Path) -> None:
    histories: dict[str, list[str]] = {}

    class Watching(AsyncTasks):
        async def save(self, task: Task) -> Any:
            histories.setdefault(task.id, []).append(task.status.state.value)
            return await super().save(task)

    own = Watching()
    app = Agent.from_executor(Pieces(), task_store=own).app(store=f"sqlite:///{tmp_path / 'tasks.db'}", drain=0)

    async def send(number: int) -> Any:
        return (await call(exchange, app, "message/send", message=MESSAGE | {"messageId": f"m{number}"}))["result"]

    tasks = await asyncio.gather(*map(send, range(30)))
    assert histories == {task["id"]: ["submitted", "working", "working", "completed"] for task in tasks}
    assert {task_id: task.to_map() for task_id, task in own.tasks.items()} == {task["id"]: task for task in tasks}
    await app.stop()


@pytest.mark.requirement("S2-94")
async def test_a_task_that_a_crash_interrupted_is_saved_as_failed(exchange: Any, tmp_path: Path) -> None:
    begun = asyncio.Event()

    class Endless(Pieces):
        async def execute(self, context: Any, event_queue: Any) -> None:
            await super().execute(context, event_queue)
            begun.set()
            await asyncio.Event().wait()

    own, path = OwnTasks(), tmp_path / "tasks.db"
    crashed = Agent.from_executor(Endless(), name="a", task_store=own).app(store=f"sqlite:///{path}", drain=0)
    task = (await call(exchange, crashed, "message/send", message=MESSAGE, configuration={"blocking": False}))["result"]
    await begun.wait()
    await crashed.stop()
    assert own.tasks[task["id"]].status.state is TaskState.WORKING
    after = Agent.from_executor(Endless(), name="a", task_store=own).app(store=f"sqlite:///{path}", drain=0)
    await after.start()
    assert own.tasks[task["id"]].status.state is TaskState.FAILED
    assert (await call(exchange, after, "tasks/get", id=task["id"]))["result"] == own.tasks[task["id"]].to_map()
    await after.stop()


async def test_a_task_that_another_process_works_on_is_left_to_it(exchange: Any, tmp_path: Path) -> None:
    own = OwnTasks()
    own.tasks["t"] = Task(
        "t", "c", TaskStatus(TaskState.WORKING), history=(Message(Role.USER, (TextPart("hi"),), "m"),)
    )
    for _ in range(2):
        app = Agent.from_executor(Pieces(), task_store=own).app(store=f"sqlite:///{tmp_path / 'tasks.db'}")
        answer = await call(exchange, app, "tasks/get", id="t")
        assert answer["result"]["status"]["state"] == "working"
        await app.stop()
    assert own.saved == []


async def test_a_task_that_only_the_store_has_belongs_to_callers_without_a_name(exchange: Any) -> None:
    tasks = OwnTasks()
    tasks.tasks["t"] = Task("t", "c", TaskStatus(TaskState.COMPLETED))
    app = Agent.from_executor(Pieces(), task_store=tasks).app(store="memory:")
    found = await call(exchange, app, "tasks/get", id="t")
    assert found["result"] == tasks.tasks["t"].to_map() | {"history": []}
    await app.stop()

    async def as_ann(_: Any) -> User:
        return User("ann")

    named = Agent.from_executor(Pieces(), task_store=tasks).app(store="memory:", auth=as_ann)
    assert code(await call(exchange, named, "tasks/get", id="t")) == -32001
    await named.stop()


@pytest.mark.requirement("S2-94")
@pytest.mark.parametrize("make", [OwnTasks, AsyncTasks])
async def test_a_task_stays_its_caller_s_when_only_the_store_has_it(exchange: Any, make: type[OwnTasks]) -> None:
    tasks = make()

    async def named(request: Any) -> User | None:
        name = request.headers.get("authorization", "")
        return User(name) if name else None

    def serve() -> Any:
        return Agent.from_executor(Pieces(), name="a", task_store=tasks).app(store="memory:", auth=named)

    before, after = serve(), serve()
    task = (await call(exchange, before, "message/send", "ann", message=MESSAGE))["result"]
    assert "metadata" not in task
    await before.stop()
    assert code(await call(exchange, after, "tasks/get", "bob", id=task["id"])) == -32001
    assert (await call(exchange, after, "tasks/get", "ann", id=task["id"]))["result"] == task
    await after.stop()


class SavedTasks:
    """What is saved in a store of the user's: how many messages each task has."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    async def save(self, task: ModelTask, scope: Any) -> None:
        self.saved.append(len(task.history))


async def test_a_posted_message_is_saved_by_the_users_store_if_the_journal_takes_it() -> None:
    below, tasks = MemoryStore(), SavedTasks()
    journal: Any = TaskStore(below)
    store: Any = WriteThroughStore(below, journal, tasks, None, None)  # pyright: ignore[reportArgumentType]
    message = encode(ModelMessage("m", ModelRole.USER, (Part(text="hi"),)))
    row = row_of(below, "t", state=State.AUTH_REQUIRED)
    task = ModelTask("t", "context", ModelStatus(State.AUTH_REQUIRED, None, "2026-11-15T10:00:00.000Z"))
    await write(store, row, create=True, records=(Record.of(1, task),))
    key = DedupeKey(b"key", NOW + 1000, NOW)
    assert await store.post(row, message, key) == 1
    assert tasks.saved == [0, 1]
    with pytest.raises(MessageRepeated):
        await store.post(row, message, key)
    assert await store.post(row, message, generation=7) == 0
    assert await store.post(row_of(below, "missing"), message) == 0
    assert tasks.saved == [0, 1]
    assert await store.mail(row.number, 0) == [(1, message)]
    assert await store.duplicate_of(key.digest, NOW) == "t"
    assert await below.duplicate_of(key.digest, NOW) == "t"
    assert store._writes == {}
