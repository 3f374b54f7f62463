"""What a user sees of an error: their own lines, and few others."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Client, sync
from dragoman.errors import CannotConnect, TaskNotFound, TimedOut
from dragoman.model.error import DragomanError

NOBODY = "http://127.0.0.1:1"


def printed(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.send("hello"),
        lambda client: client.card(),
        lambda client: list(client.stream("hello")),
        lambda client: list(client.stream("hello").text()),
        lambda client: list(client.list_tasks()),
        lambda client: client.chat().send("hello"),
    ],
)
def test_a_refused_connection_is_a_traceback_of_a_few_lines(call: Callable[[Any], Any]) -> None:
    with sync.Client(NOBODY) as client, pytest.raises(CannotConnect) as caught:
        call(client)
    lines = printed(caught.value)
    assert len(lines) <= 13
    assert not any("asyncio" in line or "/net/" in line or "concurrent" in line for line in lines)
    assert "nobody answers at http://127.0.0.1:1" in lines[-1]


async def test_so_it_is_with_the_async_client() -> None:
    async with Client(NOBODY) as client:
        with pytest.raises(CannotConnect) as refused:
            await client.send("hello")
        with pytest.raises(CannotConnect) as unread:
            async for _ in client.stream("hello"):
                pass
    for caught in (refused, unread):
        lines = printed(caught.value)
        assert len(lines) <= 13
        assert not any("/net/" in line or "During handling" in line for line in lines)


def test_a_timeout_is_a_kind_of_its_own() -> None:
    assert issubclass(TimedOut, CannotConnect)
    assert TimedOut("late").reason == "TIMED_OUT"
    assert not issubclass(TaskNotFound, TimedOut)
    assert issubclass(TimedOut, DragomanError)
