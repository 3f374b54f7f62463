"""Every bridge keeps the same contract: whatever an agent is made of, its callers see the same behavior.

The agents are served on a real port with a real SQLite file. `bridge.py` says what each of them does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, get_args

import pytest
from contract.bridges.bridge import IMAGE, PICTURE, REASON, SECRET, TRIP, Behavior, Bridge, Place
from contract.bridges.checkpoints import Checkpoints
from contract.bridges.table import BRIDGES, ROWS, row
from opentelemetry import trace
from support.otlp_collector import collected_spans

from dragoman import Client, State, Task, User
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.testing import served

TRACER = trace.get_tracer("contract")
# Serves the agent of a bridge, each time a fresh one on the same file, and connects a client of the user "anna".
Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def checkpoints() -> AsyncIterator[Checkpoints]:
    async with Checkpoints.listening() as checkpoints:
        yield checkpoints


@pytest.fixture
async def place(tmp_path: Path, checkpoints: Checkpoints) -> AsyncIterator[Place]:
    place = Place(tmp_path, checkpoints.port)
    yield place
    place.close()


class Request(Protocol):
    """A request, as authentication sees it."""

    headers: Mapping[str, str]


async def user_of(request: Request) -> User | None:
    """The user that a request names as its bearer token."""
    scheme, _, name = request.headers.get("authorization", "").partition(" ")
    return User(name) if scheme == "Bearer" else None


@pytest.fixture
def serve(place: Place) -> Serve:
    @asynccontextmanager
    async def serve(bridge: Bridge, *, closing_message: bool = False) -> AsyncGenerator[Client]:
        store = f"sqlite:///{place.folder / 'tasks.db'}"
        agent = bridge.make(place)
        with served(agent, store=store, auth=user_of, closing_message=closing_message, drain=0) as url:
            async with Client(url, auth="anna") as client:
                yield client

    return serve


async def task_of(client: Client, order: str | None, **options: Any) -> Task:
    task = await client.send(order, **options)
    assert isinstance(task, Task)
    return task


def test_a_gap_names_a_row_of_the_contract_and_its_reason() -> None:
    behaviors = set(get_args(Behavior))
    assert behaviors == ROWS
    assert len({bridge.name for bridge in BRIDGES}) == len(BRIDGES)
    for bridge in BRIDGES:
        assert set(bridge.lacks) <= behaviors
        assert all(bridge.lacks.values())


# -- the answer --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-2", "S2-26", "S2-31", "S2-50", "S2-52")
@row("stream")
async def test_text_arrives_in_one_artifact_while_the_work_goes_on(
    bridge: Bridge, serve: Serve, checkpoints: Checkpoints
) -> None:
    async with serve(bridge) as client:
        stream = client.stream("tell")
        updates: list[ArtifactUpdate] = []
        states: list[State] = []
        async for event in stream:
            if isinstance(event.raw, StatusUpdate):
                states.append(event.raw.status.state)
            if isinstance(event.raw, ArtifactUpdate):
                updates.append(event.raw)
                if len(updates) == 1:
                    (await checkpoints.reached("tell")).release()
        assert [update.artifact.text for update in updates if update.artifact.text] == ["one ", "two"]
        assert [update.last_chunk for update in updates] == [*[False] * (len(updates) - 1), True]
        assert len({update.artifact.artifact_id for update in updates}) == 1
        assert states == [State.WORKING, State.COMPLETED]
        task = await client.get_task(stream.task)
    assert (task.state, task.text, len(task.artifacts)) == (State.COMPLETED, "one two", 1)


@row("data out")
async def test_structured_data_is_an_artifact_with_its_numbers_as_they_are(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "plan")
    assert (task.state, len(task.artifacts)) == (State.COMPLETED, 1)
    assert json.dumps(task.data) == json.dumps(TRIP)


@row("file out")
async def test_a_file_is_an_artifact_with_its_name_and_media_type(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "draw")
    assert task.state is State.COMPLETED
    [file] = task.files
    assert (file.raw, file.media_type, bool(file.filename)) == (IMAGE, "image/png", True)


@row("progress")
async def test_progress_is_a_status_update_and_no_part_of_the_answer(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        stream = client.stream("step")
        statuses = [event.raw.status async for event in stream if isinstance(event.raw, StatusUpdate)]
    messages = [status.message.text for status in statuses if status.message is not None]
    assert len(messages) == 1
    assert messages[0].startswith("looking")
    assert (stream.task.state, stream.task.text) == (State.COMPLETED, "found")


@row("answer")
async def test_a_setting_repeats_the_answer_as_the_closing_message(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge, closing_message=True) as client:
        task = await task_of(client, "who")
    assert (task.state, len(task.artifacts)) == (State.COMPLETED, 1)
    assert task.status.message is not None
    assert task.status.message.text == task.text != ""


# -- the message -------------------------------------------------------------------------------------------------------


@row("file in")
async def test_a_file_of_the_message_reaches_the_work(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "look", files=[PICTURE])
    assert json.loads(task.text) == ["image/png", base64.b64encode(IMAGE).decode()]


@row("data in")
async def test_data_of_the_message_reach_the_work_with_their_numbers_as_they_are(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "read", data={"values": {"n": 10**15 + 1, "x": 0.5, "a": None}})
    assert json.dumps(json.loads(task.text)) == '{"values": {"n": 1000000000000001, "x": 0.5, "a": null}}'


@row("caller")
async def test_the_work_knows_who_calls(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        assert (await task_of(client, "who")).text == "anna"
        assert (await task_of(client, "who", auth="bert")).text == "bert"


# -- conversations -----------------------------------------------------------------------------------------------------


@row("memory")
async def test_a_conversation_is_remembered_and_not_those_of_other_contexts_and_callers(
    bridge: Bridge, serve: Serve
) -> None:
    async with serve(bridge) as client:
        first = await task_of(client, "remember one", context="c")
        second = await task_of(client, "remember two", context="c")
        elsewhere = await task_of(client, "remember three", context="other")
        somebody = await task_of(client, "remember four", context="c", auth="bert")
    assert json.loads(first.text) == ["remember one"]
    assert json.loads(second.text) == ["remember one", "remember two"]
    assert json.loads(elsewhere.text) == ["remember three"]
    assert json.loads(somebody.text) == ["remember four"]


@row("memory after a restart")
async def test_a_conversation_is_remembered_after_a_restart(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        await client.send("remember one", context="c")
    async with serve(bridge) as client:
        task = await task_of(client, "remember two", context="c")
    assert json.loads(task.text) == ["remember one", "remember two"]


# -- questions ---------------------------------------------------------------------------------------------------------


async def answered(client: Client, bridge: Bridge, task: Task) -> Task:
    """The task after the right answer to its question."""
    task = await task_of(client, bridge.question.answer, task=task)
    assert (task.state, task.text, len(task.artifacts)) == (State.COMPLETED, bridge.question.result, 1)
    return task


async def refused(client: Client, bridge: Bridge, task: Task) -> None:
    """Answer what the question does not take, which is asked again."""
    again = await task_of(client, bridge.question.wrong, task=task)
    assert (again.id, again.state, again.question) == (task.id, State.INPUT_REQUIRED, bridge.question.again)


@row("pause")
async def test_a_question_pauses_the_task_and_its_answer_completes_it(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask")
        assert (asked.state, asked.question) == (State.INPUT_REQUIRED, bridge.question.text)
        stream = client.stream(bridge.question.answer, task=asked)
        texts = [event.text async for event in stream if isinstance(event.raw, ArtifactUpdate)]
        # What was there before the question is not sent again.
        before = "".join(artifact.text for artifact in asked.artifacts)
        assert before + "".join(texts) == bridge.question.result
        done = await client.get_task(stream.task)
    assert (done.id, done.state, done.text) == (asked.id, State.COMPLETED, bridge.question.result)
    assert len(done.artifacts) == 1
    assert [message.text for message in done.history] == ["ask", bridge.question.text, bridge.question.answer]


@row("pause")
async def test_a_task_that_waits_for_an_answer_can_be_canceled(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask")
        assert (await client.cancel_task(asked)).state is State.CANCELED
        assert (await client.get_task(asked)).state is State.CANCELED


@row("wrong answer")
async def test_an_answer_that_does_not_fit_is_asked_for_again(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask")
        for _ in range(2):
            await refused(client, bridge, asked)
        await answered(client, bridge, asked)


@row("answer after a restart")
async def test_a_question_is_answered_after_a_restart(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask")
    async with serve(bridge) as client:
        assert await client.get_task(asked) == asked
        await refused(client, bridge, asked)
    async with serve(bridge) as client:
        done = await answered(client, bridge, asked)
    async with serve(bridge) as client:
        assert await client.get_task(done) == done


@row("undisturbed question")
async def test_another_message_of_the_conversation_does_not_disturb_a_question(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask", context="c")
        assert (await task_of(client, "who", context="c")).state is State.COMPLETED
        assert (await client.get_task(asked)).state is State.INPUT_REQUIRED
        await answered(client, bridge, asked)


@row("memory beside a question")
async def test_messages_beside_an_open_question_are_remembered(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        asked = await task_of(client, "ask", context="c")
        await client.send("remember one", context="c")
        await answered(client, bridge, asked)
        later = await task_of(client, "remember two", context="c")
    assert json.loads(later.text) == ["remember one", "remember two"]


@row("login")
async def test_a_login_that_is_missing_is_asked_for(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "login")
    assert (task.state, task.question) == (State.AUTH_REQUIRED, bridge.login)


# -- the end -----------------------------------------------------------------------------------------------------------


@row("cancel")
async def test_a_cancel_reaches_the_work(bridge: Bridge, serve: Serve, checkpoints: Checkpoints) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "wait", wait=False)
        checkpoint = await checkpoints.reached("wait")
        assert (await client.cancel_task(task)).state is State.CANCELED
        await checkpoint.aborted()
        assert (await client.get_task(task)).state is State.CANCELED


@row("hidden error")
async def test_the_text_of_an_exception_is_in_the_log_and_its_reference_with_the_caller(
    bridge: Bridge, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(bridge) as client:
        stream = client.stream("fail")
        events = [event.raw async for event in stream]
        task = await client.get_task(stream.task)
    assert task.state is State.FAILED
    beginning, _, reference = (task.error or "").rpartition(" ")
    assert beginning == "execution failed: Internal error, reference"
    assert SECRET not in repr([*events, task])
    assert SECRET in caplog.text
    assert any(reference in record.getMessage() for record in caplog.records)


@row("public error")
async def test_a_reason_that_is_meant_for_callers_is_the_error_of_the_task(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "refuse")
    assert (task.state, task.error) == (State.FAILED, REASON)


@row("exit")
async def test_work_that_wants_to_end_the_program_fails_its_task_only(bridge: Bridge, serve: Serve) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "exit")
        assert (task.state, SECRET in repr(task)) == (State.FAILED, False)
        assert (await task_of(client, "who")).state is State.COMPLETED


# -- restarts ----------------------------------------------------------------------------------------------------------


@row("interrupted")
async def test_work_that_a_restart_interrupts_has_failed_with_a_plain_reason(
    bridge: Bridge, serve: Serve, checkpoints: Checkpoints
) -> None:
    async with serve(bridge) as client:
        task = await task_of(client, "wait", wait=False)
        await checkpoints.reached("wait")
    async with serve(bridge) as client:
        task = await client.wait(task)
    assert task.state is State.FAILED
    assert "interrupted by a restart" in (task.error or "")
    assert checkpoints.waiting("wait") == 0


@row("run again")
async def test_work_that_may_be_repeated_runs_again_after_a_restart(
    bridge: Bridge, serve: Serve, checkpoints: Checkpoints, place: Place
) -> None:
    place.restart = True
    async with serve(bridge) as client:
        task = await task_of(client, "wait", wait=False)
        await checkpoints.reached("wait")
    async with serve(bridge) as client:
        (await checkpoints.reached("wait")).release()
        task = await client.wait(task)
    assert (task.state, task.text) == (State.COMPLETED, "done")


# -- traces ------------------------------------------------------------------------------------------------------------


@row("trace")
async def test_spans_of_the_work_are_below_the_run_and_the_caller(bridge: Bridge, place: Place) -> None:
    with collected_spans() as spans:
        with TRACER.start_as_current_span("calling"):
            async with Client(bridge.make(place)) as client:
                assert (await task_of(client, "span")).text == "done"
        path = spans.path("in the work")
    assert path[0] == "calling"
    assert any(name.startswith("invoke_agent") for name in path)
