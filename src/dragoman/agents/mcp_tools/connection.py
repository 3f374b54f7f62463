"""One session with an MCP server, from its beginning to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.agents.mcp_tools.call import Questions
from dragoman.agents.mcp_tools.stdio import Program, envelope_of
from dragoman.model.error import CannotConnect, ConfigError, DragomanError
from dragoman.net.exchange import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.client._transport import TransportStreams

    from dragoman.agents.mcp_tools.source import Source

logger = logging.getLogger("dragoman.mcp")
_IS_OURS: ContextVar[bool] = ContextVar("dragoman_mcp", default=False)
_PAGES = 100
# Before a stream that was cut is asked for again.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_HTTP_SECONDS = 30.0
# How long a server may take to say goodbye. A program has times of its own.
GOODBYE_SECONDS = 2.0
CLIENT = types.Implementation(name="dragoman", title="Dragoman", version=version("dragoman"))


class _Quiet(logging.Filter):
    """Keeps tracebacks of the SDK about our servers out of the log: what matters of it is told here, in a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _IS_OURS.get() or record.levelno < logging.WARNING


for _name in ("mcp.client.streamable_http", "client"):
    logging.getLogger(_name).addFilter(_Quiet())


class Connection:
    """A session with one server. The SDK wants it opened and closed by one and the same task: its owner.

    Once it is `over` it is never used again. `changed` is called when the server has other tools than before.
    """

    def __init__(self, source: Source, changed: Callable[[], None]) -> None:
        self.source = source
        self.tools: tuple[types.Tool, ...] = ()
        self.questions = Questions(source.name)
        self.over = asyncio.Event()
        self._changed = changed
        self._stop = asyncio.Event()
        self._program = Program(source, self.over.set, self.questions) if source.argv else None
        self._problem = ""
        self._client: Client | None = None
        self._is_open = False
        self._owner: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The SDK's client."""
        assert self._client is not None
        return self._client

    @property
    def is_modern(self) -> bool:
        """True when the server asks questions by returning them, so that they belong to their call."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def last_words(self) -> str:
        """What the program said last on stderr."""
        return "" if self._program is None else self._program.last_words

    @property
    def problem(self) -> str:
        """Why it is over, where that was not the server's will."""
        return self._problem or ("" if self._program is None else self._program.problem)

    async def open(self, seconds: float) -> None:
        """Start or reach the server and learn its tools.

        Raises:
            ConfigError: there is no such program.
            CannotConnect: it does not answer, or not as an MCP server.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(ready))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(ready)
            self._is_open = True
        except TimeoutError:
            await self.close()
            raise CannotConnect(self._sentence(f"it said nothing for {seconds:g} s"), reason="TIMEOUT") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session, and with it the program."""
        self._stop.set()
        if self._owner is not None:
            if not self._is_open:
                self._owner.cancel()  # it waits for a server that may never answer
            if self._program is None:
                await asyncio.wait((self._owner,), timeout=GOODBYE_SECONDS)
                self._owner.cancel()
            await asyncio.wait((self._owner,))

    def end(self, problem: str) -> None:
        """Use it no more, for that reason; who keeps it begins another."""
        if not self.over.is_set():
            self._problem = problem
            self.over.set()

    async def refresh(self) -> None:
        """Ask for the tools again. Raises MCPError."""
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        self.tools = tuple(tools)

    # -- the owner -----------------------------------------------------------------------------------------------------

    async def _own(self, ready: asyncio.Future[None]) -> None:
        _IS_OURS.set(True)
        problem: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    self._target(),
                    elicitation_callback=self.questions.asked,
                    message_handler=self._heard,
                    client_info=CLIENT,
                )
                self._client = await stack.enter_async_context(client)
                # By whose output schema a result is judged is told by `Tool`: the SDK would do it here and now, however
                # long a server's patterns and references take.
                cast("Any", client.session).validate_tool_result = _unjudged
                if self.client.server_capabilities.tools is not None:
                    await self.refresh()
                if not ready.done():
                    ready.set_result(None)
                await self._until_over()
        except asyncio.CancelledError as error:
            problem = error
            if not self._is_lost():
                raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the session is over and the server goes on
            problem = error
        finally:
            self.over.set()
            self.questions.close()
            if not ready.done():
                ready.set_exception(self._explained(problem))
                ready.exception()  # who waited may be gone

    def _is_lost(self) -> bool:
        """True when a cancel comes from within: the transport broke, and took its task with it."""
        owner = asyncio.current_task()
        return owner is not None and owner.cancelling() == 0

    async def _until_over(self) -> None:
        listening = asyncio.create_task(self._listen())
        waits = [asyncio.create_task(self._stop.wait()), asyncio.create_task(self.over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (listening, *waits):
                each.cancel()
            await asyncio.wait((listening, *waits))

    async def _listen(self) -> None:
        """Hear of other tools, as servers of the newest revision tell it: on a stream that is asked for."""
        tools = self.client.server_capabilities.tools
        if not self.is_modern or tools is None or not tools.list_changed:
            return
        pause = FIRST_PAUSE
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as subscription:
                    pause = FIRST_PAUSE
                    async for _ in subscription:
                        await self._learn()
            except Exception as error:  # noqa: BLE001 - the tools that are known stay
                logger.debug("%s: its changes cannot be heard of: %s", self.source.name, error)
                if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                    return
            # Such a stream may be cut like any other: what was missed is asked for.
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            await self._learn()

    async def _heard(self, message: object) -> None:
        if isinstance(message, ValidationError):  # over HTTP, outside all calls
            self._cannot_read(message)
        if isinstance(message, types.ToolListChangedNotification) and self._client is not None and not self.is_modern:
            await self._learn()

    def _cannot_read(self, error: ValidationError) -> None:
        """End the session for a request that cannot be read: it would be waited for, and cannot even be refused."""
        line: object = error.errors(include_url=False, include_context=False)[0]["input"]
        envelope = envelope_of(line.encode(errors="replace") if isinstance(line, str) else b"")
        logger.warning("%s sent a message that cannot be read", self.source.name)
        if envelope.id is not None:
            self.end("it sent a message that cannot be read")

    async def _learn(self) -> None:
        try:
            await self.refresh()
        except (MCPError, ValueError) as error:
            logger.warning("%s: its new tools cannot be listed: %s", self.source.name, error)
            return
        self._changed()

    def _target(self) -> Any:
        source = self.source
        if self._program is not None:
            return self._program
        return _web(source) if source.url else source.server

    # -- words ---------------------------------------------------------------------------------------------------------

    def _sentence(self, what: str) -> str:
        last = self.last_words
        return f"the MCP server `{self.source.name}` cannot be used: {what}" + (f"\n{_indented(last)}" if last else "")

    def _explained(self, error: BaseException | None) -> DragomanError:
        error = _first(error)
        if isinstance(error, FileNotFoundError):
            return ConfigError(f"there is no program `{self.source.argv[0]}`: install it, or write its whole path")
        if isinstance(error, PermissionError):
            return ConfigError(f"`{self.source.argv[0]}` is no program that may be run here")
        if isinstance(error, MCPError):
            if error.code == types.CONNECTION_CLOSED and self.source.argv:
                hint = (
                    "it ended before it answered; it gets only HOME, PATH and the like: pass other variables with env"
                )
                return CannotConnect(self._sentence(hint), reason="CONNECTION_LOST")
            return CannotConnect(self._sentence(error.message), reason="CONNECTION_LOST")
        text = f"{type(error).__name__}{f': {error}' if str(error) else ''}" if error is not None else "it was given up"
        return CannotConnect(self._sentence(text), reason="CONNECTION_LOST")


async def _unjudged(name: str, result: types.CallToolResult) -> None:
    """Judge no result. In place of the SDK's `validate_tool_result`."""


@asynccontextmanager
async def _web(source: Source) -> AsyncGenerator[TransportStreams, None]:
    # Its own client: the environment's proxy is for the world outside, and how long a tool may be silent is told by
    # who calls it. A question may wait for an hour, and each of them has a connection, as each call has: how many
    # there may be is not for a pool to say, which would end the session with all of them.
    timeout = httpx2.Timeout(_HTTP_SECONDS, read=None, pool=None)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    trusts = not is_loopback(source.url)
    async with (
        httpx2.AsyncClient(headers=source.headers, timeout=timeout, limits=limits, trust_env=trusts) as http,
        streamable_http_client(source.url, http_client=http) as streams,
    ):
        yield streams


def _first(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
