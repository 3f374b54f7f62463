"""The tools of MCP servers, as the `run` of an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

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
# How many tools of one server are served, and how long their names may be.
MAX_TOOLS, MAX_NAME_LENGTH = 25_000, 256
# How many tools have an example on the card, and of how many the card is made before others have their turn.
MAX_EXAMPLES, CARDS_PER_TURN = 1000, 20
_MAX_DESCRIPTION = 300


class McpTools:
    """All tools of some MCP servers. They are known once it is open; `revision` grows whenever they change."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        permissions: Mapping[str, str | None] | None = None,
        default_tool: str | None = None,
        timeout: float = 0,
        start_seconds: float = START_TIMEOUT,
    ) -> None:
        self._include = None if include is None else _as_tuple(include)
        self._exclude = _as_tuple(exclude or ())
        self._permissions = dict(permissions or {})
        self._default = default_tool
        self._timeout = timeout
        self._supervisors = tuple(
            Supervisor(each, self._rebuild_tools, start_seconds=start_seconds) for each in sources
        )
        self._tools: dict[str, Tool] = {}
        self._open_calls = OpenCalls()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._card_task: asyncio.Task[None] | None = None
        self.revision = 0

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def offers(self) -> Sequence[Tool]:
        """The tools, in the order in which their servers list them, or as `include` names them."""
        return tuple(self._tools.values())

    @property
    def about(self) -> tuple[str, str]:
        """What their servers say of themselves: a description and a version, either may be empty."""
        if len(self._supervisors) != 1:
            return f"The tools of {', '.join(each.source.name for each in self._supervisors)}", ""
        connection = self._supervisors[0].connection
        if connection is None:
            return "", ""
        info = connection.client.server_info
        words = [
            info.description if info else None,
            connection.client.session.instructions,
            info.title if info else None,
        ]
        said = next((text.strip() for text in words if text and text.strip()), "")
        about = _first_paragraph(said) or f"The tools of {self._supervisors[0].source.name}"
        return f"{about}{'' if about.endswith(('.', '!', '?', '…')) else '.'} {CALL_HINT}", (
            info.version if info else ""
        ) or ""

    def schemas(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """The JSON schemas of these tools, by id."""
        return {name: self._tools[name].schemas() for name in ids if name in self._tools}

    def restarts(self, ctx: Context) -> bool:
        """True when the tool a message means may run again after a crash."""
        ref: Any = ctx.resume.ref if ctx.resume is not None else None
        try:
            if isinstance(ref, dict) and "tool" in ref:
                tool = self._tools.get(str(cast("dict[str, Any]", ref)["tool"]))
                return tool is not None and tool.may_repeat
            found = choose_tool(ctx, self._tools) if ref is None else choose_tool_by_answer(ctx, self._tools)
        except Rejected:
            return True  # it is refused again
        return not isinstance(found, ToolRequest) or found.tool.may_repeat

    def _rebuild_tools(self) -> None:
        """Look again at what the servers have."""
        several = len(self._supervisors) > 1
        found: dict[str, Tool] = {}
        for supervisor in self._supervisors:
            connection = supervisor.connection
            if connection is None:  # it is away for the moment; its tools are still offered
                found |= {tool.id: tool for tool in self._tools.values() if tool.supervisor is supervisor}
                continue
            tools = _servable_tools(supervisor.source.name, connection.tools)
            prefix = shared_prefix([tool.name for tool in tools])
            for tool in tools:
                name = f"{supervisor.source.name}.{tool.name}" if several else tool.name
                if self._is_included(name, tool.name):
                    found[name] = self._get_or_create_tool(
                        supervisor, tool, name, prefix, with_example=len(found) < MAX_EXAMPLES
                    )
        self._tools = self._sort_tools(found)
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
        """Make what the card says of the tools, while others have their turn: there may be very many."""
        for number, tool in enumerate(tuple(self._tools.values())):
            tool.card()
            if number % CARDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _is_included(self, id: str, name: str) -> bool:
        def fits(patterns: Sequence[str]) -> bool:
            return any(fnmatchcase(id, pattern) or fnmatchcase(name, pattern) for pattern in patterns)

        return (self._include is None or fits(self._include)) and not fits(self._exclude)

    def _sort_tools(self, found: dict[str, Tool]) -> dict[str, Tool]:
        """As the servers list them, or as `include` names them."""
        if self._include is None:
            return found

        def place(tool: Tool) -> int:
            patterns = enumerate(self._include or ())
            return next(n for n, each in patterns if fnmatchcase(tool.id, each) or fnmatchcase(tool.name, each))

        return {tool.id: tool for tool in sorted(found.values(), key=place)}

    # -- life ----------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start or reach the servers.

        Raises:
            ConfigError: a program is not there, or a name that was given means no tool.
            CannotConnect: a server does not answer.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._opening, self._open_calls, self._is_open = loop, asyncio.Lock(), OpenCalls(), False
        async with self._opening:
            if self._is_open:
                return
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
        finally:  # where one cannot be opened, the others are not left behind half open
            for each in openings:
                each.cancel()
            await asyncio.wait(openings)

    def _check_names(self) -> None:
        names = {name for tool in self._tools.values() for name in (tool.id, tool.name)}
        said = [("default_tool", self._default)] if self._default is not None else []
        said += [("include", each) for each in self._include or () if not set("*?[") & set(each)]
        for option, name in said:
            if name not in names:
                there = ", ".join(sorted(tool.id for tool in self._tools.values())) or "none"
                raise ConfigError(f"{option}: there is no tool `{name}`; there are: {there}")

    async def close(self) -> None:
        """Let go of the servers. What is being opened is waited for: it must not be left behind."""
        if self._loop is asyncio.get_running_loop():
            async with self._opening:
                await self._close()
        else:
            await self._close()

    async def _close(self) -> None:
        await self._open_calls.close()
        if self._card_task is not None:
            self._card_task.cancel()
        await asyncio.gather(*(supervisor.close() for supervisor in self._supervisors))
        self._loop, self._tools, self._is_open = None, {}, False

    # -- work ----------------------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Do what a message asks."""
        if self._loop is not asyncio.get_running_loop():
            await self.open()
        run = TaskRun(ctx, self._tools, self._open_calls, self._timeout)
        pause = await run.run()
        if pause is not None:
            yield pause

    async def canceled(self, ref: Any) -> None:
        """A task was canceled while it waited: end the call that it held."""
        await self._open_calls.cancel(ref)


def _servable_tools(server: str, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
    """The tools of a server that can be offered: as many as can be handled, with names that can be shown."""
    named = [tool for tool in tools if 0 < len(tool.name) <= MAX_NAME_LENGTH and tool.name.isprintable()]
    if len(named) < len(tools):
        logger.warning(
            "%s: %d tools are left out: their names are empty, longer than %d characters or not printable",
            *(server, len(tools) - len(named), MAX_NAME_LENGTH),
        )
    if len(named) > MAX_TOOLS:
        logger.warning("%s has %d tools: the first %d are served", server, len(named), MAX_TOOLS)
    return named[:MAX_TOOLS]


def _as_tuple(names: Sequence[str]) -> tuple[str, ...]:
    """Names as a user gives them: one alone is a list of one, not of its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def _first_paragraph(text: str) -> str:
    """The first paragraph that is no heading, as one line, cut where it gets long."""
    paragraphs = [
        " ".join(each.split()) for each in text.split("\n\n") if each.strip() and not each.lstrip().startswith("#")
    ]
    first = paragraphs[0] if paragraphs else ""
    return first if len(first) <= _MAX_DESCRIPTION else first[: _MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"
