"""The work place of one conversation with a program, and who gets one when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from unit.agents.process.fake_manager import Manager, agent_of

from dragoman import Client, Part, User
from dragoman.agents.process import events
from dragoman.agents.process.events import Event
from dragoman.agents.process.folders import SessionFolders
from dragoman.agents.process.run import CONVERSATION_RESET
from dragoman.agents.process.session import ProgramSession, new_session, title_of
from dragoman.engine.call import CallContext
from dragoman.model.state import State

ADA, BOB = CallContext(user=User("ada")), CallContext(user=User("bob"))
EXITED = events.exited()


@pytest.mark.requirement("S3-39")
def test_the_session_of_a_task_comes_from_an_agent_and_has_not_begun() -> None:
    session = new_session("s-1", agent_id="fox", project_id=None, message="Hello", folder=Path("/x"), created_ms=5)
    assert (session.source, session.status, session.pid, session.turns) == ("agent", "loading", None, 0)
    assert (session.id, session.agent_id, session.project_id) == ("s-1", "fox", None)
    assert (session.name, session.initial_prompt) == ("A2A Task: Hello", "Hello")
    assert (session.folder, session.created_ms) == (Path("/x"), 5)


def test_a_session_is_called_by_the_beginning_of_its_message_and_keeps_all_of_it() -> None:
    assert title_of("x" * 50) == "A2A Task: " + "x" * 50
    assert title_of("é" * 51) == "A2A Task: " + "é" * 50
    assert title_of("") == "A2A Task: "
    assert new_session("s", agent_id="a", project_id="p", message="x" * 500).initial_prompt == "x" * 500


# -- what a program is given -------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-57", "S3-39", "S3-20")
async def test_two_methods_are_all_a_process_manager_needs() -> None:
    manager = Manager(events.started(5), events.text("Hello"), EXITED)
    async with Client(agent_of(manager)) as client:
        task = await client.send("Say hello")
    assert (task.state, task.text) == (State.COMPLETED, "Hello")
    [(session, prompt, options)] = manager.started
    assert prompt == "Say hello"
    assert (session.agent_id, session.project_id, session.source) == ("fox", "forest", "agent")
    assert (session.name, session.initial_prompt) == ("A2A Task: Say hello", "Say hello")
    assert options == {
        "scheduler_mode": True,
        "facts": {"TASK": task.id, "CONTEXT": task.context_id, "DEPTH": "1"},
        "remembered": None,
    }


async def test_a_start_that_takes_its_time_is_waited_for() -> None:
    class Slow(Manager):
        async def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            await asyncio.sleep(0)
            super().start_process(session, prompt, **options)

    async with Client(agent_of(Slow(events.text("late"), EXITED))) as client:
        assert (await client.send("go")).text == "late"


async def test_files_are_laid_into_the_inbox_and_named(tmp_path: Path, start: Any) -> None:
    manager = Manager(EXITED)
    engine = await start(agent_of(manager, folders=SessionFolders(tmp_path), attaches=True))
    link = Part(url="https://example.com/b")
    await engine.send("Read", parts=(Part(raw=b"x", filename="../a.txt"), link), call=ADA)
    [(session, prompt, options)] = manager.started
    assert session.folder == tmp_path / session.id
    assert [path.name for path in session.folder.iterdir()] == ["inbox"]
    assert (session.folder / "inbox/a.txt").read_bytes() == b"x"
    assert prompt == f"Read\nhttps://example.com/b\nFiles that came with this: {session.folder / 'inbox/a.txt'}"
    assert (options["facts"]["FILES"], options["facts"]["USER"]) == ("inbox/a.txt", "ada")


@pytest.mark.parametrize("is_changed", [False, True], ids=["as it came", "changed"])
async def test_a_file_of_the_inbox_is_a_result_once_it_is_changed(tmp_path: Path, start: Any, is_changed: bool) -> None:
    class Changing(Manager):
        def start_process(self, session: ProgramSession, prompt: str, **options: Any) -> None:
            assert session.folder is not None
            if is_changed:
                (session.folder / "inbox/a.txt").write_text("changed")
            super().start_process(session, prompt, **options)

    found = events.artifact({"file": "inbox/a.txt", "name": "inbox/a.txt"})
    engine = await start(agent_of(Changing(found, EXITED), folders=SessionFolders(tmp_path)))
    task = await engine.send("Read", parts=(Part(raw=b"x", filename="a.txt"),))
    assert [artifact.name for artifact in task.artifacts] == (["inbox/a.txt"] if is_changed else [])


async def test_a_folder_that_cannot_be_made_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "sessions").touch()
    async with Client(agent_of(Manager(EXITED), folders=SessionFolders(tmp_path / "sessions"))) as client:
        task = await client.send("go")
    assert (task.state, task.error) == (
        State.FAILED,
        "the program cannot be started: its folder cannot be made",
    )


async def test_a_folder_in_which_nothing_was_left_is_removed(tmp_path: Path) -> None:
    manager = Manager(EXITED)
    async with Client(agent_of(manager, folders=SessionFolders(tmp_path))) as client:
        await client.send("go")
    [(session, _, _)] = manager.started
    assert session.folder is not None
    assert not session.folder.exists()


async def test_the_conversation_id_of_a_program_is_passed_to_the_next_program() -> None:
    manager = Manager(events.result("hi", remembers="abc"), EXITED)
    async with Client(agent_of(manager)) as client:
        first = await client.send("one")
        await client.send("two", context=first)
        await client.send("three")
    assert [options["remembered"] for _, _, options in manager.started] == [None, "abc", None]


@pytest.mark.parametrize(
    ("output", "next_time"),
    [
        ((events.started(5), events.error("No conversation found", "exit")), None),
        ((events.error("No conversation found"),), None),
        ((events.thinking("hm"), events.error("out of money")), "abc"),
        ((events.text("half"), events.error("exit code 1", "exit")), "abc"),
        ((events.started(5), events.error("too slow", "timeout")), "abc"),
        ((events.error("there is no `claude`", "start"),), "abc"),
        ((events.error("may not begin with a hyphen", "rejected"),), "abc"),
    ],
    ids=["exit", "error", "after a thought", "after a word", "timeout", "start", "rejected"],
)
async def test_a_conversation_that_a_program_cannot_go_on_with_begins_afresh(
    output: tuple[Event, ...], next_time: str | None
) -> None:
    manager = Manager(events.result("hi", remembers="abc"), EXITED)
    async with Client(agent_of(manager)) as client:
        first = await client.send("one")
        manager.output = output
        second = await client.send("two", context=first)
        assert second.state in (State.FAILED, State.REJECTED)
        assert str(second.error).endswith(CONVERSATION_RESET) is (next_time is None)
        manager.output = (EXITED,)
        assert (await client.send("three", context=first)).state is State.COMPLETED
    assert [options["remembered"] for _, _, options in manager.started] == [None, "abc", next_time]


async def test_the_first_message_of_a_conversation_is_not_reported_as_lost() -> None:
    async with Client(agent_of(Manager(events.error("exit code 1", "exit")))) as client:
        assert (await client.send("one")).error == "exit code 1"


# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_tasks_of_one_conversation_follow_each_other_in_one_session(start: Any, until: Any, turns: Any) -> None:
    manager = Manager()
    engine = await start(agent_of(manager))
    first = await engine.send("one", context="c-1", wait=False)
    second = engine.sending("two", context="c-1")
    await until(lambda: manager.started)
    await turns()
    assert len(manager.started) == 1
    manager.say_of(manager.sessions[0], EXITED)
    await until(lambda: len(manager.started) == 2)
    manager.say_of(manager.sessions[1], EXITED)
    assert (await second).state is State.COMPLETED
    assert (await engine.get(first)).state is State.COMPLETED
    assert manager.sessions[0] == manager.sessions[1]


async def test_callers_who_name_their_conversations_alike_have_different_sessions(start: Any) -> None:
    manager = Manager(EXITED)
    engine = await start(agent_of(manager))
    for call in (ADA, BOB, ADA, CallContext()):
        await engine.send("go", context="c-1", call=call)
    ada, bob, again, nobody = manager.sessions
    assert ada == again
    assert len({ada, bob, nobody}) == 3


@pytest.mark.requirement("S3-42", "S3-39")
async def test_a_task_is_submitted_until_its_session_is_there_and_then_working(start: Any, until: Any) -> None:
    made, go_on = list[ProgramSession](), asyncio.Event()

    async def create(session: ProgramSession) -> None:
        made.append(session)
        await go_on.wait()

    manager = Manager()
    engine = await start(agent_of(manager, create_session=create))
    task = await engine.send("go", wait=False)
    await until(lambda: made)
    assert (await engine.get(task)).state is State.SUBMITTED
    assert (made[0].source, made[0].status, manager.started) == ("agent", "loading", [])
    go_on.set()
    await until(lambda: manager.started)
    assert (await engine.get(task)).state is State.WORKING
    manager.say_of(manager.sessions[0], EXITED)
    assert (await engine.until_state(task, State.COMPLETED)).state is State.COMPLETED


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
async def test_create_session_may_return_another_session(is_async: bool) -> None:
    other = ProgramSession(id="mine", agent_id="fox", project_id=None, name="n", initial_prompt="p")

    def create(session: ProgramSession) -> ProgramSession:
        return other

    async def create_slowly(session: ProgramSession) -> ProgramSession:
        await asyncio.sleep(0)
        return other

    manager = Manager(events.text("hi"), EXITED)
    async with Client(agent_of(manager, create_session=create_slowly if is_async else create)) as client:
        assert (await client.send("go")).text == "hi"
    assert manager.started[0][0] is other
    assert manager.sessions == ["mine"]


async def test_no_session_is_a_failed_task_and_its_place_is_free_again() -> None:
    def create(session: ProgramSession) -> None:
        if session.initial_prompt == "one":
            raise RuntimeError("the database is gone")

    manager = Manager(EXITED)
    async with Client(agent_of(manager, create_session=create, max_running=1)) as client:
        assert (await client.send("one")).state is State.FAILED
        assert (await client.send("two")).state is State.COMPLETED


async def test_only_so_many_work_at_once_and_the_others_are_submitted(start: Any, until: Any, turns: Any) -> None:
    manager = Manager()
    engine = await start(agent_of(manager, max_running=2))
    tasks = [await engine.send("go", wait=False) for _ in range(4)]
    await until(lambda: len(manager.started) == 2)
    await turns()
    states = [(await engine.get(task)).state for task in tasks]
    assert states == [State.WORKING, State.WORKING, State.SUBMITTED, State.SUBMITTED]
    assert (await engine.cancel(tasks[2])).state is State.CANCELED  # and takes nobody's place
    manager.say_of(manager.sessions[0], EXITED)
    await until(lambda: len(manager.started) == 3)
    for session in manager.sessions[1:]:
        manager.say_of(session, EXITED)
    for task in (tasks[0], tasks[1], tasks[3]):
        await engine.until_state(task, State.COMPLETED)
    assert (await engine.get(tasks[2])).state is State.CANCELED


async def test_a_task_that_waits_for_an_answer_takes_no_place() -> None:
    manager = Manager(events.ask("How many days?"))
    async with Client(agent_of(manager, max_running=1)) as client:
        for _ in range(3):
            assert (await client.send("go")).state is State.INPUT_REQUIRED


# -- chains of agents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [4, 100, 4.0, 10**30, "4", "9" * 5000])
async def test_too_deep_a_chain_of_agents_is_refused(start: Any, depth: Any) -> None:
    manager = Manager(EXITED)
    engine = await start(agent_of(manager, max_running=1))
    for where in ("metadata", "message_metadata"):
        task = await engine.send("go", **{where: {"dragoman/depth": depth}})
        assert (task.state, task.error) == (State.REJECTED, "Invocation depth limit exceeded.")
    for message, request in ((depth, 0), (0, depth)):
        output = {"metadata": {"dragoman/depth": request}, "message_metadata": {"dragoman/depth": message}}
        assert (await engine.send("go", **output)).state is State.REJECTED
    assert manager.started == []
    assert (await engine.send("go")).state is State.COMPLETED


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(3, "4"), (2.0, "3"), (0, "1"), (-5, "1"), ("2", "3"), ("deep", "1"), (True, "1"), (None, "1")],
)
async def test_a_program_learns_how_deep_it_is(start: Any, depth: Any, expected: str) -> None:
    manager = Manager(EXITED)
    await (await start(agent_of(manager))).send("go", metadata={"dragoman/depth": depth})
    assert manager.started[0][2]["facts"]["DEPTH"] == expected
