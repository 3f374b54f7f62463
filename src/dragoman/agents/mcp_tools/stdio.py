"""MCP over stdio: runs a program as an MCP server, with its standard streams as transport and its stderr in the log.

The SDK has a transport of this kind. This one parses and writes where the bytes arrive and leave, without tasks and
streams in between: with the SDK's, a call through the bridge takes 12 to 34 % more CPU. Unlike the SDK's, it reports
how a program ended, fails only the call whose response cannot be parsed, gives up a program that does not read, and
skips lines that are not messages. The process guard starts and ends the program. See `docs/decisions/002-our-own-
transport-over-stdio.md`.
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

from dragoman.agents.lines import LineBuffer, LineTooLongError
from dragoman.agents.mcp_tools.result_limit import refuse_line
from dragoman.agents.process.guard.client import NotStarted
from dragoman.agents.process.guard.spawner import PipeEnd, Spawner

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.agents.mcp_tools.source import Source
    from dragoman.agents.process.guard.client import Child
    from dragoman.agents.process.guard.spawner import Pipes

logger = logging.getLogger("dragoman.mcp")

# Bytes scanned at either end of a line: the header members stand before or after the payload.
_SCANNED_BYTES = 1_000
# Nesting that is kept when a message is truncated, and the longest line that is truncated.
MAX_DEPTH = 100
_MAX_TRUNCATED_LINE = 4_000_000

_SCALAR = rb'"(?:[^"\\]|\\.)*+"|-?\d{1,18}+(?![.eE\d])|null'
_MEMBER = rb'\s*+"(jsonrpc|id|method)"\s*+:\s*+(' + _SCALAR + rb")\s*+"
_LEADING_MEMBER = re.compile(rb"\s*+[{,]" + _MEMBER)
_TRAILING_MEMBERS = re.compile(rb"(?:," + _MEMBER + rb")++\}\s*+\Z")
_TRAILING_MEMBER = re.compile(rb"," + _MEMBER)
_INVALID = re.compile(r"Invalid JSON: [^\n\[]*[^\n\[ ]")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')
_STDERR_LINES = 8
_MAX_LOGGED = 2000
# Messages queued before reading from the program is paused.
_MAX_QUEUED = 1000
# Messages delivered to the session before other tasks get a turn.
_MESSAGES_PER_TURN = 16
# Maximum bytes of a line: anything longer is not a message, and could fill the memory.
MAX_LINE = 64_000_000
# Seconds a slow program may take to read a notification, such as that a call was canceled.
NOTIFICATION_TIMEOUT = 2.0
# Seconds a program may take to end after its stdin was closed, and then after SIGTERM.
GRACE_SECONDS, TERM_SECONDS = 2.0, 2.0
# Seconds the output of a program that has ended may stay open.
_OUTPUT_GRACE_SECONDS = 0.5


class NotJson(ValueError):
    """The line contains numbers that JSON does not have."""


def check_numbers(line: bytes) -> None:
    """Check for NaN and Infinity, which the SDK's parser accepts and no encoder can write.

    Raises:
        NotJson: the line contains one of them.
    """
    if b"NaN" in line or b"Infinity" in line:
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except msgspec.MsgspecError:
            raise NotJson("NaN and Infinity are no JSON") from None
        except RecursionError:
            return


def parse_error_reason(error: ValueError) -> str:
    """Return why a line could not be parsed, where that can be said in a few words; else an empty text."""
    if isinstance(error, NotJson):
        return str(error)
    match = _INVALID.search(str(error))
    return match[0] if match is not None else ""


class JsonRpcHeader(Struct, frozen=True):
    """The JSON-RPC members that identify a message: a request has a method and an id, a response only an id.

    `is_message` is False for a line without the member `jsonrpc`.
    """

    is_message: bool
    id: int | str | None = None
    method: str | None = None


def parse_header(line: bytes) -> JsonRpcHeader:
    """Read the header from both ends of a line, without parsing the line."""
    members: dict[bytes, bytes] = {}
    head, position = line[:_SCANNED_BYTES], 0
    while (match := _LEADING_MEMBER.match(head, position)) is not None:
        members[match[1]] = match[2]
        position = match.end()
    last = _TRAILING_MEMBERS.search(line[-_SCANNED_BYTES:])
    if last is not None:
        members |= dict(_TRAILING_MEMBER.findall(last[0]))
    request_id, method = _decode_scalar(members.get(b"id")), _decode_scalar(members.get(b"method"))
    return JsonRpcHeader(b"jsonrpc" in members, request_id, method if isinstance(method, str) else None)


def _decode_scalar(value: bytes | None) -> int | str | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=int | str | None)
    except (msgspec.MsgspecError, ValueError):
        return None


def truncate_depth(line: bytes) -> bytes | None:
    """Remove what is nested too deeply; None when nothing is, or when the line is too long to scan."""
    if len(line) > _MAX_TRUNCATED_LINE:
        return None
    pieces: list[bytes] = []
    depth = copied_to = 0
    for bracket in _BRACKET.finditer(line):
        if bracket[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                pieces.append(line[copied_to : bracket.end()])
        elif bracket[0] in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                copied_to = bracket.start()
            depth -= 1
    return b"".join((*pieces, line[copied_to:])) if pieces and depth == 0 else None


class StdioTransport(asyncio.BaseProtocol):
    """The transport of an SDK session to a program: entering it starts the program, leaving it ends the program.

    Both streams that it yields read from and write to this object. For the event loop it is the protocol of the
    program's stdin. `on_end` is called once, when no more messages will come.
    """

    def __init__(self, source: Source, on_end: Callable[[], None]) -> None:
        self._source = source
        self._on_end = on_end
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
        self._data_ready: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._list_request_ids: set[types.RequestId] = set()
        self._stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_buffer = b""

    @property
    def stderr_tail(self) -> str:
        """The last lines of the program's stderr."""
        return "\n".join(self._stderr_lines)

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> tuple[Any, Any]:
        """Start the program. Raises OSError when that fails."""
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
        """End the program and all it has started: close its stdin, then terminate it, then kill it."""
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
            with suppress(Exception):  # a closed transport cannot be aborted
                self._stdin.abort()
        for output in (self._output, self._errors):
            if output is not None:
                output.close()
        await self._spawner.close()

    def _on_exit(self, _: object) -> None:
        """Close the transport after a grace period for remaining output: other processes may hold the pipe open."""
        asyncio.get_running_loop().call_later(_OUTPUT_GRACE_SECONDS, self._end)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Accept bytes from the program's stdout."""
        if self._is_closed:
            return
        try:
            self._lines.extend(self._buffer.feed(data))
        except LineTooLongError:
            self.fail(f"it sent a line longer than {MAX_LINE // 1_000_000} MB")
            return
        if len(self._lines) > _MAX_QUEUED:
            self._set_reading(enabled=False)
        self._wake()

    def fail(self, problem: str) -> None:
        """Close the transport for this reason."""
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
        if self._data_ready is not None and not self._data_ready.done():
            self._data_ready.set_result(None)

    def _set_reading(self, *, enabled: bool) -> None:
        if self._output is not None and not self._is_closed:
            (self._output.resume_reading if enabled else self._output.pause_reading)()

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
        """Return the next message. Raises EndOfStream when there will be none."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if len(self._lines) == _MAX_QUEUED:
                    self._set_reading(enabled=True)
                message = self._parse(line)
                if message is None:
                    continue
                self._delivered += 1
                if self._delivered == _MESSAGES_PER_TURN:
                    # The session starts two tasks per message: a flooding server must not starve all others.
                    self._delivered = 0
                    await asyncio.sleep(0)
                return SessionMessage(message)
            if self._is_closed:
                raise EndOfStream
            self._delivered = 0
            self._data_ready = asyncio.get_running_loop().create_future()
            try:
                await self._data_ready
            finally:
                self._data_ready = None

    def _parse(self, line: bytes) -> types.JSONRPCMessage | None:
        """Parse a line; None when it is not a message.

        For a message that cannot be parsed, whoever waits for it gets an error: a call here, or the program itself.
        """
        if (refusal := refuse_line(line, self._source.name)) is not None:
            return refusal
        try:
            check_numbers(line)
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            header = parse_header(line)
            if not header.is_message:
                if line.strip():
                    logger.debug("%s wrote a line that is not a message: %s", self._source.name, line[:_MAX_LOGGED])
                return None
            why = parse_error_reason(error)
        tools_list = (
            self._parse_truncated(line) if header.method is None and header.id in self._list_request_ids else None
        )
        if tools_list is not None:
            return tools_list
        what = "a message that cannot be read" + (f": {why}" if why else "")
        logger.warning("%s sent %s", self._source.name, what)
        if header.id is None:
            if header.method is None:
                self.fail(f"it sent {what}")  # any call may be waiting for it
            return None
        text = f"the MCP server `{self._source.name}` sent {what}"
        refusal = types.JSONRPCError(
            jsonrpc="2.0", id=header.id, error=types.ErrorData(code=types.PARSE_ERROR, message=text)
        )
        if header.method is None:
            return refusal
        self._write(refusal)
        return None

    def _parse_truncated(self, line: bytes) -> types.JSONRPCMessage | None:
        """Parse a list of tools without what is nested too deeply: one schema must not make a server unusable."""
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

    # -- sending -------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Make senders wait: the pipe is full, because the program is slow to read."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let senders continue: the program has caught up."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Let senders continue: the program has closed its stdin."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def send(self, message: SessionMessage) -> None:
        """Send a message; nothing is sent once the program has ended: the session learns of the end by itself."""
        if self._stdin is None or self._is_closed or self._stdin.is_closing():
            return
        payload = message.message
        if isinstance(payload, types.JSONRPCRequest) and payload.method == "tools/list":
            self._list_request_ids = {payload.id}
        self._write(payload)
        drained = self._drained
        if drained is None:
            return
        if not isinstance(payload, types.JSONRPCNotification):
            await asyncio.shield(drained)
        elif not (await asyncio.wait((drained,), timeout=NOTIFICATION_TIMEOUT))[0]:
            # Canceling a call waits here, and must not wait for a program that has stopped reading.
            self.fail("it does not read what it is sent")

    def _write(self, message: types.JSONRPCMessage) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


class _PipeReader(asyncio.Protocol):
    """The event loop's protocol of one output pipe."""

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class _SessionStream:
    """The stream object that the SDK's session reads from and writes to."""

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
