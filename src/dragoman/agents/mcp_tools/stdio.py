"""A program as an MCP server: its standard streams are the session's, its end is noticed, its stderr goes to the log.

The SDK has a transport of this kind. This one parses and writes where the bytes come and go, without tasks and queues
in between: a small call takes 125 to 175 µs of CPU here and 190 to 230 µs there. It tells how a program ended, fails
the one call whose answer cannot be read, gives up a program that does not read, and takes lines that are no messages
for what they are, all of which the SDK's does not. The program itself is started and ended by the process guard.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import shutil
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from anyio import EndOfStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from msgspec import Struct

from dragoman.agents.lines import LineBuffer, TooLongError
from dragoman.agents.process.guard.client import NotStarted
from dragoman.agents.process.guard.spawner import PipeEnd, Spawner

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.agents.mcp_tools.call import ElicitationRouter
    from dragoman.agents.mcp_tools.source import Source
    from dragoman.agents.process.guard.client import Child
    from dragoman.agents.process.guard.spawner import Pipes

# How much is looked through, at either end: what names a message stands before or after what it carries.
_SCANNED_BYTES = 1_000
# How deeply what is saved may be nested, and how long a message may be that is saved.
MAX_DEPTH = 100
_MAX_TRUNCATED_LINE = 4_000_000

_SCALAR = rb'"(?:[^"\\]|\\.)*+"|-?\d{1,18}+(?![.eE\d])|null'
_MEMBER = rb'\s*+"(jsonrpc|id|method)"\s*+:\s*+(' + _SCALAR + rb")\s*+"
_FIRST = re.compile(rb"\s*+[{,]" + _MEMBER)
_LAST = re.compile(rb"(?:," + _MEMBER + rb")++\}\s*+\Z")
_EACH = re.compile(rb"," + _MEMBER)
_INVALID = re.compile(r"Invalid JSON: [^\n\[]*[^\n\[ ]")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')


class NotJson(ValueError):
    """The line holds numbers that JSON does not have."""


def check_numbers(line: bytes) -> None:
    """Raises NotJson for NaN and Infinity, which the SDK's parser lets through and nobody after it can write."""
    if b"NaN" in line or b"Infinity" in line:
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except msgspec.MsgspecError:
            raise NotJson("NaN and Infinity are no JSON") from None
        except RecursionError:
            return


def parse_error_reason(error: ValueError) -> str:
    """Why a line could not be read, where that can be said in a few words."""
    if isinstance(error, NotJson):
        return str(error)
    found = _INVALID.search(str(error))
    return found[0] if found is not None else ""


class JsonRpcHeader(Struct, frozen=True):
    """What a message says of itself. It is a request with a method and an id, a response with an id alone."""

    is_message: bool
    id: int | str | None = None
    method: str | None = None


def parse_header(line: bytes) -> JsonRpcHeader:
    """What can be told from both ends of a line."""
    members: dict[bytes, bytes] = {}
    head, place = line[:_SCANNED_BYTES], 0
    while (found := _FIRST.match(head, place)) is not None:
        members[found[1]] = found[2]
        place = found.end()
    last = _LAST.search(line[-_SCANNED_BYTES:])
    if last is not None:
        members |= dict(_EACH.findall(last[0]))
    number, method = _decode_scalar(members.get(b"id")), _decode_scalar(members.get(b"method"))
    return JsonRpcHeader(b"jsonrpc" in members, number, method if isinstance(method, str) else None)


def _decode_scalar(value: bytes | None) -> int | str | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=int | str | None)
    except (msgspec.MsgspecError, ValueError):
        return None


