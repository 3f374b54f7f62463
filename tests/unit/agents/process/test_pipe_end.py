"""One end of a pipe in the hands of an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from dragoman.agents.process.guard.spawner import PipeEnd


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_symlink()


def test_it_is_closed_once() -> None:
    ours, theirs = os.pipe()
    end = PipeEnd(ours)
    assert end.fileno() == ours
    end.close()
    assert not is_open(ours)
    os.dup2(theirs, ours)
    end.close()
    assert is_open(ours)
    os.close(ours)
    os.close(theirs)


def test_a_file_that_has_its_number_by_now_is_left_alone(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    end = PipeEnd(ours)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), ours)  # closed by somebody, and opened by somebody else
    end.close()
    assert os.write(ours, b"still open") == 10
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_every_event_loop_closes_it(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario(reads: bool) -> None:
        ours, theirs = os.pipe() if reads else reversed(os.pipe())
        gone = asyncio.Event()

        class Ends(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                gone.set()

        loop = asyncio.get_running_loop()
        connect = loop.connect_read_pipe if reads else loop.connect_write_pipe
        transport, _ = await connect(Ends, PipeEnd(ours))
        transport.close()
        await gone.wait()
        await asyncio.sleep(0)
        assert not is_open(ours)
        os.close(theirs)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        for reads in (True, False):
            runner.run(scenario(reads))
