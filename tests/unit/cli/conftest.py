"""Commands as they are typed: in a pipe, and on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman.cli.main import main

SRC = Path(__file__).resolve().parents[3] / "src"
DRAGOMAN = [sys.executable, "-m", "dragoman.cli.main"]
PATIENCE = 30.0
PAUSE = 5.0  # before Ctrl-C is pressed once more

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SRC), "PYTHONWARNINGS": "error", **more}


class Ended(NamedTuple):
    """How a command line ended that ran in this process."""

    code: int
    out: str
    err: str


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command line in this process, in a folder of its own: quicker than a process, and no terminal."""
    for name in ("DRAGOMAN_AGENT", "DRAGOMAN_URL", "DRAGOMAN_TOKEN", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(words)
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in a folder of its own; `typed` is what stands on its stdin."""

    def run(*args: str, typed: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DRAGOMAN, *args],
            cwd=tmp_path,
            env=environment(tmp_path, **environ),
            input=typed,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


class Terminal:
    """A command on a terminal, or another program. With `piped`, stdout goes into a pipe, the rest to the terminal."""

    def __init__(
        self,
        args: tuple[str, ...],
        folder: Path,
        *,
        piped: bool = False,
        program: Sequence[str] = DRAGOMAN,
        **environ: str,
    ) -> None:
        self._master, slave = pty.openpty()
        self.initial_mode = self.mode  # before the program can change it
        self.seen = ""
        self.process = subprocess.Popen(
            [*program, *args],
            cwd=folder,
            env=environment(folder, **{"TERM": "xterm", **environ}),
            stdin=slave,
            stdout=subprocess.PIPE if piped else slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def until(self, text: str) -> str:
        """Wait until the screen says this after what was waited for last, and give what came before it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert self._read(deadline), f"it ended without {text!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    @property
    def mode(self) -> list[Any]:
        """The mode of the terminal: whether it echoes, waits for whole lines, and so on."""
        return termios.tcgetattr(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def interrupt_until(self, text: str) -> str:
        """Ctrl-C at a prompt, repeated like `interrupted` until the screen says this."""
        for _ in range(int(PATIENCE / PAUSE)):
            self.interrupt()
            deadline = time.monotonic() + PAUSE
            while text not in self.seen and self._can_read(deadline) and self._read(deadline):
                pass
            if text in self.seen or self.process.poll() is not None:
                break
        return self.until(text)

    def interrupted(self) -> tuple[int, str]:
        """Ctrl-C at a prompt, and the end. One that comes between the prompt and the reading is not heard: repeat."""
        for _ in range(int(PATIENCE)):
            self.interrupt()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
                break
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end; gives the exit code and what was still said."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE), self.seen

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._master >= 0:
            os.close(self._master)

    def _can_read(self, deadline: float) -> bool:
        return bool(select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0])

    def _read(self, deadline: float) -> bool:
        assert self._can_read(deadline), f"nothing more came: {self.seen!r}"
        # A terminal that nobody has open any more is an error on Linux.
        with suppress(OSError):
            if chunk := os.read(self._master, 4096):
                self.seen += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
                return True
        return False


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Open terminals; they are closed at the end."""
    opened: list[Terminal] = []

    def open_terminal(*args: str, **options: Any) -> Terminal:
        opened.append(Terminal(args, tmp_path, **options))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()
