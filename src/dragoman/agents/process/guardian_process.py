"""The process that the guardian is, seen from the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# What marks the environment of a program and of all it starts.
MARK = "DRAGOMAN_PROCESS"
# All that a Python needs to start, and what marks this process where it is a program of another server's itself.
_KEPT = ("DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", MARK)
# How many files this process may have open, where the system allows it: every program takes a few.
_OPEN_FILES = 65536
# How many it could have open before that.
_open_files: int | None = None


def start_guardian(descriptor: int) -> subprocess.Popen[bytes]:
    """Start it on its end of a socket. Raises OSError when that is not possible."""
    global _open_files  # noqa: PLW0603 - the limit is the process's
    if _open_files is None:
        _open_files = _raise_open_files()
    main = Path(__file__).with_name("guardian_main.py")
    # It ignores requests to end, but not before it runs.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(main), str(descriptor), str(_open_files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if sys.stderr else subprocess.DEVNULL,
            pass_fds=(descriptor,),
            cwd="/",
            # Programs run as the same user, and can read what the guardian was started with.
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            # What a terminal sends is for the server, which then ends its programs in its own way.
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _raise_open_files() -> int:
    """Let this process have many files open. What it could have before is what its programs get."""
    import resource  # there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft


def end_left(programs: Mapping[str, int]) -> None:
    """Kill what programs leave when their guardian is killed: their groups, and whatever bears their marks.

    The programs are given as their marks and their pids, 0 for those whose pid is not known.
    """
    for pid in programs.values():
        if pid:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
    marks = {f"{MARK}={mark}".encode() for mark in programs}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marks.intersection((process / "environ").read_bytes().split(b"\0")):
                os.kill(int(process.name), signal.SIGKILL)
