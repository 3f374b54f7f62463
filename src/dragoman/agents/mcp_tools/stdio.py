"""A program as an MCP server: its standard streams are the session's, its end is noticed, its stderr goes to the log.

The SDK has a transport of this kind. This one parses and writes where the bytes come and go, without tasks and queues
in between, which saves a tenth of the time of a call; it tells how a program ended, and takes lines that are no
messages for what they are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
import msgspec
from anyio import EndOfStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.agents.mcp_tools.call import Questions
    from dragoman.agents.mcp_tools.source import Source

# How much is looked through, at either end: what names a message stands before or after what it carries.
_ENDS = 1_000
# How deeply what is saved may be nested, and how long a message may be that is saved.
DEEPEST = 100
_LONGEST = 4_000_000

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


def reason_of(error: ValueError) -> str:
    """Why a line could not be read, where that can be said in a few words."""
    if isinstance(error, NotJson):
        return str(error)
    found = _INVALID.search(str(error))
    return found[0] if found is not None else ""


class Envelope(Struct, frozen=True):
    """What a message says of itself. It is a request with a method and an id, a response with an id alone."""

    is_message: bool
    id: int | str | None = None
    method: str | None = None


def envelope_of(line: bytes) -> Envelope:
    """What can be told from both ends of a line."""
    members: dict[bytes, bytes] = {}
    head, place = line[:_ENDS], 0
    while (found := _FIRST.match(head, place)) is not None:
        members[found[1]] = found[2]
        place = found.end()
    last = _LAST.search(line[-_ENDS:])
    if last is not None:
        members |= dict(_EACH.findall(last[0]))
    number, method = _decoded(members.get(b"id")), _decoded(members.get(b"method"))
    return Envelope(b"jsonrpc" in members, number, method if isinstance(method, str) else None)


def _decoded(value: bytes | None) -> int | str | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=int | str | None)
    except (msgspec.MsgspecError, ValueError):
        return None


def flattened(line: bytes) -> bytes | None:
    """The line without what is nested too deeply; None when nothing is, or when it is too long to be looked through."""
    if len(line) > _LONGEST:
        return None
    pieces: list[bytes] = []
    depth = kept = 0
    for bracket in _BRACKET.finditer(line):
        if bracket[0] in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                pieces.append(line[kept : bracket.end()])
        elif bracket[0] in (b"]", b"}"):
            if depth == DEEPEST + 1:
                kept = bracket.start()
            depth -= 1
    return b"".join((*pieces, line[kept:])) if pieces and depth == 0 else None


logger = logging.getLogger("dragoman.mcp")
_REMEMBERED = 8
_stdio_LONGEST = 2000
# How many messages may wait to be taken before the program has to.
_AHEAD = 1000
# How many messages are given to the session before others have a turn.
_IN_A_ROW = 16
# How long a message may be. What is longer is no message, and would take all the memory there is.
LONGEST_LINE = 64_000_000
# How long a program that is slow to read may take to make room for a word about what it need not do any more.
ROOM_SECONDS = 2.0
# How long a program may take to end by itself, and then once it has been told to.
GRACE_SECONDS, TERM_SECONDS = 2.0, 2.0
# How long the output of one that has ended may stay open.
_LAST_SECONDS = 0.5


class Program(asyncio.SubprocessProtocol):
    """A running server. It is the transport of a session: what it yields are the two streams, and both are itself."""

    def __init__(self, source: Source, ended: Callable[[], None], questions: Questions | None = None) -> None:
        self._source = source
        self._ended = ended
        self._questions = questions
        self.problem = ""
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._lines: deque[bytes] = deque()
        self._in_a_row = 0
        self._rest: list[bytes] = []
        self._length = 0
        self._over = False
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._exited = asyncio.Event()
        self._listing: set[types.RequestId] = set()
        self._murmur: deque[str] = deque(maxlen=_REMEMBERED)
        self._murmured = b""

    @property
    def last_words(self) -> str:
        """What it said last on stderr."""
        return "\n".join(self._murmur)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> tuple[Any, Any]:
        """Start it. Raises OSError when that is not possible."""
        name, *arguments = self._source.argv
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            shutil.which(name) or name,  # Windows finds nothing but .exe by itself
            *arguments,
            env=get_default_environment() | self._source.env,
            start_new_session=os.name == "posix",  # so that what it starts ends with it
        )
        self._transport = transport
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        return _Reading(self), _Writing(self)

    async def __aexit__(self, *_: object) -> None:
        """End it, and all it has started: first by closing its input, then by asking, then by force."""
        await asyncio.shield(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        assert self._transport is not None
        if self._stdin is not None:
            self._stdin.close()
        if not await self._is_over(GRACE_SECONDS):
            self._signal(signal.SIGTERM)
            if not await self._is_over(TERM_SECONDS):
                self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
                await self._is_over(TERM_SECONDS)
        elif os.name == "posix":
            self._signal(signal.SIGTERM)  # what it started may have stayed
        self._transport.close()

    async def _is_over(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        return self._exited.is_set()

    def _signal(self, number: int) -> None:
        assert self._transport is not None
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._transport.get_pid(), number)
            else:
                self._transport.send_signal(number)

    # -- what comes ----------------------------------------------------------------------------------------------------

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what the program said."""
        if fd == 2:
            self._hear(data)
            return
        if self._over:
            return
        first, *others = data.split(b"\n")
        self._rest.append(first)
        self._length += len(first)
        if self._length > LONGEST_LINE:
            self._rest = []
            self.end(f"it sent a line longer than {LONGEST_LINE // 1_000_000} MB")
            return
        if others:
            # Put together once, at its end: a long line comes in many pieces.
            *whole, last = others
            self._lines.extend((b"".join(self._rest), *whole))
            self._rest, self._length = [last], len(last)
        if len(self._lines) > _AHEAD:
            self._pause(reading=False)
        self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that one of its streams has ended."""
        if fd == 2:
            self._hear(b"\n")
        elif fd == 1:
            self._end()
        elif self._room is not None and not self._room.done():
            self._room.set_result(None)

    def process_exited(self) -> None:
        """Note that it has ended. What it said last may still come, unless others hold its output open."""
        self._exited.set()
        asyncio.get_running_loop().call_later(_LAST_SECONDS, self._end)

    def end(self, problem: str) -> None:
        """Do without it from now on, for that reason."""
        if not self._over:
            self.problem = problem
            logger.warning("%s: %s", self._source.name, problem)
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._ended()
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _pause(self, *, reading: bool) -> None:
        output: Any = self._transport.get_pipe_transport(1) if self._transport is not None else None
        if output is not None and not self._over:
            (output.resume_reading if reading else output.pause_reading)()

    def _hear(self, data: bytes) -> None:
        *lines, self._murmured = (self._murmured + data).split(b"\n")
        if len(self._murmured) > _stdio_LONGEST:
            lines, self._murmured = [*lines, self._murmured], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:_stdio_LONGEST]
            if text:
                self._murmur.append(text)
                logger.debug("%s: %s", self._source.name, text)

    async def receive(self) -> SessionMessage:
        """The next message. Raises EndOfStream when there will be none."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if len(self._lines) == _AHEAD:
                    self._pause(reading=True)
                message = self._read(line)
                if message is None:
                    continue
                if self._questions is not None and isinstance(message, (types.JSONRPCResponse, types.JSONRPCError)):
                    self._questions.answered(message.id)
                self._in_a_row += 1
                if self._in_a_row == _IN_A_ROW:
                    # Who reads them starts two tasks for each: a server that floods must not hold up everybody else.
                    self._in_a_row = 0
                    await asyncio.sleep(0)
                return SessionMessage(message)
            if self._over:
                raise EndOfStream
            self._in_a_row = 0
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _read(self, line: bytes) -> types.JSONRPCMessage | None:
        """The message that a line is; None for what is none.

        Who waits for one that cannot be read gets an error instead, be it a call here or the program itself.
        """
        try:
            check_numbers(line)
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            envelope = envelope_of(line)
            if not envelope.is_message:
                if line.strip():
                    logger.debug("%s says what is no message: %s", self._source.name, line[:_stdio_LONGEST])
                return None
            why = reason_of(error)
        listed = self._without_depths(line) if envelope.method is None and envelope.id in self._listing else None
        if listed is not None:
            return listed
        said = "a message that cannot be read" + (f": {why}" if why else "")
        logger.warning("%s sent %s", self._source.name, said)
        if envelope.id is None:
            if envelope.method is None:
                self.end(f"it sent {said}")  # it may be what any call waits for
            return None
        text = f"the MCP server `{self._source.name}` sent {said}"
        refusal = types.JSONRPCError(
            jsonrpc="2.0", id=envelope.id, error=types.ErrorData(code=types.PARSE_ERROR, message=text)
        )
        if envelope.method is None:
            return refusal
        self._write(refusal)
        return None

    def _without_depths(self, line: bytes) -> types.JSONRPCMessage | None:
        """A list of tools without what is nested too deeply: one schema must not keep a server from being used."""
        try:
            shallow = flattened(line)
            message = None if shallow is None else types.jsonrpc_message_adapter.validate_json(shallow, by_name=False)
        except ValueError:
            return None
        if message is not None:
            logger.warning(
                "%s: a schema is nested deeper than %d levels: what is deeper is not enforced",
                self._source.name,
                DEEPEST,
            )
        return message

    # -- what goes -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The program is slow to read."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The program has caught up."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def send(self, message: SessionMessage) -> None:
        """Send a message; to one that has ended nothing is sent, and the session hears of the end anyway."""
        if self._stdin is None or self._over or self._stdin.is_closing():
            return
        said = message.message
        if isinstance(said, types.JSONRPCRequest):
            if self._questions is not None and said.method == "tools/call":
                self._questions.sent(said.id)
            elif said.method == "tools/list":
                self._listing = {said.id}
        self._write(said)
        room = self._room
        if room is None:
            return
        if not isinstance(said, types.JSONRPCNotification):
            await asyncio.shield(room)
        elif not (await asyncio.wait((room,), timeout=ROOM_SECONDS))[0]:
            # Whoever gives up a call waits here, and must not wait for a program that reads nothing any more.
            self.end("it does not read what it is sent")

    def _write(self, message: types.JSONRPCMessage) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


class _Reading:
    """What a session reads."""

    def __init__(self, program: Program) -> None:
        self.receive = program.receive

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _Reading:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class _Writing:
    """What a session writes to."""

    def __init__(self, program: Program) -> None:
        self.send = program.send

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _Writing:
        return self

    async def __aexit__(self, *_: object) -> None:
        return
