"""Tasks of sessions: sent to an agent with a project, worked on by a program, read by a poller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.compat.sessions import (
    NotFoundError,
    TaskDeps,
    ValidationError,
    clear_task_store,
    handle_task_get,
    handle_task_send,
)
from dragoman.compat.sessions.registry import MAX_TASKS, PRUNE_COUNT
from dragoman.compat.sessions.tasks import _TASKS_BY_LOOP

# -- send, get, clear ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-8", "S3-14", "S3-24", "S3-39")
async def test_the_agent_is_looked_up_once_and_its_session_made_once(bench: Any) -> None:
    asked: list[Any] = []

    def list_agents() -> list[Any]:
        asked.append("agents")
        return [{"id": "none", "name": "None"}, *bench.agents]

    def create_session(session: Any) -> Any:
        asked.append(session)
        return session

    deps = TaskDeps(bench.programs, list_agents, create_session=create_session, clock=bench.clock)
    task = await handle_task_send(deps, {"message": "Hello"})
    agents, session = asked
    assert agents == "agents"
    assert (session.id, session.agent_id, session.source) == (task["sessionId"], "a1", "agent")
    [(started, prompt, _)] = bench.started
    assert (started.id, prompt) == (session.id, "Hello")


@pytest.mark.requirement("S3-2", "S3-14", "S3-57")
async def test_a_sent_message_gets_a_session_and_a_program_and_comes_back_as_a_working_task(bench: Any) -> None:
    task = await bench.send("Hello")
    assert task["state"] == "working"
    [(session, prompt, options)] = bench.started
    assert bench.listening == 1
    assert (session.id, session.agent_id, session.project_id) == (task["sessionId"], "a1", "p1")
    assert (session.name, session.initial_prompt, prompt) == ("A2A Task: Hello", "Hello", "Hello")
    assert options["scheduler_mode"] is True


@pytest.mark.requirement("S3-39")
async def test_sessions_of_tasks_come_from_an_agent_and_are_named_by_the_first_fifty_characters(bench: Any) -> None:
    seen: list[Any] = []
    bench.deps.create_session = seen.append
    await bench.send("x" * 80)
    assert (seen[0].source, seen[0].status, seen[0].name) == ("agent", "loading", "A2A Task: " + "x" * 50)


@pytest.mark.requirement("S3-15")
async def test_a_task_is_got_by_its_id_and_an_unknown_one_is_none(bench: Any) -> None:
    task = await bench.send()
    assert await handle_task_get(task["id"]) == task
    assert await handle_task_get("unknown") is None


@pytest.mark.requirement("S3-15")
async def test_a_caller_who_changes_what_it_was_given_changes_nothing_else(bench: Any) -> None:
    task = await bench.send("Hello")
    task["messages"].clear()
    task["state"] = "completed"
    assert (await bench.get(task))["messages"]
    assert (await bench.get(task))["state"] == "working"


@pytest.mark.requirement("S3-16")
async def test_no_task_is_left_after_the_store_was_cleared_nor_a_timer_or_a_listener(bench: Any) -> None:
    task = await bench.send()
    clear_task_store()
    assert await handle_task_get(task["id"]) is None
    await bench.quiet()
    assert (bench.clock.pending, bench.listening) == (0, 0)
    assert (await bench.send())["state"] == "working"


async def test_a_body_without_a_message_is_not_valid(bench: Any) -> None:
    with pytest.raises(ValidationError, match="message is required"):
        await handle_task_send(bench.deps, {"params": {}})
    assert bench.started == []


# -- which agent ---------------------------------------------------------------------------------------------------


class Row:
    def __init__(self, id: str, default_project_id: str | None) -> None:
        self.id, self.name, self.default_project_id = id, id.upper(), default_project_id


@pytest.mark.requirement("S3-24")
@pytest.mark.parametrize("make", [Row, lambda name, project: {"id": name, "name": name, "defaultProjectId": project}])
async def test_the_first_agent_with_a_project_gets_the_task(bench: Any, make: Any) -> None:
    bench.agents[:] = [make("none", None), make("a", "pa"), make("b", "pb")]
    await bench.send()
    assert [(session.agent_id, session.project_id) for session, _, _ in bench.started] == [("a", "pa")]


@pytest.mark.requirement("S3-50")
async def test_without_an_agent_that_has_a_project_there_is_no_task(bench: Any) -> None:
    bench.agents[:] = [Row("none", None)]
    with pytest.raises(NotFoundError, match=r"^Agent with default project not found$"):
        await bench.send()
    with pytest.raises(NotFoundError):
        await handle_task_send(TaskDeps(bench.programs, clock=bench.clock), {"message": "Hi"})
    assert bench.started == []


class Database:
    def __init__(self) -> None:
        self.sessions: list[Any] = []

    async def list_agents(self) -> list[Row]:
        return [Row("kept", "p")]

    async def create_session(self, session: Any) -> None:
        self.sessions.append(session)


@pytest.mark.requirement("S3-8")
async def test_agents_and_sessions_are_those_of_the_database_unless_others_are_given(bench: Any) -> None:
    database, seen = Database(), []
    by_database = TaskDeps(bench.programs, db=database, clock=bench.clock)
    given = TaskDeps(
        bench.programs, lambda: [Row("other", "p")], create_session=seen.append, db=database, clock=bench.clock
    )
    await handle_task_send(by_database, {"message": "Hi"})
    await handle_task_send(given, {"message": "Hi"})
    assert [session.agent_id for session in database.sessions] == ["kept"]
    assert [session.agent_id for session in seen] == ["other"]
    assert [session.agent_id for session, _, _ in bench.started] == ["kept", "other"]


@pytest.mark.requirement("S3-8")
async def test_a_session_that_is_given_back_takes_the_place_of_the_one_that_was_shown(bench: Any) -> None:
    def other(session: Any) -> Any:
        session.id = "mine"
        return session

    bench.deps.create_session = other
    await bench.send()
    assert [session.id for session, _, _ in bench.started] == ["mine"]


# -- states --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-4", "S3-42")
async def test_a_task_is_submitted_while_its_session_is_made_and_working_afterwards(bench: Any) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def create(_: Any) -> None:
        asked.set()
        await go.wait()

    bench.deps.create_session = create
    sending = asyncio.create_task(bench.send())
    await asked.wait()
    async with asyncio.timeout(10):
        while not (entries := _TASKS_BY_LOOP.tasks().registry._entries):  # noqa: ASYNC110
            await asyncio.sleep(0)
    [task_id] = entries
    task = await handle_task_get(task_id)
    assert task is not None
    assert task["state"] == "submitted"
    assert bench.started == []
    go.set()
    assert (await sending)["state"] == "working"


@pytest.mark.requirement("S3-2", "S3-43", "S3-44")
@pytest.mark.parametrize(
    "content", ["Hi there", [{"type": "tool_use"}, {"type": "text", "text": "Hi there"}, {"type": "text", "text": "x"}]]
)
async def test_what_the_assistant_says_is_a_message_and_the_exit_completes_the_task(
    bench: Any, texts: Any, content: Any
) -> None:
    task = await bench.send()
    bench.says(task, content)
    await bench.quiet()
    working = await bench.get(task)
    assert (working["state"], texts(working)) == ("working", ["Hi there"])
    bench.emit(task, "session_exited")
    ended = await bench.ended(task)
    assert (ended["state"], texts(ended)) == ("completed", ["Hi there"])


@pytest.mark.requirement("S3-20", "S3-21")
@pytest.mark.parametrize("kind", ["session_exited", "session_stopped"])
async def test_a_program_that_has_ended_has_completed_its_task(bench: Any, kind: str) -> None:
    task = await bench.send()
    bench.emit(task, kind, exitCode=1)
    assert (await bench.ended(task))["state"] == "completed"


@pytest.mark.requirement("S3-22", "S3-56")
async def test_an_error_of_the_process_fails_the_task_and_ends_its_timer(bench: Any, texts: Any) -> None:
    task = await bench.send()
    assert bench.clock.pending == 1
    bench.emit(task, "error", error={"message": "no such program", "type": "spawn"})
    failed = await bench.ended(task)
    assert (failed["state"], texts(failed)) == ("failed", ["no such program"])
    assert bench.clock.pending == 0


@pytest.mark.requirement("S3-22")
async def test_a_program_that_cannot_be_started_may_have_failed_its_task_already(bench: Any) -> None:
    start = bench.programs.start_process

    def refuse(session: Any, prompt: str, **options: Any) -> None:
        start(session, prompt, **options)
        bench.emit({"sessionId": session.id}, "error", error={"message": "missing project"})

    bench.programs.start_process = refuse
    task = await bench.send()
    assert task["state"] in ("working", "failed")
    assert (await bench.ended(task))["state"] == "failed"


@pytest.mark.requirement("S3-19")
@pytest.mark.parametrize(("first", "second"), [("session_exited", "error"), ("error", "session_exited")])
async def test_a_task_that_has_ended_never_changes(bench: Any, first: str, second: str) -> None:
    task = await bench.send()
    callbacks = [each for found in bench.programs.callbacks.values() for each in found]
    bench.says(task, "before")
    bench.emit(task, first, error={"message": "first"})
    ended = await bench.ended(task)
    for callback in callbacks:  # a process manager that goes on telling
        callback(task["sessionId"], {"type": "assistant", "message": {"content": "after"}})
        callback(task["sessionId"], {"type": second, "error": {"message": "second"}})
    await bench.clock.advance(400)
    assert await bench.get(task) == ended


@pytest.mark.requirement("S3-19")
async def test_a_program_that_ends_after_the_time_was_up_changes_nothing(bench: Any) -> None:
    task = await bench.send(timeoutMs=1000)
    callbacks = [each for found in bench.programs.callbacks.values() for each in found]
    await bench.clock.advance(1)
    failed = await bench.ended(task)
    for callback in callbacks:
        callback(task["sessionId"], {"type": "session_exited"})
    await bench.quiet()
    assert await bench.get(task) == failed
    assert failed["state"] == "failed"


@pytest.mark.requirement("S3-23", "S3-57")
async def test_nothing_changes_without_an_event_and_the_process_manager_is_asked_nothing(bench: Any) -> None:
    task = await bench.send()
    # It has no other methods: asking for one would have failed the task.
    await bench.clock.advance(299)
    assert await bench.get(task) == task
    assert len(bench.started) == 1


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-28", "S3-45")
async def test_a_program_that_has_not_exited_in_time_has_failed_its_task(bench: Any, texts: Any) -> None:
    task = await bench.send(timeoutMs=5000)
    await bench.clock.advance(4.999)
    assert (await bench.get(task))["state"] == "working"
    await bench.clock.advance(0.001)
    failed = await bench.ended(task)
    assert (failed["state"], texts(failed)) == ("failed", ["Task timed out"])
    assert bench.listening == 0


async def test_an_assistant_message_changes_the_time_of_the_last_change(bench: Any) -> None:
    task = await bench.send()
    await bench.clock.advance(7)
    bench.says(task, "still here")
    await bench.quiet()
    later = await bench.get(task)
    assert later["createdAt"] == task["createdAt"]
    assert later["updatedAt"] > task["updatedAt"]


# -- how many ------------------------------------------------------------------------------------------------------


async def finished(bench: Any, number: int) -> list[dict[str, Any]]:
    """So many tasks, each sent after the end of the one before."""
    tasks: list[dict[str, Any]] = []
    for _ in range(number):
        task = await bench.send()
        bench.emit(task, "session_exited")
        async with asyncio.timeout(10):
            while not _TASKS_BY_LOOP.tasks().registry._entries[task["id"]].has_ended:  # noqa: ASYNC110
                await asyncio.sleep(0)
        tasks.append(task)
    return tasks


@pytest.mark.requirement("S3-25", "S3-26")
async def test_the_hundred_oldest_that_have_ended_go_when_there_are_more_than_a_thousand(bench: Any) -> None:
    tasks = await finished(bench, MAX_TASKS)
    assert await handle_task_get(tasks[0]["id"]) is not None
    tasks += await finished(bench, 1)
    known = [await handle_task_get(task["id"]) is not None for task in tasks]
    assert known == [False] * PRUNE_COUNT + [True] * (MAX_TASKS + 1 - PRUNE_COUNT)
    assert len(_TASKS_BY_LOOP.tasks().registry) <= MAX_TASKS


async def test_what_the_registry_has_forgotten_is_not_kept_anywhere(bench: Any) -> None:
    await finished(bench, 2 * MAX_TASKS + PRUNE_COUNT)
    [engine] = _TASKS_BY_LOOP.tasks()._engines
    assert len(engine.store._by_id) <= MAX_TASKS + PRUNE_COUNT
