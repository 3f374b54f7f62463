"""One connection to an MCP server: its SDK session, its tools, and its end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.agents.mcp_tools.in_flight import CallsInFlight
from dragoman.agents.mcp_tools.result_limit import BoundedStream
from dragoman.agents.mcp_tools.stdio import StdioTransport, parse_header
from dragoman.model.error import CannotConnect, ConfigError, DragomanError
from dragoman.net.exchange import is_loopback
from dragoman.telemetry.mcp_calls import outside_of_traces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from mcp.client._transport import TransportStreams

    from dragoman.agents.mcp_tools.source import Source

logger = logging.getLogger("dragoman.mcp")
_IN_SESSION: ContextVar[bool] = ContextVar("dragoman_mcp", default=False)
_MAX_PAGES = 100
# Seconds before a broken subscription is renewed.
INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 60.0
_HTTP_TIMEOUT = 30.0
# Seconds for closing a session over HTTP or in this process. The stdio transport has its own timeouts.
CLOSE_TIMEOUT = 2.0
CLIENT_INFO = types.Implementation(name="dragoman", title="Dragoman", version=version("dragoman"))


class _SdkLogFilter(logging.Filter):
    """Keeps the SDK's tracebacks about our sessions out of the log: what matters is logged here, in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _IN_SESSION.get() or record.levelno < logging.WARNING


for _name in ("mcp.client.streamable_http", "client"):
    logging.getLogger(_name).addFilter(_SdkLogFilter())


