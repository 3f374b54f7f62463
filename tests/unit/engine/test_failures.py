"""What becomes of exceptions."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from dragoman import Failed
from dragoman.engine.settings import EngineSettings
from dragoman.model.state import State
from dragoman.outputs import Ask


def raising(error: BaseException, *before: Any) -> Any:
    async def run(ctx: Any) -> Any:
        for value in before:
            yield value
        raise error

    return run


@pytest.mark.requirement("S2-102")
async def test_any_other_exception_is_hidden_and_found_in_the_log_by_its_reference(start: Any, caplog: Any) -> None:
    engine = await start(raising(ValueError("secret password")))
    task = await engine.send()
    assert task.state is State.FAILED
    found = re.fullmatch(r"execution failed: Internal error, reference ([0-9a-f]{6})", task.error)
    assert found is not None
    (logged,) = [record for record in caplog.records if found[1] in record.getMessage()]
    assert task.id in logged.getMessage()
    assert logged.exc_info is not None
    assert "secret password" in str(logged.exc_info[1])
    assert (await engine.send()).state is State.FAILED  # the server lives on


async def test_development_shows_the_exception(start: Any) -> None:
    engine = await start(raising(ValueError("bad input")), settings=EngineSettings(show_errors=True, drain=0))
    task = await engine.send()
    assert re.fullmatch(r"execution failed: ValueError: bad input \(reference [0-9a-f]{6}\)", task.error)


async def test_what_was_streamed_before_the_failure_stays(start: Any) -> None:
    engine = await start(raising(Failed("sorry"), "one ", "two"))
    task = await engine.send()
    assert task.text == "one two"
    assert task.error == "sorry"


class Odd(BaseException):
    """Neither an Exception nor a way to stop the process."""


@pytest.mark.parametrize(
    "error",
    [Odd(), SystemExit(3), BaseExceptionGroup("several", [Odd()]), asyncio.CancelledError(), MemoryError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_an_agent_raises_ends_its_task_and_never_the_server(start: Any, error: BaseException) -> None:
    engine = await start(raising(error))
    task = await engine.send()
    assert task.state is State.FAILED
    assert task.error.startswith("execution failed: Internal error")


async def test_a_cancel_of_the_agents_own_making_is_a_failure(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        helper = asyncio.create_task(asyncio.Event().wait())
        helper.cancel()
        yield await helper

    engine = await start(run)
    assert (await engine.send()).state is State.FAILED


async def test_a_text_with_broken_characters_is_told_all_the_same(start: Any) -> None:
    engine = await start(raising(Failed("cannot open caf\udce9.txt")))
    assert (await engine.send()).error == "cannot open caf?.txt"


async def test_an_agent_that_is_no_generator_fails_its_task(start: Any) -> None:
    def run(ctx: Any) -> Any:
        return None

    engine = await start(run)
    assert (await engine.send()).state is State.FAILED


async def test_a_failing_clean_up_is_logged_and_changes_nothing(start: Any, caplog: Any) -> None:
    async def run(ctx: Any) -> Any:
        try:
            yield Ask("?")
        finally:
            raise ZeroDivisionError

    engine = await start(run)
    task = await engine.send()
    await engine.idle()
    assert (await engine.get(task)).state is State.INPUT_REQUIRED
    assert "raised an exception while its generator was being closed" in caplog.text


async def test_a_state_that_cannot_be_read_fails_the_task(start: Any, failing_store: Any) -> None:
    async def unreadable(*_: Any) -> bytes:
        raise OSError("bad sector")

    failing_store.context_state = unreadable

    async def run(ctx: Any) -> Any:
        yield "never"

    engine = await start(run, store=failing_store)
    task = await engine.send(context="c")
    assert task.state is State.FAILED
    assert task.artifacts == ()


async def test_a_caller_who_gave_broken_json_is_served(start: Any) -> None:
    from dragoman import Part

    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            assert ctx.data is None
            yield Ask("?")
        else:
            yield f"{ctx.resume.text} {ctx.resume.data}"

    broken = (Part(text="{no", media_type="application/json"),)
    engine = await start(run)
    task = await engine.send(None, parts=broken)
    assert (await engine.send(None, parts=broken, task=task)).text == "{no None"
