"""Does what the documentation shows, as a reader would who types everything.

The fenced blocks of a page are carried out from top to bottom, in a folder of their own:

- `python` runs. All blocks of a page share one namespace, like the cells of a notebook, and may `await` at the top.
  With `title="trip.py"` the block is saved under that name as well; a `test_*.py` is saved only, for pytest. So is one
  with `saved`, for a command of the page: what configures a whole process, such as OpenTelemetry, must not run in ours.
- `sh` is run by bash and must succeed. With `serves` it is a server: it is left running, and whatever port a page
  says, the commands and the Python after it reach that server; so do commands that name no address. A page's next
  server is started after this one was killed, with SIGKILL: every page that restarts a server proves what survives.
  With `serves beside` the server before it goes on, and the port that the page says for this one leads to this one.
  With `kills` the first of them is killed, instead of running the command; another one answers for the page then.
  With `stops` it gets SIGTERM instead, and has to end by itself.
  With `open` it is left running beside what follows, from its first line of output on, and is compared when it has
  ended. With `types="2"` somebody sits at a terminal and types that; what they type is not in the output.
- `json` or `text` straight after a block that ran is what that block printed. In JSON, objects may have more keys than
  shown. In text, lines are compared one by one. `…` stands for anything, a line of its own for any lines. Times are
  all alike. An id that looks like a UUID stands for the one that was really printed in its place, from then on
  and in later commands too.
- With `needs=grpcurl` a block is left out where there is no such program, with its output; tests/interop has them.
- any other language with a `title` is saved.
- `no-run` is shown only, and a block without a language is a drawing. With `walk=NAME` it is a walk, which is tested
  in tests/architecture.
"""

from __future__ import annotations

import ast
import asyncio
import codecs
import contextlib
import inspect
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import pyte

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS = 30

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_TYPES = re.compile(r'types="([^"]+)"')
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_PORT = re.compile(r"(--port[ =]|PORT=|\bport=|--grpc[ =]|--metrics[ =])\d+")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:Z|\+00:00)"
_REFERENCE = r"(?<=reference )[0-9a-f]{6}"
_CHANGING = re.compile(f"(?P<uuid>{_UUID})|(?P<time>{_TIME})|(?P<reference>{_REFERENCE})|(?P<any>…)")
SHOWN_ADDRESS = "http://127.0.0.1:8080"
# Where a server says that it serves gRPC, and where the pages say so.
SHOWN_METRICS = "127.0.0.1:9464"
_METRICS = re.compile(r"^  metrics +http://(\S+)/metrics$", re.MULTILINE)
_GRPC = re.compile(r"^  grpc +(\S+)$", re.MULTILINE)
SHOWN_GRPC = "127.0.0.1:50051"
_BARE_ADDRESS = re.compile(r"(?<![\w/.])(?:127\.0\.0\.1|localhost):8080\b")


class Mismatch(AssertionError):
    """A page shows something else than what happens."""


class Block(NamedTuple):
    """One fenced block. `follows` says that nothing stands between it and the block before."""

    page: Path
    line: int
    language: str
    words: frozenset[str]
    title: str | None
    text: str
    follows: bool
    types: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and not self.words & {"no-run", "saved"}

    @property
    def needs(self) -> str | None:
        """The program without which it is left out."""
        return next((word.removeprefix("needs=") for word in self.words if word.startswith("needs=")), None)

    @property
    def is_output(self) -> bool:
        return self.language in ("json", "text") and self.title is None and "no-run" not in self.words


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    content = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(content):
        info = fence["info"]
        title = _TITLE.search(info)
        types = _TYPES.search(info)
        language, *words = _TYPES.sub("", _TITLE.sub("", info)).split() or [""]
        line = content.count("\n", 0, fence.start("text")) + 1
        follows = bool(found) and not content[end : fence.start()].strip()
        found.append(
            Block(
                page,
                line,
                language,
                frozenset(words),
                title[1] if title else None,
                fence["text"],
                follows,
                types[1] if types else None,
            )
        )
        end = fence.end()
    return found


