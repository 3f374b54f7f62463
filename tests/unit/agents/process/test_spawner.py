"""The pipes of a program: where the system has no more of them, and one end in the hands of an event loop."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from dragoman.agents.process.guard.spawner import PipeEnd, Pipes


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_symlink()


@pytest.mark.parametrize("available", [0, 1, 2])
def test_when_a_later_pipe_cannot_be_opened_the_earlier_ones_are_closed(
    available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    pipe = os.pipe

    def few() -> tuple[int, int]:
        if len(opened) == 2 * available:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ends = pipe()
        opened.extend(ends)
        return ends

    monkeypatch.setattr(os, "pipe", few)
    with pytest.raises(OSError, match="Too many open files"):
        Pipes()
    assert len(opened) == 2 * available
    assert [each for each in opened if is_open(each)] == []


def test_an_end_of_a_pipe_is_closed_once() -> None:
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


def test_closing_an_end_leaves_a_file_alone_that_has_its_number_by_now(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    end = PipeEnd(ours)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), ours)  # closed by somebody, and opened by somebody else
    end.close()
    assert os.write(ours, b"still open") == 10
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_every_event_loop_closes_an_end_of_a_pipe(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
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
