"""Several event loops in one process: each has tasks of its own."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.compat.sessions import TaskDeps, clear_task_store, handle_task_get, handle_task_send
from dragoman.compat.sessions.tasks import _TASKS_BY_LOOP

SECONDS = 10


class Programs:
    """Programs that go on until they are stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def subscribe(self, session_id: str, callback: Callable[[str, Any], Any]) -> Callable[[], None]:
        return lambda: None

    def start_process(self, session: Any, prompt: str, **options: Any) -> None:
        return

    def stop_process(self, session_id: str, reason: str = "") -> None:
        self.stopped.set()


async def sent(programs: Programs) -> str:
    deps = TaskDeps(programs, lambda: [{"id": "a1", "name": "Ada", "defaultProjectId": "p1"}])
    return (await handle_task_send(deps, {"message": "Hello"}))["id"]


class Elsewhere:
    """A loop in a thread, with a task in it."""

    def __init__(self) -> None:
        self.programs = Programs()
        self.task_id = ""
        self._has_sent, self._leave = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._stay()))

    async def _stay(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.task_id = await sent(self.programs)
        self._has_sent.set()
        await self._leave.wait()

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        assert self._has_sent.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def found(self) -> dict[str, Any] | None:
        """The task, as the loop knows it."""
        return asyncio.run_coroutine_threadsafe(handle_task_get(self.task_id), self.loop).result(SECONDS)


@pytest.fixture(autouse=True)
def nothing_from_before() -> None:
    clear_task_store()


def test_a_second_loop_leaves_the_tasks_of_the_first_alone() -> None:
    async def here(other: Elsewhere) -> None:
        task_id = await sent(Programs())
        assert await handle_task_get(task_id) is not None
        assert await handle_task_get(other.task_id) is None

    with Elsewhere() as other:
        asyncio.run(here(other))
        found = other.found()
        assert found is not None
        assert found["state"] == "working"
        assert not other.programs.stopped.is_set()


@pytest.mark.parametrize("is_inside", [False, True], ids=["outside of loops", "in another loop"])
def test_to_forget_all_tasks_is_to_forget_those_of_other_loops_too(is_inside: bool) -> None:
    async def clear() -> None:
        clear_task_store()

    with Elsewhere() as other:
        if is_inside:
            asyncio.run(clear())
        else:
            clear_task_store()
        assert other.found() is None
        # It was ended by its own loop.
        assert other.programs.stopped.wait(SECONDS)


def test_nothing_is_kept_of_loops_that_are_closed() -> None:
    for _ in range(5):
        asyncio.run(sent(Programs()))
    gc.collect()
    asyncio.run(handle_task_get("none"))
    assert len(_TASKS_BY_LOOP) <= 1
