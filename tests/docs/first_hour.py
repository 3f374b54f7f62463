"""The first hour of a newcomer, without the reading: from a clean clone to an agent of one's own.

Everything happens in two real terminals. Every command is one that the README or a guide shows: another one is refused.
`make first-hour` runs it; it needs the package index, and at most five minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples import PAGES, ROOT, blocks_of
from terminal import Terminal, plain

MOST = 300
PROMPT = "ready$ "
# What is not ours to explain: one goes into the folders that one has made, and clones what one has found.
SHELL_WORDS = ("cd ", "git clone ")


def shown_commands() -> set[str]:
    """Every command of the documentation, from its blocks and from its sentences."""
    found: set[str] = set()
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "sh":
                lines = block.text.replace("\\\n", " ").splitlines()
                found |= {" ".join(line.partition("    #")[0].split()) for line in lines}
        sentences = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found |= {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", sentences)}
    return found - {""}


class Newcomer:
    """Somebody with two terminals who types what the documentation shows."""

    def __init__(self, folder: Path) -> None:
        kept = {name: os.environ[name] for name in ("LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE") if name in os.environ}
        environment = kept | {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PS1": PROMPT,
            "TERM": "xterm-256color",
        }
        self.folder = folder
        self._shown = shown_commands()
        self.server = Terminal(folder, environment, columns=100, rows=40)
        self.caller = Terminal(folder, environment, columns=100, rows=40)
        for terminal in (self.server, self.caller):
            terminal.wait_for(PROMPT, 10)

    def type(self, terminal: Terminal, command: str) -> int:
        """Type a command. Returns where its output begins. Raises AssertionError if no page shows it."""
        if command not in self._shown and not command.startswith(SHELL_WORDS):
            raise AssertionError(f"neither the README nor a guide shows: {command}")
        start = len(terminal.output)
        print(f"{time.monotonic() - START:6.1f} s  {command}", flush=True)
        terminal.press(f"{command}\n")
        return start

    def run(self, command: str, *, expect: str = "", seconds: float = 60, terminal: Terminal | None = None) -> str:
        """Run a command to its end. Returns its output, without escape sequences."""
        terminal = terminal or self.caller
        start = self.type(terminal, command)
        terminal.wait_for(PROMPT, seconds, start=start)
        output = plain(terminal.output[start:])
        assert expect in output, f"{command} did not print {expect!r}:\n\n{output}"
        return output

    def save(self, path: str, text: str) -> None:
        """Save a file of the documentation."""
        print(f"{time.monotonic() - START:6.1f} s  (saves {path})", flush=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def start(self, command: str, *, seconds: float = 30) -> None:
        """Start a server and wait until it shows what to try."""
        start = self.type(self.server, command)
        self.server.wait_for("  try ", seconds, start=start)

    def stop(self) -> None:
        """Stop the server with Ctrl-C, which is no error."""
        start = len(self.server.output)
        self.server.press("\x03")
        self.server.wait_for(PROMPT, 20, start=start)
        end = plain(self.server.output[start:])
        assert "***" not in end, end
        assert "Traceback" not in end, end

    @contextmanager
    def serving(self, command: str, *, seconds: float = 30) -> Iterator[None]:
        """Serve within the block."""
        self.start(command, seconds=seconds)
        yield
        self.stop()

    def close(self) -> None:
        """Close both terminals."""
        self.caller.close()
        self.server.close()


def files(page: str, title: str) -> list[str]:
    """Return the versions of a file that a page has, from top to bottom."""
    return [each.text for each in blocks_of(ROOT / page) if each.title == title]


def main(folder: Path) -> None:
    """Do it all. Raises AssertionError and TimeoutError when something is not as the documentation says."""
    me = Newcomer(folder)
    try:
        see_the_demo(me)
        write_an_agent(me)
        add_a_question_and_a_file(me)
        restart_under_a_stream(me)
        start_a_project(me)
    finally:
        me.close()


def see_the_demo(me: Newcomer) -> None:
    """Clone, and see what `make run` has to show."""
    subprocess.run(["git", "clone", "--quiet", ROOT, me.folder / "dragoman"], check=True)
    for terminal in (me.server, me.caller):
        me.run("cd dragoman", terminal=terminal)
    with me.serving("make run", seconds=120):
        me.run('.venv/bin/dragoman send "hello"', expect="You said: hello")
    for terminal in (me.server, me.caller):
        me.run("cd ..", terminal=terminal)


def write_an_agent(me: Newcomer) -> None:
    """Install Dragoman into a folder of one's own, save the first agent, and call it."""
    page = "docs/guides/first-hour.md"
    first, *_ = files(page, "trips.py")
    me.run("mkdir trips && cd trips")
    me.run("python3 -m venv .venv && . .venv/bin/activate")
    me.run("pip install ../dragoman", expect="Successfully installed", seconds=120)
    me.run("cd trips", terminal=me.server)
    me.run("python3 -m venv .venv && . .venv/bin/activate", terminal=me.server)
    me.save("trips/trips.py", first)
    me.start("dragoman serve trips.py --dev")
    me.run("dragoman send Lisbon", expect="Walk around Lisbon.")
    me.run("dragoman call plan city=Lisbon", expect="Walk around Lisbon.")


def add_a_question_and_a_file(me: Newcomer) -> None:
    """Change the agent under the running server, answer its question, keep its file, and test it."""
    page = "docs/guides/first-hour.md"
    start = len(me.server.output)
    me.save("trips/trips.py", files(page, "trips.py")[1])
    me.server.wait_for("\nready\n", 30, start=start)
    start = me.type(me.caller, "dragoman send Lisbon --save .")
    me.caller.wait_for("How many days?", 30, start=start)
    me.caller.press("2\n")
    me.caller.wait_for("saved plan.md", 30, start=start)
    me.caller.wait_for(PROMPT, 30, start=start)
    assert (me.folder / "trips/plan.md").read_text().count("walk around Lisbon") == 2
    me.save("trips/test_trips.py", files(page, "test_trips.py")[0])
    me.run("pip install pytest", expect="Successfully installed", seconds=60)
    me.run("pytest -q", expect="1 passed")


def restart_under_a_stream(me: Newcomer) -> None:
    """Change the code while the agent answers: the caller gets the answer of the new code."""
    start = me.type(me.caller, "dragoman call plan city=Porto days=16")
    me.caller.wait_for("Planning day 2", 30, start=start)
    old = (me.folder / "trips/trips.py").read_text()
    me.save("trips/trips.py", old.replace("walk around", "see"))
    me.caller.wait_for("save plan.md here?", 60, start=start)
    me.caller.press("y\n")
    me.caller.wait_for(PROMPT, 30, start=start)
    text = (me.folder / "trips").joinpath("plan-1.md").read_text()
    assert text.count("see Porto") == 16, text
    me.stop()


def start_a_project(me: Newcomer) -> None:
    """Let Dragoman write the files of a project, test it and serve it."""
    me.run("dragoman init my-agent", expect="dragoman serve")
    for terminal in (me.server, me.caller):
        me.run("cd my-agent", terminal=terminal)
    me.run("pytest -q", expect=" passed")
    with me.serving("dragoman serve"):
        me.run("dragoman tasks")


START = time.monotonic()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
        seconds = time.monotonic() - START
        print(f"{seconds:6.1f} s  done")
    sys.exit(0 if seconds < MOST else f"more than {MOST} s")
