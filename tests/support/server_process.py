"""A server in a process of its own that prints where it listens."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from support.command import DRAGOMAN, clean_environment

# The line with the address of the first agent, and the last line of the start of `dragoman serve`.
CARD_LINE = r"^\s+card\s+(https?://\S+?)/\.well-known"
LAST_LINE = r"^\s+try\s+"


class ServerProcess:
    """A server that runs from its construction on. Used as a context, it is ready inside, and killed at the end.

    Both its streams are read while it runs, so that it never waits for a reader: `output` are the lines of its stderr
    so far (with `merged`, those of its stdout too), `stdout` the rest. `seconds` bounds every wait for it.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        address: str = CARD_LINE,
        merged: bool = False,
        has_input: bool = False,
        starts_session: bool = False,
        seconds: float = 30.0,
    ) -> None:
        """Start it in a folder. `address` is a pattern of the line with its URL, the URL its first group."""
        self.folder = folder
        self.url = ""
        self.output: list[str] = []
        self.seconds = seconds
        self._address = re.compile(address)
        self._read = 0  # lines that a wait has passed
        self._changed = threading.Condition()
        self._is_closed = False  # its output
        self._stdout: list[str] = []
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=starts_session,
        )
        self.pid = self.process.pid
        readers = [self._read_output] if merged else [self._read_output, self._read_stdout]
        self._readers = [threading.Thread(target=reader, daemon=True) for reader in readers]
        for reader in self._readers:
            reader.start()

    @classmethod
    def serve(
        cls,
        folder: Path,
        *words: str | Path,
        environment: Mapping[str, str] | None = None,
        store: str | None = "memory:",
        address: str = CARD_LINE,
    ) -> Self:
        """`dragoman serve` with these words, at a free port, in a clean environment by default."""
        chosen = [] if store is None else ["--store", store]
        return cls(
            [*DRAGOMAN, "serve", *words, "--port", "0", *chosen],
            folder,
            environment=clean_environment() if environment is None else environment,
            address=address,
        )

    def _read_output(self) -> None:
        stream = self.process.stderr or self.process.stdout
        assert stream is not None
        with stream:
            for line in stream:
                with self._changed:
                    self.output.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self._stdout.extend(self.process.stdout)

    @property
    def stdout(self) -> str:
        """What it has printed to stdout, if that is not merged with stderr: all of it after `wait`."""
        return "".join(self._stdout)

    @property
    def text(self) -> str:
        """Everything it has printed so far."""
        with self._changed:
            return "".join(self.output)

    @property
    def unread(self) -> str:
        """What it has printed after what was waited for."""
        with self._changed:
            return "".join(self.output[self._read :])

    def ready(self) -> Self:
        """Wait until it has printed its address, which is `url` from then on.

        Raises:
            AssertionError: it ended without, or did not in time. It is killed.
        """
        try:
            self.url = self.find(self._address)[1]
        except AssertionError:
            self.close()
            raise
        return self

    def lines(self, count: int) -> list[str]:
        """Wait for so many lines after those that were waited for, and return them without their ends.

        Raises:
            AssertionError: it ended before, or did not print them in time.
        """
        return [self.find("").string.rstrip("\n") for _ in range(count)]

    def until(self, text: str) -> str:
        """Wait for a line with this text after those that were waited for, and return it.

        Raises:
            AssertionError: it ended without, or did not print one in time.
        """
        return self.find(re.compile(re.escape(text))).string

    def find(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """Wait for a line that matches after those that were waited for, and return the match.

        Raises:
            AssertionError: it ended without, or did not print one in time.
        """
        pattern = re.compile(pattern)
        deadline = time.monotonic() + self.seconds
        with self._changed:
            while True:
                while self._read < len(self.output):
                    self._read += 1
                    if found := pattern.search(self.output[self._read - 1]):
                        return found
                printed = "".join(self.output)
                assert not self._is_closed, f"the process ended without {pattern.pattern!r}:\n{printed}"
                waited = self._changed.wait(deadline - time.monotonic())
                assert waited, f"no {pattern.pattern!r} in {self.seconds} seconds:\n{printed}"

    def write(self, text: str) -> None:
        """Write to its stdin, which it has with `has_input`."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def tracebacks(self) -> list[str]:
        """The lines that no operator should see."""
        return [line for line in self.output if "Traceback" in line]

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        self.process.send_signal(number)

    def pause(self) -> None:
        """Stop it in the middle of whatever it does, as a machine does that is suspended."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.send_signal(signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end."""
        self.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait for it: its exit code."""
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """End it as a crash does. Does nothing when it has ended."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait for its end, and for the end of its output: its exit code.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        code = self.process.wait(self.seconds)
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        for reader in self._readers:
            reader.join(self.seconds)
        return code

    def close(self) -> None:
        """Kill it if it still runs."""
        self.kill()

    def __enter__(self) -> Self:
        return self.ready()

    def __exit__(self, *_: object) -> None:
        self.close()