# -- what a page shows and what was printed ------------------------------------------------------------------------


Ids = dict[str, str]  # which id of the page stands for which real one


def match(shown: str, printed: str, ids: Ids) -> Ids | None:
    """Compare two texts: None when they differ, else the ids known from then on."""
    groups: dict[str, str] = {}
    pattern = ""
    end = 0
    for found in _CHANGING.finditer(shown):
        pattern += re.escape(shown[end : found.start()]) + _pattern(found, ids, groups)
        end = found.end()
    matched = re.fullmatch(pattern + re.escape(shown[end:]), printed, re.DOTALL)
    return None if matched is None else ids | {uuid: matched[group] for uuid, group in groups.items()}


def _pattern(found: re.Match[str], ids: Ids, groups: dict[str, str]) -> str:
    uuid = found["uuid"]
    if uuid is None:
        return {"time": _TIME, "reference": "[0-9a-f]{6}", "any": ".*?"}[found.lastgroup or "any"]
    if uuid in ids:
        return re.escape(ids[uuid])
    if uuid in groups:
        return f"(?P={groups[uuid]})"
    groups[uuid] = f"id{len(groups)}"
    return f"(?P<{groups[uuid]}>{_UUID})"


def match_lines(shown: str, printed: str, ids: Ids) -> Ids | None:
    """Compare line by line, without the empty ones."""
    return _match_lines(_lines(shown), _lines(printed), ids)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _match_lines(shown: list[str], printed: list[str], ids: Ids) -> Ids | None:
    if not shown:
        return None if printed else ids
    first, *rest = shown
    if first.strip() == "…":
        tries = (_match_lines(rest, printed[start:], ids) for start in range(len(printed) + 1))
        return next((known for known in tries if known is not None), None)
    known = match(first, printed[0], ids) if printed else None
    return None if known is None else _match_lines(rest, printed[1:], known)


def match_json(shown: Any, printed: Any, ids: Ids, path: str = "$") -> Ids:
    """Compare two JSON values; an object may have more keys than shown. Raises Mismatch."""
    if shown == "…":
        return ids
    if isinstance(shown, str) and isinstance(printed, str):
        known = match(shown, printed, ids)
        if known is not None:
            return known
    elif isinstance(shown, dict) and isinstance(printed, dict):
        members = cast("dict[str, Any]", printed)
        for key, value in cast("dict[str, Any]", shown).items():
            if key not in members:
                raise Mismatch(f"there is no {path}.{key}")
            ids = match_json(value, members[key], ids, f"{path}.{key}")
        return ids
    elif isinstance(shown, list) and isinstance(printed, list):
        return _match_list(cast("list[Any]", shown), cast("list[Any]", printed), ids, path)
    elif type(shown) is type(printed) and shown == printed:
        return ids
    raise Mismatch(f"{path} is {printed!r}, not {shown!r}")


def _match_list(shown: list[Any], printed: list[Any], ids: Ids, path: str) -> Ids:
    if shown and shown[-1] == "…":
        shown = shown[:-1]
        printed = printed[: len(shown)]
    if len(shown) != len(printed):
        raise Mismatch(f"{path} has {len(printed)} items, not {len(shown)}")
    for index, (one, other) in enumerate(zip(shown, printed, strict=True)):
        ids = match_json(one, other, ids, f"{path}[{index}]")
    return ids


def compare(block: Block, printed: str, ids: Ids) -> Ids:
    """Compare an output block with what was printed. Raises Mismatch."""
    report = f"This was printed:\n\n{printed}"
    if block.language == "text":
        known = match_lines(block.text, printed, ids)
        if known is None:
            raise Mismatch(f"{block.place} shows\n\n{block.text}\n{report}")
        return known
    try:
        return match_json(json.loads(block.text), json.loads(printed), ids)
    except Mismatch as problem:
        raise Mismatch(f"{block.place}: {problem}. {report}") from None
    except ValueError:
        raise Mismatch(f"{block.place}: one of the two is not JSON. {report}") from None


