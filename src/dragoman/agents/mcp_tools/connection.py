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

from dragoman.agents.mcp_tools.call import ElicitationRouter
from dragoman.agents.mcp_tools.stdio import StdioTransport, parse_header
from dragoman.model.error import CannotConnect, ConfigError, DragomanError
from dragoman.net.exchange import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.client._transport import TransportStreams

    from dragoman.agents.mcp_tools.source import Source

logger = logging.getLogger("dragoman.mcp")
_IN_SESSION: ContextVar[bool] = ContextVar("dragoman_mcp", default=False)
_MAX_PAGES = 100
# Before a stream that was cut is asked for again.
INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 60.0
_HTTP_TIMEOUT = 30.0
# How long a server may take to say goodbye. A program has times of its own.
CLOSE_TIMEOUT = 2.0
CLIENT_INFO = types.Implementation(name="dragoman", title="Dragoman", version=version("dragoman"))


class _SdkLogFilter(logging.Filter):
    """Keeps tracebacks of the SDK about our servers out of the log: what matters of it is told here, in a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _IN_SESSION.get() or record.levelno < logging.WARNING


for _name in ("mcp.client.streamable_http", "client"):
    logging.getLogger(_name).addFilter(_SdkLogFilter())


class ServerConnection:
    """A session with one server. The SDK wants it opened and closed by one and the same task: its owner.

    Once it is `over` it is never used again. `changed` is called when the server has other tools than before.
    """

    def __init__(self, source: Source, changed: Callable[[], None]) -> None:
        self.source = source
        self.tools: tuple[types.Tool, ...] = ()
        self.elicitations = ElicitationRouter(source.name)
        self.closed = asyncio.Event()
        self._changed = changed
        self._stop = asyncio.Event()
        self._stdio = StdioTransport(source, self.closed.set, self.elicitations) if source.argv else None
        self._problem = ""
        self._client: Client | None = None
        self._is_open = False
        self._session_task: asyncio.Task[None] | None = None

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
    def stderr_tail(self) -> str:
        """What the program said last on stderr."""
        return "" if self._stdio is None else self._stdio.stderr_tail

    @property
    def problem(self) -> str:
        """Why it is over, where that was not the server's will."""
        return self._problem or ("" if self._stdio is None else self._stdio.problem)

    async def open(self, seconds: float) -> None:
        """Start or reach the server and learn its tools.

        Raises:
            ConfigError: there is no such program.
            CannotConnect: it does not answer, or not as an MCP server.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session_task = asyncio.create_task(self._run_session(ready))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(ready)
            self._is_open = True
        except TimeoutError:
            await self.close()
            raise CannotConnect(self._unusable_text(f"it said nothing for {seconds:g} s"), reason="TIMEOUT") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session, and with it the program."""
        self._stop.set()
        if self._session_task is not None:
            if not self._is_open:
                self._session_task.cancel()  # it waits for a server that may never answer
            if self._stdio is None:
                await asyncio.wait((self._session_task,), timeout=CLOSE_TIMEOUT)
                self._session_task.cancel()
            await asyncio.wait((self._session_task,))

    def fail(self, problem: str) -> None:
        """Use it no more, for that reason; who keeps it begins another."""
        if not self.closed.is_set():
            self._problem = problem
            self.closed.set()

    async def refresh(self) -> None:
        """Ask for the tools again. Raises MCPError."""
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        self.tools = tuple(tools)

    # -- the owner -----------------------------------------------------------------------------------------------------

    async def _run_session(self, ready: asyncio.Future[None]) -> None:
        _IN_SESSION.set(True)
        problem: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    self._server_argument(),
                    elicitation_callback=self.elicitations.on_elicitation,
                    message_handler=self._on_message,
                    client_info=CLIENT_INFO,
                )
                self._client = await stack.enter_async_context(client)
                # By whose output schema a result is judged is told by `Tool`: the SDK would do it here and now, however
                # long a server's patterns and references take.
                cast("Any", client.session).validate_tool_result = _skip_validation
                if self.client.server_capabilities.tools is not None:
                    await self.refresh()
                if not ready.done():
                    ready.set_result(None)
                await self._wait_closed()
        except asyncio.CancelledError as error:
            problem = error
            if not self._is_transport_broken():
                raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the session is over and the server goes on
            problem = error
        finally:
            self.closed.set()
            self.elicitations.close()
            if not ready.done():
                ready.set_exception(self._startup_error(problem))
                ready.exception()  # who waited may be gone

    def _is_transport_broken(self) -> bool:
        """True when a cancel comes from within: the transport broke, and took its task with it."""
        owner = asyncio.current_task()
        return owner is not None and owner.cancelling() == 0

    async def _wait_closed(self) -> None:
        listening = asyncio.create_task(self._listen())
        waits = [asyncio.create_task(self._stop.wait()), asyncio.create_task(self.closed.wait())]
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
        pause = INITIAL_BACKOFF
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as subscription:
                    pause = INITIAL_BACKOFF
                    async for _ in subscription:
                        await self._reload_tools()
            except Exception as error:  # noqa: BLE001 - the tools that are known stay
                logger.debug("%s: its changes cannot be heard of: %s", self.source.name, error)
                if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                    return
            # Such a stream may be cut like any other: what was missed is asked for.
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF)
            await self._reload_tools()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ValidationError):  # over HTTP, outside all calls
            self._on_unreadable(message)
        if isinstance(message, types.ToolListChangedNotification) and self._client is not None and not self.is_modern:
            await self._reload_tools()

    def _on_unreadable(self, error: ValidationError) -> None:
        """End the session for a request that cannot be read: it would be waited for, and cannot even be refused."""
        line: object = error.errors(include_url=False, include_context=False)[0]["input"]
        envelope = parse_header(line.encode(errors="replace") if isinstance(line, str) else b"")
        logger.warning("%s sent a message that cannot be read", self.source.name)
        if envelope.id is not None:
            self.fail("it sent a message that cannot be read")

    async def _reload_tools(self) -> None:
        try:
            await self.refresh()
        except (MCPError, ValueError) as error:
            logger.warning("%s: its new tools cannot be listed: %s", self.source.name, error)
            return
        self._changed()

    def _server_argument(self) -> Any:
        source = self.source
        if self._stdio is not None:
            return self._stdio
        return _http_transport(source) if source.url else source.server

    # -- words ---------------------------------------------------------------------------------------------------------

    def _unusable_text(self, what: str) -> str:
        last = self.stderr_tail
        return f"the MCP server `{self.source.name}` cannot be used: {what}" + (f"\n{_indented(last)}" if last else "")

    def _startup_error(self, error: BaseException | None) -> DragomanError:
        error = _first_error(error)
        if isinstance(error, FileNotFoundError):
            return ConfigError(f"there is no program `{self.source.argv[0]}`: install it, or write its whole path")
        if isinstance(error, PermissionError):
            return ConfigError(f"`{self.source.argv[0]}` is no program that may be run here")
        if isinstance(error, MCPError):
            if error.code == types.CONNECTION_CLOSED and self.source.argv:
                hint = (
                    "it ended before it answered; it gets only HOME, PATH and the like: pass other variables with env"
                )
                return CannotConnect(self._unusable_text(hint), reason="CONNECTION_LOST")
            return CannotConnect(self._unusable_text(error.message), reason="CONNECTION_LOST")
        text = f"{type(error).__name__}{f': {error}' if str(error) else ''}" if error is not None else "it was given up"
        return CannotConnect(self._unusable_text(text), reason="CONNECTION_LOST")


async def _skip_validation(name: str, result: types.CallToolResult) -> None:
    """Judge no result. In place of the SDK's `validate_tool_result`."""


@asynccontextmanager
async def _http_transport(source: Source) -> AsyncGenerator[TransportStreams, None]:
    # Its own client: the environment's proxy is for the world outside, and how long a tool may be silent is told by
    # who calls it. A question may wait for an hour, and each of them has a connection, as each call has: how many
    # there may be is not for a pool to say, which would end the session with all of them.
    timeout = httpx2.Timeout(_HTTP_TIMEOUT, read=None, pool=None)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    trusts = not is_loopback(source.url)
    async with (
        httpx2.AsyncClient(headers=source.headers, timeout=timeout, limits=limits, trust_env=trusts) as http,
        streamable_http_client(source.url, http_client=http) as streams,
    ):
        yield streams


def _first_error(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return _first_error(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