class ServerConnection:
    """A session with one MCP server.

    The SDK requires that one task opens and closes a session: the session task. Once `closed` is set, the connection is
    never used again. `on_tools_changed` is called when the server's tools have changed. With `handshake` the newest
    protocol revision is not tried. `on_asking` is called with the name of a tool that asks within a call, `on_end` when
    a call has ended, or when nobody uses the connection any more.
    """

    def __init__(
        self,
        source: Source,
        on_tools_changed: Callable[[], None],
        *,
        on_asking: Callable[[str], None],
        on_end: Callable[[], None],
        handshake: bool = False,
    ) -> None:
        self.source = source
        self.tools: tuple[types.Tool, ...] = ()
        self.in_flight = CallsInFlight(source.name, on_asking, on_end)
        self.closed = asyncio.Event()
        self._is_handshake = handshake or source.revision not in ("", LATEST_MODERN_VERSION)
        self._users = 0
        self._ends_when_idle = False
        self._on_tools_changed = on_tools_changed
        self._on_end = on_end
        self._stop = asyncio.Event()
        self._stdio = StdioTransport(source, self.closed.set) if source.argv else None
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
        """True when the server returns its questions as results of calls, so that each belongs to a known call."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def is_idle(self) -> bool:
        """True when the connection is open, nobody uses it and no call is in flight."""
        return self._is_open and self._users == 0 and not self.in_flight

    @contextmanager
    def use(self) -> Generator[None]:
        """Keep the connection from being closed as idle, for as long as the context lasts."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._ends_when_idle and self.is_idle:
                self._stop.set()
            self._on_end()

    def close_when_idle(self) -> None:
        """End the session as soon as nobody uses it. Only for servers that return their questions."""
        self._ends_when_idle = True
        if self.is_idle:
            self._stop.set()

    @property
    def stderr_tail(self) -> str:
        """The last lines of the program's stderr."""
        return "" if self._stdio is None else self._stdio.stderr_tail

    @property
    def problem(self) -> str:
        """Why the connection failed; empty while it is open, and when the server ended it."""
        return self._problem or ("" if self._stdio is None else self._stdio.problem)

    async def open(self, seconds: float) -> None:
        """Start or connect to the server and list its tools.

        Raises:
            ConfigError: the program does not exist, or may not be run.
            CannotConnect: it does not answer, or not as an MCP server.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # It serves the calls of many traces, though one of them may have opened it.
        self._session_task = asyncio.create_task(self._run_session(ready), context=outside_of_traces())
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
                self._session_task.cancel()  # it may wait for a server that never answers
            if self._stdio is None:
                await asyncio.wait((self._session_task,), timeout=CLOSE_TIMEOUT)
                self._session_task.cancel()
            await asyncio.wait((self._session_task,))

    def fail(self, problem: str) -> None:
        """Mark the connection as closed, for this reason; the supervisor opens another."""
        if not self.closed.is_set():
            self._problem = problem
            self.closed.set()

    async def refresh(self) -> None:
        """List the tools again, up to 100 pages of them; a warning is logged when there are more.

        Raises:
            MCPError: the server refused, or the connection is lost.
            ValueError: its response is not valid MCP.
        """
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        else:
            logger.warning(
                "%s lists its tools on more than %d pages: the %d tools of these are served, the others are left out",
                *(self.source.name, _MAX_PAGES, len(tools)),
            )
        self.tools = tuple(tools)

    # -- the session task ----------------------------------------------------------------------------------------------

    async def _run_session(self, ready: asyncio.Future[None]) -> None:
        _IN_SESSION.set(True)
        problem: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    self._server_argument(),
                    elicitation_callback=self.in_flight.on_elicitation,
                    message_handler=self._on_message,
                    client_info=CLIENT_INFO,
                    mode="legacy" if self._is_handshake else "auto",
                )
                self._client = await stack.enter_async_context(client)
                self._check_revision()
                # `Tool` validates results, within a budget: the SDK would do it here on the event loop, however long
                # the server's patterns and references take.
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
        except BaseException as error:  # noqa: BLE001 - whatever it is, only this session is over
            problem = error
        finally:
            self.closed.set()
            if not ready.done():
                ready.set_exception(self._startup_error(problem))
                ready.exception()  # retrieved: nobody may be waiting any more

    def _check_revision(self) -> None:
        wanted, spoken = self.source.revision, self.client.protocol_version
        if wanted == LATEST_MODERN_VERSION and not self.is_modern:
            raise ConfigError(f"the MCP server `{self.source.name}` speaks revision {spoken}, and not {wanted}")

    def _is_transport_broken(self) -> bool:
        """True when a cancellation comes from within: the transport broke and canceled the session task."""
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
        """Subscribe to tool changes, as servers of the newest protocol revision publish them."""
        tools = self.client.server_capabilities.tools
        if not self.is_modern or tools is None or not tools.list_changed:
            return
        backoff = INITIAL_BACKOFF
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as subscription:
                    backoff = INITIAL_BACKOFF
                    async for _ in subscription:
                        await self._reload_tools()
            except Exception as error:  # noqa: BLE001 - the tools stay as they are
                logger.debug("%s: cannot subscribe to tool changes: %s", self.source.name, error)
                if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                    return
            # Changes may have been missed while the subscription was down.
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            await self._reload_tools()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ValidationError):  # over HTTP, outside of any call
            self._on_unreadable(message)
        if isinstance(message, types.ToolListChangedNotification) and self._client is not None and not self.is_modern:
            await self._reload_tools()

    def _on_unreadable(self, error: ValidationError) -> None:
        """Close the connection after a request that cannot be parsed: the server waits for a response to it."""
        line: object = error.errors(include_url=False, include_context=False)[0]["input"]
        header = parse_header(line.encode(errors="replace") if isinstance(line, str) else b"")
        logger.warning("%s sent a message that cannot be read", self.source.name)
        if header.id is not None:
            self.fail("it sent a message that cannot be read")

    async def _reload_tools(self) -> None:
        try:
            await self.refresh()
        except (MCPError, ValueError) as error:
            logger.warning("%s: its new tools cannot be listed: %s", self.source.name, error)
            return
        self._on_tools_changed()

    def _server_argument(self) -> Any:
        source = self.source
        if self._stdio is not None:
            return self._stdio
        return _http_transport(source) if source.url else source.server

    # -- error texts ---------------------------------------------------------------------------------------------------

    def _unusable_text(self, what: str) -> str:
        last = self.stderr_tail
        return f"the MCP server `{self.source.name}` cannot be used: {what}" + (f"\n{_indented(last)}" if last else "")

    def _startup_error(self, error: BaseException | None) -> DragomanError:
        error = _first_error(error)
        if isinstance(error, DragomanError):
            return error
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
    """Replace the SDK's `validate_tool_result`: validate nothing."""


@asynccontextmanager
async def _http_transport(source: Source) -> AsyncGenerator[TransportStreams, None]:
    # A client of its own: the environment's proxy is not for this machine, and the read timeout is up to the caller of
    # a tool. Each call and each waiting question, for up to an hour, has its own connection: a pool limit or pool
    # timeout would end the session with all of them.
    timeout = httpx2.Timeout(_HTTP_TIMEOUT, read=None, pool=None)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    trust_env = not is_loopback(source.url)
    context = _ssl_context(trust_env)
    async with (
        httpx2.AsyncClient(
            headers=source.headers, timeout=timeout, limits=limits, trust_env=trust_env, verify=context
        ) as http,
        streamable_http_client(source.url, http_client=http) as (received, sent),
    ):
        yield BoundedStream(received, source.name), sent


@cache
def _ssl_context(trust_env: bool) -> ssl.SSLContext:
    # Loading the certificate authorities takes longer than all the rest of a connection.
    return httpx2.create_ssl_context(trust_env=trust_env)


def _first_error(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return _first_error(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
