"""The tools of MCP servers as an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.agents.command import clean_name
from dragoman.agents.mcp_tools.elicitation import OpenCalls
from dragoman.agents.mcp_tools.supervisor import Supervisor
from dragoman.agents.mcp_tools.task import TaskRun
from dragoman.agents.mcp_tools.tool import Tool, ToolRequest, choose_tool, choose_tool_by_answer, permission_of
from dragoman.agents.offers import shared_prefix
from dragoman.model.error import ConfigError, Rejected

if TYPE_CHECKING:
    import mcp_types as types

    from dragoman.agents.mcp_tools.source import Source
    from dragoman.engine.execute.context import Context

logger = logging.getLogger("dragoman.mcp")
START_TIMEOUT = 60.0
CALL_HINT = 'Call a tool with a data part {"tool": "…", "arguments": {…}}.'
# Tools served per server, and maximum length of their names.
MAX_TOOLS, MAX_NAME_LENGTH = 25_000, 256
# Tools with an example on the card, and card entries built before yielding to the event loop.
MAX_EXAMPLES, CARDS_PER_TURN = 1000, 20
_MAX_DESCRIPTION = 300


class ServerMetadata(NamedTuple):
    """What an MCP server reports about itself; all of it may be empty."""

    name: str = ""
    description: str = ""
    version: str = ""


class McpTools:
    """The agent made of all tools of some MCP servers. With `takes_server_name` its card has the name of its server.

    It has no tools until `open`. `revision` grows whenever the list of tools is rebuilt.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        permissions: Mapping[str, str | None] | None = None,
        default_tool: str | None = None,
        timeout: float = 0,
        total_timeout: float = 0,
        start_seconds: float = START_TIMEOUT,
        takes_server_name: bool = False,
    ) -> None:
        self._takes_server_name = takes_server_name
        self._include = None if include is None else _as_tuple(include)
        self._exclude = _as_tuple(exclude or ())
        self._permissions = dict(permissions or {})
        self._default = default_tool
        self._timeout = timeout
        self._total_timeout = total_timeout
        self._sources = tuple(sources)
        self._start_seconds = start_seconds
        self._supervisors: tuple[Supervisor, ...] = ()  # those of the servers, from `open` to `close`
        self._tools: dict[str, Tool] = {}
        self._open_calls = OpenCalls()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._card_task: asyncio.Task[None] | None = None
        self.revision = 0

    # -- tools ---------------------------------------------------------------------------------------------------------

    @property
    def offers(self) -> Sequence[Tool]:
        """The tools, in the order in which their servers list them, or as `include` names them."""
        return tuple(self._tools.values())

    @property
    def asks_within_calls(self) -> bool:
        """True when a server may ask while a call is open, so that only this process can pass the answer on."""
        return any(each.asks_within_calls for each in self._sources)

    @property
    def about(self) -> ServerMetadata:
        """What the server reports about itself, for the agent card."""
        if len(self._sources) != 1:
            names = ", ".join(each.name for each in self._sources)
            return ServerMetadata(description=f"The tools of {names}")
        connection = self._supervisors[0].connection if self._supervisors else None
        if connection is None:
            return ServerMetadata()
        info = connection.client.server_info
        texts = [
            info.description if info else None,
            connection.client.session.instructions,
            info.title if info else None,
        ]
        text = next((text.strip() for text in texts if text and text.strip()), "")
        about = _first_paragraph(text) or f"The tools of {self._sources[0].name}"
        description = f"{about}{'' if about.endswith(('.', '!', '?', '…')) else '.'} {CALL_HINT}"
        if info is None:
            return ServerMetadata(description=description)
        name = clean_name(info.name[:MAX_NAME_LENGTH]) if self._takes_server_name and info.name.strip() else ""
        return ServerMetadata(name, description, info.version or "")

    def schemas(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """The JSON Schemas of these tools, by id."""
        return {name: self._tools[name].schemas() for name in ids if name in self._tools}

    def restarts(self, ctx: Context) -> bool:
        """True when the tool that a message asks for may run again after a crash, or no tool is called at all."""
        ref: Any = ctx.resume.ref if ctx.resume is not None else None
        try:
            if isinstance(ref, dict) and "tool" in ref:
                tool = self._tools.get(str(cast("dict[str, Any]", ref)["tool"]))
                return tool is not None and tool.may_repeat
            request = choose_tool(ctx, self._tools) if ref is None else choose_tool_by_answer(ctx, self._tools)
        except Rejected:
            return True  # it will be rejected again
        return not isinstance(request, ToolRequest) or request.tool.may_repeat

    def _rebuild_tools(self) -> None:
        """Rebuild the tools from what the servers list."""
        several = len(self._sources) > 1
        tools_by_id: dict[str, Tool] = {}
        for supervisor in self._supervisors:
            connection = supervisor.connection
            if connection is None:  # it is being restarted; its tools are still offered
                tools_by_id |= {tool.id: tool for tool in self._tools.values() if tool.supervisor is supervisor}
                continue
            tools = _servable_tools(supervisor.source.name, connection.tools)
            prefix = shared_prefix([tool.name for tool in tools])
            for tool in tools:
                name = f"{supervisor.source.name}.{tool.name}" if several else tool.name
                if self._is_included(name, tool.name):
                    tools_by_id[name] = self._get_or_create_tool(
                        supervisor, tool, name, prefix, with_example=len(tools_by_id) < MAX_EXAMPLES
                    )
        self._tools = self._sort_tools(tools_by_id)
        self.revision += 1
        if self._is_open:
            self._card_task = asyncio.get_running_loop().create_task(self._build_cards())

    def _get_or_create_tool(
        self, supervisor: Supervisor, tool: types.Tool, id: str, prefix: str, *, with_example: bool
    ) -> Tool:
        """Return the tool under this id: the existing object when nothing about it has changed."""
        options: dict[str, Any] = {
            "id": id,
            "permission": permission_of(tool, id, self._permissions),
            "default": self._default in (id, tool.name),
            "prefix": prefix,
            "with_example": with_example,
        }
        existing = self._tools.get(id)
        if existing is not None and existing.supervisor is supervisor and existing.is_built_from(tool, **options):
            return existing
        return Tool(supervisor, tool, **options)

    async def _build_cards(self) -> None:
        """Build the card entries of the tools, yielding to the event loop in between: there may be very many."""
        for number, tool in enumerate(tuple(self._tools.values())):
            tool.card()
            if number % CARDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _is_included(self, id: str, name: str) -> bool:
        def matches(patterns: Sequence[str]) -> bool:
            return any(fnmatchcase(id, pattern) or fnmatchcase(name, pattern) for pattern in patterns)

        return (self._include is None or matches(self._include)) and not matches(self._exclude)

    def _sort_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Order the tools as `include` names them, if it is set."""
        if self._include is None:
            return tools

        def position(tool: Tool) -> int:
            patterns = enumerate(self._include or ())
            return next(n for n, each in patterns if fnmatchcase(tool.id, each) or fnmatchcase(tool.name, each))

        return {tool.id: tool for tool in sorted(tools.values(), key=position)}

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start or connect to the servers.

        Raises:
            ConfigError: a program does not exist, or an option names a tool that does not exist.
            CannotConnect: a server does not answer.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # What was not closed on an earlier loop has ended with it.
            self._loop, self._opening, self._open_calls, self._is_open = loop, asyncio.Lock(), OpenCalls(), False
        async with self._opening:
            if self._is_open:
                return
            self._supervisors = tuple(
                Supervisor(each, self._rebuild_tools, start_seconds=self._start_seconds) for each in self._sources
            )
            try:
                await self._open_all()
                self._rebuild_tools()
                self._check_names()
                await self._build_cards()
            except BaseException:
                await self._close()
                raise
            self._is_open = True

    async def _open_all(self) -> None:
        openings = [asyncio.create_task(supervisor.open()) for supervisor in self._supervisors]
        try:
            await asyncio.gather(*openings)
        finally:  # when one cannot be opened, none is left half open
            for each in openings:
                each.cancel()
            await asyncio.wait(openings)

    def _check_names(self) -> None:
        names = {name for tool in self._tools.values() for name in (tool.id, tool.name)}
        options = [("default_tool", self._default)] if self._default is not None else []
        options += [("include", each) for each in self._include or () if not set("*?[") & set(each)]
        for option, name in options:
            if name not in names:
                existing = ", ".join(sorted(tool.id for tool in self._tools.values())) or "none"
                raise ConfigError(f"{option}: there is no tool `{name}`; there are: {existing}")

    async def close(self) -> None:
        """Close all connections of this event loop. Waits for servers that are being opened: none is left running."""
        if self._loop is asyncio.get_running_loop():
            async with self._opening:
                await self._close()

    async def _close(self) -> None:
        await self._open_calls.close()
        if self._card_task is not None:
            self._card_task.cancel()
        await asyncio.gather(*(supervisor.close() for supervisor in self._supervisors))
        self._supervisors = ()
        self._loop, self._tools, self._is_open = None, {}, False

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Call the tool that the message asks for; yield the question on which the task pauses, if any.

        Results are sent as artifacts. The servers are opened first if they are not open in this event loop.

        Raises:
            Failed: the tool or its server failed.
            Rejected: there is no such tool, the caller may not use it, or the server refuses the arguments.
            ConfigError, CannotConnect: the servers cannot be opened.
        """
        if self._loop is not asyncio.get_running_loop():
            await self.open()
        run = TaskRun(ctx, self._tools, self._open_calls, self._timeout, self._total_timeout)
        pause = await run.run()
        if pause is not None:
            yield pause

    async def canceled(self, ref: Any) -> None:
        """Cancel the open call of a task that was canceled while it waited."""
        await self._open_calls.cancel(ref)


def _servable_tools(server: str, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
    """Return the tools of a server that can be served: at most MAX_TOOLS, with usable names."""
    servable = [tool for tool in tools if 0 < len(tool.name) <= MAX_NAME_LENGTH and tool.name.isprintable()]
    if len(servable) < len(tools):
        logger.warning(
            "%s: %d tools are left out: their names are empty, longer than %d characters or not printable",
            *(server, len(tools) - len(servable), MAX_NAME_LENGTH),
        )
    if len(servable) > MAX_TOOLS:
        logger.warning("%s has %d tools: the first %d are served", server, len(servable), MAX_TOOLS)
    return servable[:MAX_TOOLS]


def _as_tuple(names: Sequence[str]) -> tuple[str, ...]:
    """Accept a single name as a list of one."""
    return (names,) if isinstance(names, str) else tuple(names)


def _first_paragraph(text: str) -> str:
    """Return the first paragraph that is not a heading, as one line, truncated."""
    paragraphs = [
        " ".join(each.split()) for each in text.split("\n\n") if each.strip() and not each.lstrip().startswith("#")
    ]
    first = paragraphs[0] if paragraphs else ""
    return first if len(first) <= _MAX_DESCRIPTION else first[: _MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"
