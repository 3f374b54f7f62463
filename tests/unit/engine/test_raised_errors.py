"""Protocol errors that an agent's code raises: who gets them, as what, and what the journal keeps of them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent, Client, Context, State
from dragoman.engine.ports.agent import OutputMetadata
from dragoman.errors import (
    A2AError,
    ContentTypeNotSupported,
    InternalError,
    InvalidParams,
    Overloaded,
    TaskNotFound,
    Unauthorized,
)
from dragoman.model.message import ERROR_KEY
from dragoman.server.agent.base import Backend
from dragoman.testing import served

from .conftest import raising


class QuotaUsedUp(A2AError):
    """An error of the agent's own."""

    code = -32050
    reason = "QUOTA_USED_UP"
    text = "No more credits"


def mark_of(task: Any) -> dict[str, Any]:
    return task.status.message.metadata[ERROR_KEY]


@pytest.mark.parametrize(
    "error",
    [
        InvalidParams("no such city", field="message.parts[0]"),
        TaskNotFound("no such order"),
        ContentTypeNotSupported(),
        Unauthorized("not for you"),
        Overloaded("come back later", retryAfter="3"),
        QuotaUsedUp(details={"left": 0}),
        A2AError("something else"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_caller_who_waits_gets_the_error_and_the_task_has_failed_with_it(start: Any, error: A2AError) -> None:
    engine = await start(raising(error))
    with pytest.raises(type(error)) as caught:
        await engine.send()
    got = caught.value
    assert (type(got), got.message, got.code, got.reason) == (type(error), error.message, error.code, error.reason)
    assert got.details == error.details
    task = await engine.get(got.metadata["taskId"])
    assert (task.state, task.error) == (State.FAILED, error.message)
    assert (mark_of(task)["reason"], mark_of(task)["code"]) == (error.reason, error.code)
    assert await engine.states(task) == [State.SUBMITTED, State.WORKING, State.FAILED]


async def test_all_that_the_error_holds_is_in_the_journal(start: Any) -> None:
    error = InvalidParams("no such city", field="city", hint="Porto")
    error.details = [{"near": ["Porto"]}]
    engine = await start(raising(error))
    task = (await engine.stream())[0].event
    assert mark_of(await engine.get(task)) == {
        "code": -32602,
        "reason": "INVALID_PARAMS",
        "field": "city",
        "metadata": {"hint": "Porto"},
        "details": [{"near": ["Porto"]}],
    }


@pytest.mark.parametrize("kind", ["async def", "async generator", "def", "generator"])
async def test_any_kind_of_skill_may_raise_it(start: Any, kind: str) -> None:
    agent = Agent("test")

    async def coroutine(city: str) -> str:
        raise InvalidParams(f"no such city: {city}")

    async def generator(city: str) -> Any:
        yield "Trip to "
        raise InvalidParams(f"no such city: {city}")

    def function(city: str) -> str:
        raise InvalidParams(f"no such city: {city}")

    def thread_generator(city: str) -> Any:
        yield "Trip to "
        raise InvalidParams(f"no such city: {city}")

    kinds = {"async def": coroutine, "async generator": generator, "def": function, "generator": thread_generator}
    agent.skill(kinds[kind])
    engine = await start(agent)
    with pytest.raises(InvalidParams, match="no such city: Atlantis"):
        await engine.send("Atlantis")


# -- a caller who has the task --------------------------------------------------------------------------------------


async def test_a_caller_who_does_not_wait_gets_a_task_which_fails(start: Any) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> Any:
        await go.wait()
        yield "one"
        raise InvalidParams("no such city")

    engine = await start(run)
    task = await engine.send(wait=False)
    assert task.state is State.WORKING
    go.set()
    failed = await engine.until_state(task, State.FAILED)
    assert (failed.error, mark_of(failed)["reason"], failed.text) == ("no such city", "INVALID_PARAMS", "one")


async def test_a_follow_up_to_a_working_task_gets_that_task(start: Any) -> None:
    async def run(ctx: Context) -> Any:
        async for message in ctx.messages():
            raise InvalidParams(f"no such city: {message.text}")
        yield "never"

    engine = await start(run)
    task = await engine.send(wait=False)
    failed = await engine.send("Atlantis", task=task)
    assert (failed.id, failed.state) == (task.id, State.FAILED)


async def test_a_repeat_gets_the_task_that_the_first_message_made(start: Any) -> None:
    began = []

    async def run(ctx: Context) -> Any:
        began.append(ctx.text)
        raise Overloaded("come back later")
        yield

    engine, message_id = await start(run), str(uuid4())
    with pytest.raises(Overloaded) as caught:
        await engine.send(message_id=message_id)
    answer = await engine.answer(message_id=message_id)
    assert (answer.repeat, answer.result.state, answer.result.error) == (True, State.FAILED, "come back later")
    assert answer.result.id == caught.value.metadata["taskId"]
    assert began == ["go"]


async def test_a_repeat_while_the_first_request_waits_gets_the_task_too(start: Any) -> None:
    go = asyncio.Event()

    async def run(ctx: Context) -> Any:
        await go.wait()
        raise InvalidParams("no such city")
        yield

    engine, message_id = await start(run), str(uuid4())
    first = engine.sending(message_id=message_id)
    await asyncio.sleep(0)
    second = engine.sending(message_id=message_id)
    await asyncio.sleep(0)
    go.set()
    assert (await second).state is State.FAILED
    with pytest.raises(InvalidParams):
        await first


# -- a message that might have been answered without a task ---------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
async def test_a_draft_that_fails_is_an_error_for_streams_too(start: Any, streams: bool) -> None:
    engine = await start(Agent("test", run=raising(InvalidParams("no such city")), replies=True))
    with pytest.raises(InvalidParams) as caught:
        await (engine.stream() if streams else engine.send())
    task = await engine.get(caught.value.metadata["taskId"])
    assert (task.state, task.error) == (State.FAILED, "no such city")


async def test_a_draft_that_has_become_a_task_fails_as_one(start: Any) -> None:
    engine = await start(Agent("test", run=raising(InvalidParams("no such city"), {"a": 1}), replies=True))
    records = await engine.stream()
    assert records[-1].state is State.FAILED


# -- what stays inside ----------------------------------------------------------------------------------------------


async def test_the_answer_of_another_agent_is_no_error_of_this_one(start: Any, caplog: Any) -> None:
    behind = Agent("behind", run=raising(InvalidParams("the secret of 10.0.0.1")))
    with served(behind) as url:
        for target in (behind, url):

            async def run(ctx: Context) -> Any:
                async with Client(target) as client:  # noqa: B023 - it runs in this turn of the loop
                    yield await client.send("hi")

            engine = await start(run)
            task = await engine.send()
            assert (task.state, "secret" in task.error) == (State.FAILED, False)
            assert "the secret of 10.0.0.1" in caplog.text
            caplog.clear()


@pytest.mark.parametrize(
    "error",
    [InvalidParams("secret", field="a"), A2AError("secret", details={"of": object()})],
    ids=["text", "details"],
)
async def test_an_error_that_cannot_be_written_is_hidden_like_any_exception(start: Any, error: A2AError) -> None:
    if error.details is None:
        error.details = "\udce9"
    task = await (await start(raising(error))).send()
    assert task.state is State.FAILED
    assert task.error.startswith("execution failed: Internal error")


async def test_a_text_with_broken_characters_is_sent_all_the_same(start: Any) -> None:
    engine = await start(raising(InvalidParams("cannot open caf\udce9.txt")))
    with pytest.raises(InvalidParams, match=r"caf\?\.txt"):
        await engine.send()


async def test_one_error_raised_for_two_tasks_names_each(start: Any) -> None:
    engine = await start(raising(error := InvalidParams("no such city")))
    ids: set[str] = set()
    for _ in range(2):
        with pytest.raises(InvalidParams) as caught:
            await engine.send()
        ids.add(caught.value.metadata["taskId"])
    assert len(ids) == 2
    assert error.metadata == {}


async def test_the_log_keeps_internal_errors_only(start: Any, caplog: Any) -> None:
    for error, logged in ((InvalidParams("no such city"), False), (InternalError("the disk is full"), True)):
        engine = await start(raising(error))
        with pytest.raises(type(error)):
            await engine.send()
        assert (error.message in caplog.text) is logged


async def test_metadata_of_failures_stays_beside_it(start: Any) -> None:
    metadata = OutputMetadata(failure={"source": "bridge"})
    agent = Agent("test", Backend(raising(InvalidParams("no such city")), output_metadata=metadata))
    task = (await (await start(agent)).stream())[-1].event
    assert task.status.message.metadata["source"] == "bridge"
    assert mark_of(task)["reason"] == "INVALID_PARAMS"


# -- our own client -------------------------------------------------------------------------------------------------


async def test_the_client_raises_it_and_sends_the_message_once() -> None:
    began: list[str] = []
    agent = Agent("test")

    @agent.skill
    async def book(ctx: Context, city: str) -> str:
        began.append(city)
        raise Overloaded("come back later")

    with served(agent, dedupe=0) as url:
        for protocol in ("0.1", "0.3", "1.0", "1.1"):
            for transport in ("jsonrpc", "rest"):
                if (protocol, transport) == ("0.1", "rest"):
                    continue
                async with Client(url, protocol=protocol, transport=transport) as client:
                    with pytest.raises(A2AError, match="come back later"):
                        await client.send("Porto")
                    assert began == ["Porto"]
                    began.clear()
