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

from .conftest import raising


async def test_development_shows_the_exception(start: Any) -> None:
    engine = await start(raising(ValueError("bad input")), settings=EngineSettings(show_errors=True, drain=0))
    task = await engine.send()
    assert re.fullmatch(r"execution failed: ValueError: bad input \(reference [0-9a-f]{6}\)", task.error)


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


async def test_a_reason_with_broken_characters_is_sent_with_replacements(start: Any) -> None:
    engine = await start(raising(Failed("cannot open caf\udce9.txt")))
    assert (await engine.send()).error == "cannot open caf?.txt"


async def test_an_agent_that_is_no_generator_fails_its_task(start: Any) -> None:
    def run(ctx: Any) -> Any:
        return None

    engine = await start(run)
    assert (await engine.send()).state is State.FAILED


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
