"""One turn of a session: from the events of a process manager, which may be anybody's, to the task."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest
from unit.agents.process.fake_manager import Manager, agent_of

from dragoman import Client, Part
from dragoman.agents.process import events
from dragoman.agents.process.events import Callback, Event
from dragoman.agents.process.folders import SessionFolders
from dragoman.agents.process.session import ProgramSession
from dragoman.agents.process.turn import PROGRAM_ENDED
from dragoman.engine.call import CallContext
from dragoman.engine.execute.outputs import parts_of
from dragoman.model.state import State

EXITED = events.exited()


class Stopping(Manager):
    """One that can also be asked to end a program, and to forget a listener."""

    def __init__(self, *output: Event) -> None:
        super().__init__(*output)
        self.stopped: list[tuple[str, str]] = []
        self.left: list[str] = []

    def subscribe(self, session_id: str, callback: Callback) -> Any:
        super().subscribe(session_id, callback)
        return lambda: self.left.append(session_id)

    async def stop_process(self, session_id: str, reason: str) -> None:
        await asyncio.sleep(0)
        self.stopped.append((session_id, reason))


class Talking(Stopping):
    """One whose programs stay open and can be told more; `goes` says that they take any next message."""

    def __init__(self, *output: Event, goes: bool = False) -> None:
        super().__init__(*output)
        self.goes = goes
        self.open: int | None = None
        self.lines: list[str] = []
        self.kept: list[Event] = []
        self.answers: tuple[Event, ...] = (events.exited(),)

    def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
        self.open = 7
        super().start_process(session, prompt, **options)

    def pid(self, session_id: str) -> int | None:
        return self.open

    def goes_on(self, session_id: str) -> bool:
        return self.goes and self.open is not None

    def put_back(self, session_id: str, events: Any) -> None:
        self.kept.extend(events)

    def end_reason(self, session_id: str) -> str:
        return ""

    def say(self, session: ProgramSession, line: str) -> None:
        self.lines.append(line)
        self.say_of(session.id, *self.answers)


async def task_of(*output: Event, folder: Path | None = None, text: str = "go", **options: Any) -> Any:
    """The task that ends with what a program says."""
    folders = None if folder is None else SessionFolders(folder)
    async with Client(agent_of(Manager(*output), folders=folders, **options)) as client:
        return await client.send(text)


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-43")
@pytest.mark.parametrize(
    "content",
    [
        {"message": {"content": "Hi there"}},
        {"message": {"content": [{"type": "text", "text": "Hi there"}]}},
        {"message": {"content": [{"type": "tool_use"}, "x", {"type": "text", "text": "Hi there"}]}},
        {"content": "Hi there"},
    ],
    ids=["text", "blocks", "other blocks", "in the event itself"],
)
async def test_a_message_of_the_agent_is_a_result_by_itself(content: Any) -> None:
    task = await task_of({"type": "assistant", **content}, EXITED)
    assert task.state is State.COMPLETED
    assert [artifact.text for artifact in task.artifacts] == ["Hi there"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": {"content": ""}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use"}, None]}},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "result"},
        events.result(None),
        events.result(""),
        events.thinking(),
        {"type": "tool_status"},
        {"type": "of a later version"},
        {},
    ],
    ids=range(12),
)
async def test_an_event_that_says_nothing_is_passed_over(event: Event) -> None:
    task = await task_of(event, EXITED)
    assert (task.state, task.artifacts) == (State.COMPLETED, ())


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ([events.result("Hello")], ["Hello"]),
        ([events.text("Good "), events.text("day\n"), events.result("Good day")], ["Good day\n"]),
        ([events.text("Looking. "), events.result("Hello")], ["Hello"]),
        ([events.assistant("Hello"), events.result(" Hello ")], ["Hello"]),
        ([events.assistant("Looking."), events.result("Hello")], ["Looking.", "Hello"]),
        ([events.assistant("Looking."), events.assistant("Hello"), events.result("Hello")], ["Looking.", "Hello"]),
    ],
    ids=["alone", "as streamed", "not as streamed", "as said", "not as said", "as said last"],
)
async def test_the_answer_is_reported_once(output: list[Event], texts: list[str]) -> None:
    task = await task_of(*output, EXITED)
    assert [artifact.text for artifact in task.artifacts] == texts


@pytest.mark.parametrize("value", [{"n": [1, None]}, [1, 2], 5, 0, False, 10**30], ids=str)
async def test_an_answer_may_be_any_json_value(value: Any) -> None:
    task = await task_of(events.text("Counting"), events.result(value), EXITED)
    assert [artifact.parts for artifact in task.artifacts] == [parts_of("Counting"), parts_of(value)]


# -- artifacts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"text": "go"}, Part(text="go")),
        ({"text": "# go", "media_type": "text/markdown"}, Part(text="# go", media_type="text/markdown")),
        ({"data": {"n": 1}}, Part(data={"n": 1})),
        ({"data": None}, Part(data=None)),
        (
            {"base64": base64.b64encode(b"\0\xff").decode(), "media_type": "image/png"},
            Part(raw=b"\0\xff", filename="plan", media_type="image/png"),
        ),
        ({"file": "sub/plan.json"}, Part(raw=b"{}", filename="sub/plan.json", media_type="application/json")),
        ({"text": "go", "media_type": 5, "other": 1}, Part(text="go")),
    ],
    ids=["text", "markdown", "data", "null", "base64", "file", "more"],
)
async def test_a_result_beside_the_answer_is_an_artifact(tmp_path: Path, content: Any, part: Part) -> None:
    class Writing(Manager):
        def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            assert session.folder is not None
            (session.folder / "sub").mkdir()
            (session.folder / "sub" / "plan.json").write_text("{}")
            super().start_process(session, prompt, **options)

    manager = Writing(events.artifact({"name": "plan", **content}), events.text("done"), EXITED)
    async with Client(agent_of(manager, folders=SessionFolders(tmp_path))) as client:
        task = await client.send("go")
    assert task.state is State.COMPLETED
    [plan, answer] = task.artifacts
    assert (plan.name, plan.parts, answer.text) == ("plan", (part,), "done")


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (events.artifact({"name": "plan", "base64": "no base64!"}), "plan"),
        (events.artifact({"name": "plan", "base64": "é"}), "plan"),
        (events.artifact({"file": "gone.txt"}), "gone.txt"),
        (events.artifact({"file": "nul\0.txt"}), "nul\0.txt"),
        (events.artifact({"file": "x" * 5000}), "x" * 5000),
        (events.artifact({"name": "plan", "text": 5}), "plan"),
        (events.artifact({}), "?"),
        ({"type": "artifact", "artifact": "plan"}, "?"),
        ({"type": "artifact"}, "?"),
    ],
    ids=range(9),
)
async def test_an_artifact_that_cannot_be_read_fails_the_task_in_plain_words(
    tmp_path: Path, event: Event, name: str
) -> None:
    task = await task_of(event, EXITED, folder=tmp_path)
    assert (task.state, task.error) == (
        State.FAILED,
        f"the program gave an artifact that cannot be read: {name}",
    )


async def test_an_artifact_may_have_any_name(tmp_path: Path) -> None:
    task = await task_of(events.artifact({"name": "caf\udce9", "text": "x"}), EXITED)
    assert (task.state, task.artifacts[0].name) == (State.COMPLETED, "caf?")
    task = await task_of(events.artifact({"name": 5, "text": "x"}), EXITED)
    assert (task.state, task.artifacts[0].name) == (State.COMPLETED, None)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-20", "S3-21")
@pytest.mark.parametrize("end", [events.exited(), events.exited(3), events.stopped()], ids=["0", "3", "stopped"])
async def test_a_program_that_ends_completes_the_task(end: Event) -> None:
    task = await task_of(events.text("Hello"), end)
    assert (task.state, task.text) == (State.COMPLETED, "Hello")


@pytest.mark.requirement("S3-22")
@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (events.error("no bread"), "no bread"),
        ({"type": "error", "error": "no bread"}, "no bread"),
        ({"type": "error", "error": {"message": 5}}, "the program failed"),
        ({"type": "error"}, "the program failed"),
    ],
    ids=["message", "text", "number", "nothing"],
)
async def test_a_program_that_fails_fails_the_task(event: Event, lines: str) -> None:
    before = await task_of(event)
    assert (before.state, before.error, before.artifacts) == (State.FAILED, lines, ())
    after = await task_of(events.text("Good "), event, events.text("day"))
    assert (after.state, after.error, after.artifacts[0].text) == (State.FAILED, lines, "Good ")


@pytest.mark.requirement("S3-22")
async def test_nobody_is_asked_to_stop_what_has_ended_and_its_listener_leaves() -> None:
    for end in (EXITED, events.stopped(), events.error("no")):
        manager = Stopping(end)
        async with Client(agent_of(manager)) as client:
            await client.send("go")
        assert manager.stopped == []
        assert manager.left == manager.sessions


async def test_a_manager_that_breaks_fails_the_task_and_is_asked_to_stop(start: Any) -> None:
    class Broken(Stopping):
        def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            raise RuntimeError("out of order")

    manager = Broken()
    task = await (await start(agent_of(manager))).send("go")
    assert task.state is State.FAILED
    assert len(manager.stopped) == len(manager.left) == 1


async def test_a_cancel_asks_to_stop_the_program(start: Any, until: Any) -> None:
    manager = Stopping(events.text("Hello"))
    engine = await start(agent_of(manager))
    task = await engine.send("go", wait=False)
    await until(lambda: manager.started)
    canceled = await engine.cancel(task)
    assert canceled.state is State.CANCELED
    await engine.idle()
    assert manager.stopped == [(manager.sessions[0], "the task has ended")]
    assert manager.left == manager.sessions


async def test_a_manager_that_cannot_be_asked_to_stop_is_not(start: Any, until: Any) -> None:
    manager = Manager(events.text("Hello"))
    engine = await start(agent_of(manager))
    task = await engine.send("go", wait=False)
    await until(lambda: manager.started)
    assert (await engine.cancel(task)).state is State.CANCELED


async def test_a_manager_may_call_back_from_another_thread() -> None:
    class Elsewhere(Manager):
        def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            thread = threading.Thread(target=self.say_of, args=(session.id, *self.output), daemon=True)
            thread.start()

    words = [f"{number} " for number in range(1000)]
    async with Client(agent_of(Elsewhere(*map(events.text, words), EXITED))) as client:
        task = await client.send("go")
    assert (task.state, task.text) == (State.COMPLETED, "".join(words))


async def test_a_program_that_is_far_ahead_is_asked_to_wait() -> None:
    class Waiting(Manager):
        waits = 0

        async def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            asyncio.get_running_loop().create_task(self.talk(session.id))

        async def talk(self, session_id: str) -> None:
            for number in range(1000):
                wait: Any = self.listeners[session_id](session_id, events.text(f"{number} "))
                if wait is not None:
                    self.waits += 1
                    await wait
            self.say_of(session_id, EXITED)

    manager = Waiting()
    async with Client(agent_of(manager)) as client:
        task = await client.send("go")
    assert task.text == "".join(f"{number} " for number in range(1000))
    assert manager.waits >= 3


async def test_nobody_waits_for_a_task_that_listens_no_more(start: Any) -> None:
    class Chatty(Manager):
        def say_of(self, session_id: str, *output: Event) -> None:
            self.waits: list[Any] = [self.listeners[session_id](session_id, event) for event in output]

    manager = Chatty(events.ask("How many days?"), *[events.text("x")] * 300)
    engine = await start(agent_of(manager))
    assert (await engine.send("go")).state is State.INPUT_REQUIRED
    await engine.idle()
    waits = [wait for wait in manager.waits if wait is not None]
    assert waits
    assert all(wait.done() for wait in waits)


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_to_the_program_that_asked() -> None:
    manager = Talking(events.text("A trip. "), events.ask("How many days?"))
    manager.answers = (events.text("3 days it is."), EXITED)
    async with Client(agent_of(manager)) as client:
        asked = await client.send("Plan a trip")
        assert (asked.state, asked.question) == (State.INPUT_REQUIRED, "How many days?")
        assert manager.left == manager.sessions  # nobody listens while nobody works
        task = await client.send("3", task=asked)
    assert (task.state, task.text) == (State.COMPLETED, "A trip. 3 days it is.")
    assert manager.lines == ["3"]
    assert len(manager.started) == 1
    assert manager.stopped == []


async def test_the_answer_as_a_whole_counts_also_after_a_question() -> None:
    manager = Talking(events.text("Planning... "), events.ask("How many days?"))
    manager.answers = (events.result("3 days in Porto"), EXITED)
    async with Client(agent_of(manager)) as client:
        asked = await client.send("Plan a trip")
        task = await client.send("3", task=asked)
    assert [artifact.text for artifact in task.artifacts] == ["3 days in Porto"]


@pytest.mark.parametrize("pid", [None, 8], ids=["gone", "another"])
async def test_an_answer_to_a_program_that_has_gone_fails(pid: int | None) -> None:
    manager = Talking(events.ask("How many days?"))
    async with Client(agent_of(manager)) as client:
        asked = await client.send("Plan a trip")
        manager.open = pid
        task = await client.send("3", task=asked)
    assert (task.state, task.error) == (State.FAILED, PROGRAM_ENDED)
    assert PROGRAM_ENDED == "the program that asked has ended meanwhile"
    assert (manager.lines, manager.stopped) == ([], [])


async def test_an_answer_starts_a_new_program_where_programs_accept_no_more_input() -> None:
    manager = Manager(events.ask("How many days?"))
    async with Client(agent_of(manager)) as client:
        asked = await client.send("Plan a trip")
        assert asked.state is State.INPUT_REQUIRED
        manager.output = (events.text("3 days"), EXITED)
        task = await client.send("3", task=asked)
    assert (task.state, task.text) == (State.COMPLETED, "3 days")
    assert [(prompt, session.initial_prompt) for session, prompt, _ in manager.started] == [
        ("Plan a trip", "Plan a trip"),
        ("3", "Plan a trip"),
    ]


async def test_a_question_fails_the_task_of_a_caller_who_cannot_be_asked(start: Any) -> None:
    manager = Talking(events.ask("How many days?"))
    task = await (await start(agent_of(manager))).send("go", call=CallContext(asks=False))
    assert (task.state, task.error) == (
        State.FAILED,
        "the program asks, and cannot be answered here: How many days?",
    )
    assert len(manager.stopped) == 1


@pytest.mark.parametrize("is_another", [False, True], ids=["still there", "another since"])
async def test_canceling_a_question_ends_the_program_that_asked_and_no_other(
    start: Any, until: Any, turns: Any, is_another: bool
) -> None:
    manager = Talking(events.ask("How many days?"))
    engine = await start(agent_of(manager))
    asked = await engine.send("go")
    if is_another:
        manager.open = 8
    await engine.cancel(asked)
    await (turns() if is_another else until(lambda: manager.stopped))
    assert manager.stopped == ([] if is_another else [(manager.sessions[0], "the task was canceled")])


async def test_a_program_that_goes_on_takes_the_next_message_of_its_conversation() -> None:
    manager = Talking(events.text("2"), events.ask(">>>"), goes=True)
    manager.answers = (events.text("\n4"), events.ask(">>>"))
    async with Client(agent_of(manager)) as client:
        first = await client.send("1 + 1")
        second = await client.send("2 + 2", context=first)
        assert second.id != first.id
        # The line end between what was said before and now belongs to neither.
        assert [task.artifacts[0].text for task in (first, second)] == ["2", "4"]
        third = await client.send("2 + 2", task=second)
    assert third.artifacts[0].text == "4\n4"
    assert (len(manager.started), manager.lines) == (1, ["2 + 2", "2 + 2"])
