"""The guard itself: who shares it, how it ends, and what happens when it or its server is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from dragoman.agents.process.guard.client import Child, GuardClient, GuardLost, acquire_guard, release_guard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A program that is hard to end: it ignores requests, and so do its child and the daemon it leaves.
HARD = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork() and not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(1, b"daemon\\n")
while True:
    signal.pause()
"""

# What every server of these tests begins with. Its programs have its descriptor OUTPUT as their output.
SERVER = """
import asyncio, os, signal, sys
from dragoman.agents.process.guard.client import acquire_guard
OUTPUT = int(sys.argv[1])
async def start(keeper, *argv, stdin=0):
    env = dict(os.environ)
    return await keeper.spawn(argv[0], argv, env=env, cwd="/", stdin=stdin, stdout=OUTPUT, stderr=OUTPUT, limits={})
"""


async def start(keeper: GuardClient, *argv: str, output: int) -> Child:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return await keeper.spawn(
            argv[0], argv, env={}, cwd="/", stdin=nothing, stdout=output, stderr=output, limits={}
        )
    finally:
        os.close(nothing)


@contextmanager
def serving(script: str, *, lines: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes]]]:
    """A server process, after its programs have said so many lines; and all that they say from then until they end."""
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER + script, str(theirs)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[theirs],
        start_new_session=True,
    )
    os.close(theirs)
    with process, os.fdopen(ours, "rb", 0) as stream:
        try:
            for _ in range(lines):
                stream.readline()
            yield process, stream.read
        finally:
            process.kill()


def open_descriptors() -> dict[str, str]:
    return {one.name: str(one.readlink()) for one in list(Path("/proc/self/fd").iterdir()) if one.is_symlink()}


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


# -- sharing and closing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_closing_ends_everything_and_leaves_no_descriptor_and_no_process(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    before = children()

    async def scenario() -> None:
        descriptors = open_descriptors()
        keeper = await acquire_guard()
        ours, theirs = os.pipe()
        running = [await start(keeper, sys.executable, "-ISc", HARD, output=theirs) for _ in range(3)]
        done = await start(keeper, "/bin/true", output=theirs)
        assert await done.exited == 0
        await done.clean
        large = "x" * 100_000
        unread = await asyncio.gather(*(start(keeper, "/bin/echo", *[large] * 5, output=theirs) for _ in range(5)))
        os.close(theirs)
        await release_guard(keeper)
        assert [child.exited.result() for child in running] == [-signal.SIGKILL] * 3
        assert all(child.clean.done() for child in (*running, *unread))
        with os.fdopen(ours, "rb") as stream:
            stream.read()  # ends only when nobody holds the other end
        assert open_descriptors() == descriptors

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())
    assert children() == before


async def test_all_share_one_until_the_last_one_releases_it() -> None:
    first, second = await acquire_guard(), await acquire_guard()
    assert first is second
    await release_guard(first)
    assert second.alive
    await release_guard(second)
    assert not second.alive
    with pytest.raises(GuardLost):
        await start(second, "/bin/true", output=2)
    third = await acquire_guard()
    assert third is not first
    await release_guard(third)


async def test_a_start_under_way_when_it_is_closed_comes_to_nothing() -> None:
    keeper = await acquire_guard()
    starting = [asyncio.ensure_future(start(keeper, "/bin/sleep", "1000", output=2)) for _ in range(5)]
    await asyncio.sleep(0)
    await release_guard(keeper)
    for outcome in await asyncio.gather(*starting, return_exceptions=True):
        if isinstance(outcome, Child):
            assert outcome.exited.result() == -signal.SIGKILL
        else:
            assert isinstance(outcome, GuardLost)


def test_one_whose_event_loop_has_ended_is_ended_when_the_next_is_wanted() -> None:
    ours, theirs = os.pipe()

    async def forgetful() -> int:
        keeper = await acquire_guard()
        await start(keeper, "/bin/sleep", "1000", output=theirs)
        return keeper.pid

    async def next_one() -> None:
        await release_guard(await acquire_guard())

    pid = asyncio.run(forgetful())
    os.close(theirs)
    assert str(pid) in children()
    asyncio.run(next_one())
    assert str(pid) not in children()
    with os.fdopen(ours, "rb") as stream:
        assert stream.read() == b""


# -- when it is killed -------------------------------------------------------------------------------------------------


async def test_requests_to_end_that_others_send_it_do_not_end_it() -> None:
    keeper = await acquire_guard()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(keeper.pid, number)
    child = await start(keeper, "/bin/true", output=2)
    assert await child.exited == 0
    await release_guard(keeper)


# -- when the server is killed -----------------------------------------------------------------------------------------


def test_no_program_outlives_a_server_that_is_killed_while_its_programs_start() -> None:
    script = """
async def main():
    keeper = await acquire_guard()
    await asyncio.gather(*(start(keeper, "/bin/sh", "-c", "echo; exec sleep 1000") for _ in range(40)))
asyncio.run(main())
"""
    with serving(script, lines=1) as (server, rest):
        server.kill()
        assert set(rest()) <= set(b"\n")


def test_no_program_outlives_a_killed_server_whose_fork_keeps_its_descriptors() -> None:
    script = """
async def main():
    keeper = await acquire_guard()
    await start(keeper, "/bin/sh", "-c", "echo; exec sleep 1000")
    ours, theirs = os.pipe()
    if not os.fork():
        os.close(OUTPUT)
        print(os.getpid(), flush=True)
        signal.pause()
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with serving(script, lines=1) as (server, rest):
        assert server.stdout is not None
        fork = int(server.stdout.readline())
        server.kill()
        assert rest() == b""
        os.kill(fork, signal.SIGKILL)


def test_an_interrupt_from_the_terminal_is_for_the_server_alone() -> None:
    script = """
async def main():
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    keeper = await acquire_guard()
    theirs, ours = os.pipe()
    cat = await start(keeper, "/bin/cat", stdin=theirs)
    os.write(ours, b"ready\\n")
    await interrupted.wait()
    os.write(ours, b"still here\\n")
    os.close(ours)
    os.close(theirs)
    print(await cat.exited, flush=True)
    await keeper.close()
asyncio.run(main())
"""
    with serving(script, lines=1) as (server, rest):
        assert server.stdout is not None
        os.killpg(server.pid, signal.SIGINT)
        assert server.stdout.readline() == b"0\n"
        assert server.wait() == 0
        assert rest() == b"still here\n"


def test_the_server_may_open_more_files_and_its_programs_as_many_as_before() -> None:
    script = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 5000))
async def main():
    for _ in range(2):
        keeper = await acquire_guard()
        await (await start(keeper, "/bin/sh", "-c", "ulimit -n")).exited
        await keeper.close()
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
asyncio.run(main())
"""
    with serving(script) as (server, rest):
        assert server.stdout is not None
        assert server.stdout.read() == b"5000 5000\n"
        assert rest() == b"300\n300\n"
