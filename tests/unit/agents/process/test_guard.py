"""The guard starts programs, tells how they end, and leaves nothing of them."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from dragoman.agents.process.guard.client import Child, GuardClient, NotStarted, acquire_guard, release_guard

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs need POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the system must hand over orphans")

# Becomes a daemon as the books have it: forks, leads a session, forks again. Its output stays open as long as it lives.
DAEMON = """
import os, signal, sys
if os.fork():
    os.wait()
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "bare" in sys.argv:
    os.execve("/bin/sh", ["sh", "-c", "echo daemon; exec sleep 1000"], {"PATH": os.environ["PATH"]})
os.write(1, b"daemon\\n")
while True:
    signal.pause()
"""


class Stage:
    """Starts programs and reads what they say. The end of what one says means that all of it has gone."""

    def __init__(self, keeper: GuardClient) -> None:
        self.keeper = keeper

    async def start(
        self,
        *argv: str,
        path: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path = "/",
        **limits: int,
    ) -> tuple[Child, asyncio.StreamReader]:
        nothing = os.open(os.devnull, os.O_RDONLY)
        ours, theirs = os.pipe()
        pipe = os.fdopen(ours, "rb", 0)
        try:
            child = await self.keeper.spawn(
                path or argv[0],
                argv,
                env={"PATH": os.environ["PATH"], **(env or {})},
                cwd=cwd,
                stdin=nothing,
                stdout=theirs,
                stderr=theirs,
                limits=limits,
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(nothing)
            os.close(theirs)
        output = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), pipe)
        return child, output

    async def shell(self, script: str, **more: int | str) -> tuple[Child, asyncio.StreamReader]:
        return await self.start("/bin/sh", "-c", script, **more)  # type: ignore[arg-type]

    async def python(self, script: str, *args: str, **limits: int) -> tuple[Child, asyncio.StreamReader]:
        return await self.start(sys.executable, "-I", "-S", "-c", script, *args, **limits)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    keeper = await acquire_guard()
    yield Stage(keeper)
    await release_guard(keeper)


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_an_exit_is_reported_before_the_report_that_nothing_is_left(stage: Stage) -> None:
    child, output = await stage.shell("trap 'echo done; exit 7' USR1; sleep 1000 & echo $$; wait")
    assert int(await output.readline()) == child.pid
    order: list[str] = []
    child.exited.add_done_callback(lambda _: order.append("exited"))
    child.clean.add_done_callback(lambda _: order.append("clean"))
    child.signal(signal.SIGUSR1)
    await child.clean
    assert child.exited.result() == 7
    assert order == ["exited", "clean"]
    assert await output.read() == b"done\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP])
async def test_a_program_that_dies_of_a_signal_has_its_number_as_a_negative_code(stage: Stage, number: int) -> None:
    child, _ = await stage.shell(f"kill -{int(number)} $$")
    assert await child.exited == -number


async def test_a_signal_reaches_the_program_and_its_children(stage: Stage) -> None:
    child, output = await stage.shell("trap 'echo heard; exit 3' USR1; sleep 1000 & echo ready; wait; wait")
    assert await output.readline() == b"ready\n"
    child.signal(signal.SIGUSR1)
    assert await child.exited == 3
    assert await output.read() == b"heard\n"


async def test_a_signal_sent_right_after_the_start_is_not_lost(stage: Stage) -> None:
    children = [await stage.start("/bin/sleep", "1000") for _ in range(10)]
    for child, _ in children:
        child.end(60)
    assert [await child.exited for child, _ in children] == [-signal.SIGTERM] * 10


async def test_a_program_inherits_its_streams_and_nothing_else(stage: Stage) -> None:
    _, output = await stage.shell("ulimit -c; grep -E 'SigBlk|SigIgn' /proc/self/status; exec ls /proc/self/fd")
    core, blocked, ignored, *descriptors = (await output.read()).decode().split("\n")
    assert core == "0"
    # Signals 32 and 33 are the C library's own: nobody else can change what they do.
    assert int(blocked.split()[1], 16) == int(ignored.split()[1], 16) & ~(3 << 31) == 0
    assert descriptors == ["0", "1", "2", "3", ""]  # 3 is what ls reads


async def test_a_program_leads_a_session_of_its_own(stage: Stage) -> None:
    child, _ = await stage.start("/bin/sleep", "1000")
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert len({os.getsid(0), os.getsid(stage.keeper.pid), child.pid}) == 3


# -- starts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "cwd", "number", "step"),
    [
        ("missing", ".", errno.ENOENT, "exec"),
        ("folder", ".", errno.EACCES, "exec"),
        ("text", ".", errno.EACCES, "exec"),
        ("wrong", ".", errno.ENOEXEC, "exec"),
        ("wrong/deeper", ".", errno.ENOTDIR, "exec"),
        ("/bin/true", "missing", errno.ENOENT, "chdir"),
        ("/bin/true", "text", errno.ENOTDIR, "chdir"),
    ],
)
async def test_a_program_that_cannot_be_started_raises_with_the_reason_and_the_step(
    stage: Stage, tmp_path: Path, path: str, cwd: str, number: int, step: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "wrong").write_text("hello")
    (tmp_path / "wrong").chmod(0o755)
    with pytest.raises(NotStarted) as raised:
        await stage.start("name", path=str(tmp_path / path), cwd=tmp_path / cwd)
    assert (raised.value.errno, raised.value.step) == (number, step)
    assert os.strerror(number) in str(raised.value)


@pytest.mark.parametrize(("argument", "number"), [("a\0b", errno.EINVAL), ("a" * 3_000_000, errno.E2BIG)])
async def test_an_argument_that_no_program_can_take_raises(stage: Stage, argument: str, number: int) -> None:
    with pytest.raises(NotStarted) as raised:
        await stage.start("/bin/echo", argument)
    assert raised.value.errno == number
    child, _ = await stage.shell("exit 4")
    assert await child.exited == 4


async def test_an_executable_that_is_still_being_written_is_tried_again(stage: Stage, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    shutil.copyfile("/bin/true", busy)
    busy.chmod(0o755)
    held = os.open(busy, os.O_WRONLY)
    asyncio.get_running_loop().call_later(0.03, os.close, held)
    child, _ = await stage.start(str(busy))
    assert await child.exited == 0


async def test_texts_arrive_as_the_bytes_they_are(stage: Stage) -> None:
    odd = os.fsdecode(b"\xff\xe9=\n\x01") + "Grüße 🦜"
    child, output = await stage.start("/bin/sh", "-c", 'printf %s "$ODD:$1"', "sh", odd, env={"ODD": odd})
    assert await output.read() == os.fsencode(odd) + b":" + os.fsencode(odd)
    assert await child.exited == 0


async def test_an_environment_larger_than_the_sockets_buffer_arrives_and_others_do_meanwhile(stage: Stage) -> None:
    large = {f"LARGE{number}": str(number) * 100_000 for number in range(10)}
    script = "echo " + " ".join(f"${{#LARGE{number}}}" for number in range(10))
    started = await asyncio.gather(*(stage.shell(script, env=large if n % 2 else {}) for n in range(8)))  # type: ignore[arg-type]
    output = [await one.read() for _, one in started]
    assert output == [b"0 0 0 0 0 0 0 0 0 0\n", b" ".join([b"100000"] * 10) + b"\n"] * 4


async def test_fifty_start_at_once_and_none_is_taken_for_another(stage: Stage) -> None:
    started = await asyncio.gather(*(stage.shell(f"echo {number}; exit {number}") for number in range(50)))
    assert [int(await output.read()) for _, output in started] == list(range(50))
    assert [await child.exited for child, _ in started] == list(range(50))
    assert len({child.pid for child, _ in started}) == 50


async def test_a_start_that_nobody_waits_for_any_more_is_undone(stage: Stage) -> None:
    ours, theirs = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    starting = asyncio.ensure_future(
        stage.keeper.spawn(
            "/bin/sleep", ["sleep", "1000"], env={}, cwd="/", stdin=nothing, stdout=theirs, stderr=theirs, limits={}
        )
    )
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.close(theirs)
    os.close(nothing)
    assert await asyncio.to_thread(os.read, ours, 1) == b""
    os.close(ours)


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_a_program_opens_no_more_files_than_its_limit(stage: Stage) -> None:
    script = "import os\ntry:\n while True: os.dup(0)\nexcept OSError as e: print(os.dup2(0, 2) and e.errno)"
    _, output = await stage.python(script, files=20)
    assert await output.read() == b"%d\n" % errno.EMFILE
    _, output = await stage.shell("ulimit -n; ulimit -Hn", files=20)
    assert await output.read() == b"20\n20\n"


async def test_a_limit_above_what_the_system_allows_is_what_the_system_allows(stage: Stage) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, output = await stage.shell("ulimit -n", files=hard + 1)
    assert int(await output.read()) == hard


# -- endings -----------------------------------------------------------------------------------------------------------


async def test_a_program_that_ignores_the_request_to_end_is_killed_after_its_grace(stage: Stage) -> None:
    child, output = await stage.shell("trap '' TERM; echo ready; while :; do sleep 1000; done")
    await output.readline()
    child.end(60)
    began = time.monotonic()
    child.end(0.1)
    child.end(60)
    assert await child.exited == -signal.SIGKILL
    assert 0.1 <= time.monotonic() - began < 60  # that is, after its own grace and not after the others
    assert await output.read() == b""
    await child.clean
    child.end(0)
    child.signal(signal.SIGTERM)


async def test_a_program_is_asked_to_end_only_once(stage: Stage) -> None:
    child, output = await stage.python(
        "import signal, os\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'asked\\n'))\n"
        "os.write(1, b'ready\\n')\nwhile True: signal.pause()"
    )
    await output.readline()
    for grace in (60, 50, 40):
        child.end(grace)
    assert await output.readline() == b"asked\n"
    child.end(0)
    assert await output.read() == b""


async def test_a_stopped_program_receives_the_request_to_end(stage: Stage) -> None:
    child, output = await stage.shell("trap 'echo heard; exit 0' TERM; sleep 1000 & echo ready; wait")
    await output.readline()
    child.signal(signal.SIGSTOP)
    child.end(60)
    assert await child.exited == 0
    assert await output.read() == b"heard\n"


@linux
async def test_children_that_outlive_their_program_are_asked_to_end(stage: Stage) -> None:
    child, output = await stage.shell("(trap 'echo heard; exit' TERM; sleep 1000 & echo ready; wait) & wait")
    assert await output.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    assert await child.exited == -signal.SIGKILL
    assert await output.read() == b"heard\n"
    await child.clean


@linux
@pytest.mark.parametrize("kind", ["plain", "stubborn", "bare"])
async def test_a_daemon_ends_with_the_program_that_left_it(stage: Stage, kind: str) -> None:
    child, output = await stage.python(DAEMON, kind)
    assert await child.exited == 0
    await child.clean
    assert (await output.read()) in (b"daemon\n", b"")


@linux
@pytest.mark.parametrize("words", [(), ("bare",)], ids=["its own", "of an unknown program"])
async def test_a_daemon_is_left_alone_until_the_last_program_ends_that_it_can_be_of(
    stage: Stage, words: tuple[str, ...]
) -> None:
    mine, output = await stage.python(DAEMON.replace("sys.exit(0)", "signal.pause()"), *words)
    assert await output.readline() == b"daemon\n"
    other, _ = await stage.shell("exit 0")
    await other.clean
    assert not output.at_eof()
    assert not mine.exited.done()
    mine.end(0)
    assert await output.read() == b""
    await mine.clean