# -- programs ------------------------------------------------------------------------------------------------------


class Program:
    """A command that is left running. What it prints is read as it comes.

    With `terminal` it writes to a terminal. Its output is then what is on the screen.
    """

    def __init__(
        self, command: str, folder: Path, environment: dict[str, str], *, stderr: bool, terminal: bool = False
    ) -> None:
        self._screen = pyte.Screen(120, 100) if terminal else None
        self._printed = ""
        self._news = threading.Condition()
        self._ended = False
        self._reading, writing = os.openpty() if terminal else os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment | ({"TERM": "xterm"} if terminal else {}),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing if stderr or terminal else subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        emulator = pyte.Stream(self._screen) if self._screen is not None else None
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
            while piece := os.read(self._reading, 65536):
                with self._news:
                    text = decoder.decode(piece)
                    self._printed += text
                    if emulator is not None:
                        emulator.feed(text)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def output(self) -> str:
        return self._printed if self._screen is None else "\n".join(self._screen.display)

    @property
    def has_begun(self) -> bool:
        """True once there is a line of output, or something on the screen."""
        return "\n" in self._printed if self._screen is None else bool(self.output.strip())

    def wait_for(self, what: Callable[[], bool]) -> bool:
        """Wait until it has printed what is wanted; False when it ended, or took too long, without."""
        with self._news:
            self._news.wait_for(lambda: self._ended or what(), SECONDS)
            return what()

    def end(self) -> str:
        """Wait for its end and give all it printed. Raises Mismatch when it does not come."""
        if not self.wait_for(lambda: self._ended):
            self.kill()
            raise Mismatch(f"this has not ended within {SECONDS} s:\n\n{self.output}")
        self._process.wait(SECONDS)
        return self.output

    def stop(self) -> None:
        """Ask it to end, and wait until it has. Raises Mismatch when it does not, or not well."""
        os.killpg(self._process.pid, signal.SIGTERM)
        output = self.end()
        if self._process.returncode:
            raise Mismatch(f"this has ended with code {self._process.returncode}:\n\n{output}")

    def kill(self) -> None:
        """End it and everything it started, without a word."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        with contextlib.suppress(OSError):
            os.close(self._reading)


def environment() -> dict[str, str]:
    """What a reader's shell has: `dragoman` on the path, and none of our own settings."""
    ours = re.compile(r"(DRAGOMAN|PYTEST|COV|COVERAGE)_?|(PORT|BIND_HOST|.*_PROXY)$", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not ours.match(name)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # A free port for whoever is not told one.
    return kept | {"PATH": path, "PYTHONUNBUFFERED": "1", "DRAGOMAN_PORT": "0", "UVICORN_PORT": "0"}


@contextlib.contextmanager
def _keyboard(types: str | None) -> Generator[int]:
    """What a command reads from: nothing, or a terminal at which somebody has typed a line."""
    if types is None:
        yield subprocess.DEVNULL
        return
    hands, keys = os.openpty()
    try:
        os.write(hands, f"{types}\n".encode())
        yield keys
    finally:
        os.close(hands)
        os.close(keys)


def _address_of(server: Program, block: Block) -> str:
    """The address that a server says. Raises Mismatch when it says none."""
    if not server.wait_for(lambda: _ADDRESS.search(server.output) is not None):
        raise Mismatch(f"{block.place} serves nothing:\n\n{server.output}")
    found = _ADDRESS.search(server.output)
    assert found is not None
    return found[0]


def _other_address(server: Program, block: Block, line: re.Pattern[str]) -> str:
    """The address of gRPC or of metrics that a server says. Raises Mismatch when it says none."""
    if not server.wait_for(lambda: line.search(server.output) is not None):
        raise Mismatch(f"{block.place} does not serve it:\n\n{server.output}")
    found = line.search(server.output)
    assert found is not None
    return found[1]


def _any_port(text: str) -> str:
    return _PORT.sub(r"\g<1>0", text)


def make_run() -> str:
    """The command behind `make run`."""
    recipe = re.search(
        r"^run:.*\n\t@trap : INT; \$\(BIN\)/(.*) \$\(ARGS\);",
        (ROOT / "Makefile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert recipe is not None
    return recipe[1]


# -- a page --------------------------------------------------------------------------------------------------------


class Reader:
    """Reads one page and does everything on it.

    `places` are texts of the page that stand for others, such as ports. `environ` is added to the environment.
    """

    def __init__(
        self, folder: Path, places: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._places = places or {}
        self._ids: Ids = {}
        self._module = ModuleType("the_page")
        self._server: Program | None = None
        self._address = SHOWN_ADDRESS
        self._grpc = SHOWN_GRPC
        self._metrics = SHOWN_METRICS
        self._beside: list[Program] = []
        self._others: dict[str, str] = {}  # the addresses that the page shows of servers beside, and their real ones
        self._open: list[tuple[Program, Block | None]] = []
        self._environment = environment() | {"XDG_STATE_HOME": str(folder / ".state")} | dict(environ or {})

    def read(self, page: Path) -> None:
        """Do what the page shows. Raises Mismatch, or whatever an example raises."""
        modules, path, cwd = set(sys.modules), list(sys.path), Path.cwd()
        sys.modules[self._module.__name__] = self._module
        sys.path.insert(0, str(self._folder))
        os.chdir(self._folder)
        try:
            blocks = [self._placed(block) for block in blocks_of(page)]
            for block, following in itertools.zip_longest(blocks, blocks[1:]):
                output = following if following and following.follows and following.is_output else None
                self._do(block, output)
            self._close_open()
        finally:
            servers = [*self._beside, *([self._server] if self._server else [])]
            for program in [*(program for program, _ in self._open), *servers]:
                program.kill()
            os.chdir(cwd)
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self._folder)):
                    del sys.modules[name]
            del sys.modules[self._module.__name__]

    def _placed(self, block: Block) -> Block:
        text = block.text
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        return block._replace(text=text)

    def _do(self, block: Block, output: Block | None) -> None:
        if block.title is not None:
            # What runs here finds the server by itself: see _python.
            text = block.text.replace(SHOWN_ADDRESS, self._address) if not block.runs else block.text
            self._save(block.title, _any_port(text))
        if not block.runs or (block.needs and shutil.which(block.needs, path=self._environment["PATH"]) is None):
            return
        if block.language == "python":
            if block.title is None or not block.title.startswith("test_"):
                self._compare(output, self._python(block))
        elif {"serves", "beside"} <= block.words:
            self._serve_beside(block, output)
        elif "serves" in block.words:
            self._serve(block, output)
        elif "kills" in block.words:
            self._end_first()
        elif "stops" in block.words:
            self._end_first(properly=True)
        elif "open" in block.words:
            self._leave_open(block, output)
        else:
            self._compare(output, self._shell(block))

    def _save(self, name: str, text: str) -> None:
        server = self._server
        reloads = server is not None and name.endswith(".py") and "  reload  " in server.output
        restarts = server.output.count("\nready\n") if server is not None else 0
        (self._folder / name).write_text(text, encoding="utf-8")
        if reloads:
            assert server is not None
            # As a person does who sees that it is ready again.
            if not server.wait_for(lambda: server.output.count("\nready\n") > restarts):
                raise Mismatch(f"{name} was saved, and the server did not restart:\n\n{server.output}")

    def _compare(self, output: Block | None, printed: str) -> None:
        if output is not None:
            self._ids = compare(output, self._as_shown(printed), self._ids)

    def _python(self, block: Block) -> str:
        # The page itself is the source, so that a traceback names its line.
        source = "\n" * (block.line - 1) + block.text
        source = source.replace(SHOWN_ADDRESS, self._address).replace(SHOWN_GRPC, self._grpc)
        code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = eval(code, self._module.__dict__)
            if inspect.iscoroutine(result):
                asyncio.run(asyncio.wait_for(result, SECONDS))
        return printed.getvalue()

    def _shell(self, block: Block) -> str:
        with _keyboard(block.types) as keyboard:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self._command(block)],
                cwd=self._folder,
                env=self._environment,
                stdin=keyboard,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if block.types else subprocess.PIPE,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        if done.returncode:
            report = f"{done.stdout}{done.stderr or ''}"
            server = self._server.output if self._server else "no server"
            raise Mismatch(f"{block.place} exits with {done.returncode}:\n\n{report}\n\nThe server said:\n\n{server}")
        if "Warning:" in (done.stderr or ""):  # as Python and pytest write them: a reader would see it, too
            raise Mismatch(f"{block.place} makes a warning appear:\n\n{done.stderr}")
        return done.stdout

    def _serve(self, block: Block, output: Block | None) -> None:
        self._close_open()
        if self._server is not None:
            self._server.kill()
        server = self._server = self._start(block)
        self._address = self._environment["DRAGOMAN_AGENT"] = _address_of(server, block)
        if "--grpc" in block.text:
            self._grpc = _other_address(server, block, _GRPC)
        if "--metrics" in block.text:
            self._metrics = _other_address(server, block, _METRICS)
        self._compare_lines(server, output)

    def _serve_beside(self, block: Block, output: Block | None) -> None:
        port = _PORT.search(block.text)
        assert port is not None, f"{block.place} has no port"
        shown = SHOWN_ADDRESS.rpartition(":")[0] + ":" + port[0].removeprefix(port[1])
        server = self._start(block)
        self._beside.append(server)
        self._others[shown] = _address_of(server, block)
        self._compare_lines(server, output)

    def _end_first(self, *, properly: bool = False) -> None:
        assert self._server is not None
        if properly:
            self._server.stop()
        self._server.kill()
        self._server = self._beside.pop(0) if self._beside else None
        if self._server is not None:
            self._address = self._environment["DRAGOMAN_AGENT"] = next(iter(self._others.values()))

    def _start(self, block: Block) -> Program:
        command = make_run() if block.text.strip() == "make run" else _any_port(block.text)
        return Program(command, self._folder, self._environment, stderr=True)

    def _compare_lines(self, server: Program, output: Block | None) -> None:
        if output is not None:
            server.wait_for(lambda: match_lines(output.text, self._as_shown(server.output), self._ids) is not None)
            self._compare(output, server.output)

    def _leave_open(self, block: Block, output: Block | None) -> None:
        terminal = "terminal" in block.words
        program = Program(self._command(block), self._folder, self._environment, stderr=False, terminal=terminal)
        self._open.append((program, output))
        if not program.wait_for(lambda: program.has_begun):
            raise Mismatch(f"{block.place} says nothing")

    def _close_open(self) -> None:
        while self._open:
            program, output = self._open[0]
            printed = program.end()
            del self._open[0]
            program.kill()
            self._compare(output, printed)

    def _command(self, block: Block) -> str:
        others = self._others | {f"http://{SHOWN_METRICS}": f"http://{self._metrics}"}
        command = _ADDRESS.sub(lambda found: others.get(found[0], self._address), block.text)
        command = _BARE_ADDRESS.sub(self._address.removeprefix("http://"), command).replace(SHOWN_GRPC, self._grpc)
        command = command.replace(SHOWN_METRICS, self._metrics)
        for shown, real in self._ids.items():
            command = command.replace(shown, real)
        return command

    def _as_shown(self, printed: str) -> str:
        # At the address that the pages show, the commands that a server prints need none.
        for shown, real in self._others.items():
            printed = printed.replace(real, shown)
        printed = printed.replace(self._grpc, SHOWN_GRPC).replace(self._metrics, SHOWN_METRICS)
        place = re.escape(self._address.removeprefix("http://"))
        return re.sub(rf"(dragoman (?:send|call)) {place}", r"\1", printed).replace(self._address, SHOWN_ADDRESS)
