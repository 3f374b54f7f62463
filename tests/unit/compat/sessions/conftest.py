"""The functions of sessions on time that stands still, with programs that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.session_programs import SessionPrograms

from dragoman.compat.sessions import TaskDeps, clear_task_store, handle_task_get, handle_task_send
from dragoman.testing import Clock

SECONDS = 10  # what hangs fails, long before the suite's own limit
AGENT = {"id": "a1", "name": "Ada", "defaultProjectId": "p1"}


class Bench:
    """The functions under test with everything they need, on time that stands still."""

    def __init__(self) -> None:
        self.programs = SessionPrograms()
        self.clock = Clock()
        self.agents: list[Any] = [AGENT]
        self.deps = TaskDeps(self.programs, lambda: self.agents, clock=self.clock)

    @property
    def started(self) -> list[tuple[Any, str, dict[str, Any]]]:
        """Session, prompt and options of every program that was started."""
        return self.programs.started

    @property
    def listening(self) -> int:
        """How many callbacks are subscribed."""
        return self.programs.listening

    async def send(self, message: str = "Hello", **params: Any) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await handle_task_send(self.deps, {"params": {"message": message, **params}})

    def emit(self, task: dict[str, Any], kind: str, **members: Any) -> None:
        """Let something happen in the session of a task."""
        self.programs.emit(task["sessionId"], type=kind, **members)

    def says(self, task: dict[str, Any], content: Any) -> None:
        self.emit(task, "assistant", message={"content": content})

    async def get(self, task: dict[str, Any]) -> dict[str, Any]:
        found = await handle_task_get(task["id"])
        assert found is not None
        return found

    async def quiet(self) -> None:
        """Let everything go on that can."""
        await self.clock.advance(0)

    async def ended(self, task: dict[str, Any]) -> dict[str, Any]:
        """The task, once it has ended."""
        async with asyncio.timeout(SECONDS):
            while (found := await self.get(task))["state"] not in ("completed", "failed"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await self.quiet()
        return found


def texts(task: dict[str, Any], role: str = "agent") -> list[str]:
    return [message["parts"][0]["text"] for message in task["messages"] if message["role"] == role]


@pytest.fixture
async def bench() -> Any:
    made = Bench()
    yield made
    clear_task_store()
    await made.quiet()
    assert made.clock.pending == 0
    assert made.listening == 0


@pytest.fixture(name="texts")
def texts_fixture() -> Callable[..., list[str]]:
    return texts