def truncate_depth(line: bytes) -> bytes | None:
    """The line without what is nested too deeply; None when nothing is, or when it is too long to be looked through."""
    if len(line) > _MAX_TRUNCATED_LINE:
        return None
    pieces: list[bytes] = []
    depth = kept = 0
    for bracket in _BRACKET.finditer(line):
        if bracket[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                pieces.append(line[kept : bracket.end()])
        elif bracket[0] in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                kept = bracket.start()
            depth -= 1
    return b"".join((*pieces, line[kept:])) if pieces and depth == 0 else None


logger = logging.getLogger("dragoman.mcp")
_STDERR_LINES = 8
_MAX_LOGGED = 2000
# How many messages may wait to be taken before the program has to.
_MAX_QUEUED = 1000
# How many messages are given to the session before others have a turn.
_MESSAGES_PER_TURN = 16
# How long a message may be. What is longer is no message, and would take all the memory there is.
MAX_LINE = 64_000_000
# How long a program that is slow to read may take to make room for a word about what it need not do any more.
NOTIFICATION_TIMEOUT = 2.0
# How long a program may take to end by itself, and then once it has been told to.
GRACE_SECONDS, TERM_SECONDS = 2.0, 2.0
# How long the output of one that has ended may stay open.
_OUTPUT_GRACE_SECONDS = 0.5


class StdioTransport(asyncio.BaseProtocol):
    """A running server. It is the transport of a session: what it yields are the two streams, and both are itself.

    To the event loop it is what writes to the program's input.
    """

    def __init__(
        self, source: Source, on_end: Callable[[], None], elicitations: ElicitationRouter | None = None
    ) -> None:
        self._source = source
        self._on_end = on_end
        self._elicitations = elicitations
        self.problem = ""
        self._spawner = Spawner()
        self._child: Child | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._output: asyncio.ReadTransport | None = None
        self._errors: asyncio.ReadTransport | None = None
        self._lines: deque[bytes] = deque()
        self._delivered = 0
        self._buffer = LineBuffer(MAX_LINE)
        self._is_closed = False
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._listing: set[types.RequestId] = set()
        self._stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_buffer = b""

    @property
    def stderr_tail(self) -> str:
        """What it said last on stderr."""
        return "\n".join(self._stderr_lines)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> tuple[Any, Any]:
        """Start it. Raises OSError when that is not possible."""
        argv, env = self._source.argv, get_default_environment() | self._source.env
        path = shutil.which(argv[0]) or shutil.which(argv[0], path=env.get("PATH"))
        if path is None and os.sep not in argv[0]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        try:
            self._child, pipes = await self._spawner.spawn(
                path or argv[0], argv, env=env, cwd=Path.cwd(), tag_environment=False
            )
        except BaseException as error:
            await self._spawner.close()
            if isinstance(error, NotStarted):
                raise OSError(error.errno, str(error)) from error
            raise
        self._child.exited.add_done_callback(self._on_exit)
        try:
            await self._connect(pipes)
        except BaseException:
            pipes.close()
            await self._stop()
            raise
        return _SessionStream(self), _SessionStream(self)

    async def _connect(self, pipes: Pipes) -> None:
        loop = asyncio.get_running_loop()
        self._errors, _ = await loop.connect_read_pipe(
            lambda: _PipeReader(self._receive_stderr, self._end_stderr), PipeEnd(pipes.ours.pop())
        )
        self._output, _ = await loop.connect_read_pipe(
            lambda: _PipeReader(self.receive_data, self._end), PipeEnd(pipes.ours.pop())
        )
        self._stdin, _ = await loop.connect_write_pipe(lambda: self, PipeEnd(pipes.ours.pop()))

    async def __aexit__(self, *_: object) -> None:
        """End it, and all it has started: first by closing its input, then by asking, then by force."""
        await asyncio.shield(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        assert self._child is not None
        if self._stdin is not None:
            self._stdin.close()
        await asyncio.wait((self._child.exited,), timeout=GRACE_SECONDS)
        if not self._child.exited.done():
            self._child.end(TERM_SECONDS)
        await asyncio.wait((self._child.clean,), timeout=2 * TERM_SECONDS)
        if self._stdin is not None:
            with suppress(Exception):  # one that is closed already cannot be closed at once
                self._stdin.abort()
        for output in (self._output, self._errors):
            if output is not None:
                output.close()
        await self._spawner.close()

    def _on_exit(self, _: object) -> None:
        """Note that it has ended. What it said last may still come, unless others hold its output open."""
        asyncio.get_running_loop().call_later(_OUTPUT_GRACE_SECONDS, self._end)

    # -- what comes ----------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take what the program said."""
        if self._is_closed:
            return
        try:
            self._lines.extend(self._buffer.feed(data))
        except TooLongError:
            self.fail(f"it sent a line longer than {MAX_LINE // 1_000_000} MB")
            return
        if len(self._lines) > _MAX_QUEUED:
            self._pause(reading=False)
        self._wake()

    def fail(self, problem: str) -> None:
        """Do without it from now on, for that reason."""
        if not self._is_closed:
            self.problem = problem
            logger.warning("%s: %s", self._source.name, problem)
            self._end()

    def _end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_end()
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _pause(self, *, reading: bool) -> None:
        if self._output is not None and not self._is_closed:
            (self._output.resume_reading if reading else self._output.pause_reading)()

    def _end_stderr(self) -> None:
        self._receive_stderr(b"\n")

    def _receive_stderr(self, data: bytes) -> None:
        *lines, self._stderr_buffer = (self._stderr_buffer + data).split(b"\n")
        if len(self._stderr_buffer) > _MAX_LOGGED:
            lines, self._stderr_buffer = [*lines, self._stderr_buffer], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:_MAX_LOGGED]
            if text:
                self._stderr_lines.append(text)
                logger.debug("%s: %s", self._source.name, text)

    async def receive(self) -> SessionMessage:
        """The next message. Raises EndOfStream when there will be none."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if len(self._lines) == _MAX_QUEUED:
                    self._pause(reading=True)
                message = self._parse(line)
                if message is None:
                    continue
                if self._elicitations is not None and isinstance(message, (types.JSONRPCResponse, types.JSONRPCError)):
                    self._elicitations.record_response(message.id)
                self._delivered += 1
                if self._delivered == _MESSAGES_PER_TURN:
                    # Who reads them starts two tasks for each: a server that floods must not hold up everybody else.
                    self._delivered = 0
                    await asyncio.sleep(0)
                return SessionMessage(message)
            if self._is_closed:
                raise EndOfStream
            self._delivered = 0
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _parse(self, line: bytes) -> types.JSONRPCMessage | None:
        """The message that a line is; None for what is none.

        Who waits for one that cannot be read gets an error instead, be it a call here or the program itself.
        """
        try:
            check_numbers(line)
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            envelope = parse_header(line)
            if not envelope.is_message:
                if line.strip():
                    logger.debug("%s says what is no message: %s", self._source.name, line[:_MAX_LOGGED])
                return None
            why = parse_error_reason(error)
        listed = self._parse_truncated(line) if envelope.method is None and envelope.id in self._listing else None
        if listed is not None:
            return listed
        said = "a message that cannot be read" + (f": {why}" if why else "")
        logger.warning("%s sent %s", self._source.name, said)
        if envelope.id is None:
            if envelope.method is None:
                self.fail(f"it sent {said}")  # it may be what any call waits for
            return None
        text = f"the MCP server `{self._source.name}` sent {said}"
        refusal = types.JSONRPCError(
            jsonrpc="2.0", id=envelope.id, error=types.ErrorData(code=types.PARSE_ERROR, message=text)
        )
        if envelope.method is None:
            return refusal
        self._write(refusal)
        return None

    def _parse_truncated(self, line: bytes) -> types.JSONRPCMessage | None:
        """A list of tools without what is nested too deeply: one schema must not keep a server from being used."""
        try:
            shallow = truncate_depth(line)
            message = None if shallow is None else types.jsonrpc_message_adapter.validate_json(shallow, by_name=False)
        except ValueError:
            return None
        if message is not None:
            logger.warning(
                "%s: a schema is nested deeper than %d levels: what is deeper is not enforced",
                self._source.name,
                MAX_DEPTH,
            )
        return message

    # -- what goes -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The program is slow to read."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The program has caught up."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The program reads no more."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def send(self, message: SessionMessage) -> None:
        """Send a message; to one that has ended nothing is sent, and the session hears of the end anyway."""
        if self._stdin is None or self._is_closed or self._stdin.is_closing():
            return
        said = message.message
        if isinstance(said, types.JSONRPCRequest):
            if self._elicitations is not None and said.method == "tools/call":
                self._elicitations.record_sent(said.id)
            elif said.method == "tools/list":
                self._listing = {said.id}
        self._write(said)
        room = self._drained
        if room is None:
            return
        if not isinstance(said, types.JSONRPCNotification):
            await asyncio.shield(room)
        elif not (await asyncio.wait((room,), timeout=NOTIFICATION_TIMEOUT))[0]:
            # Whoever gives up a call waits here, and must not wait for a program that reads nothing any more.
            self.fail("it does not read what it is sent")

    def _write(self, message: types.JSONRPCMessage) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


class _PipeReader(asyncio.Protocol):
    """One of the program's outputs, for the event loop."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._lost()


class _SessionStream:
    """What a session reads, and writes to."""

    def __init__(self, transport: StdioTransport) -> None:
        self.receive = transport.receive
        self.send = transport.send

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _SessionStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def __aiter__(self) -> _SessionStream:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None
