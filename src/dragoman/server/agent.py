"""The agent, as its author writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec

from dragoman.agents.functions import Functions
from dragoman.agents.skill import Offer, mentions_reply, skill_of
from dragoman.model.card import AgentCard, AgentExtension
from dragoman.model.error import ConfigError, Failed

if TYPE_CHECKING:
    from dragoman.agents.skill import Skill
    from dragoman.agents.toolset import Toolset
    from dragoman.client.connection import Connection
    from dragoman.engine.context import Context
    from dragoman.server.app import App
    from dragoman.server.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
# How long a tool may be silent, unless its owner says otherwise.
TOOL_SECONDS = 600.0


class Agent:
    """An agent: a name, a description, and skills or a low-level `run`.

    `card` is merged last into the agent card. `extensions` are URIs, or AgentExtension objects where an extension
    is required. With `parallel`, several tasks of one conversation may run at once. With `restart`, `run` is called
    again after a crash instead of failing the task.

    Raises:
        ConfigError: the name is empty or an extension cannot be read.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        version: str = "0.1.0",
        run: Callable[[Context], AsyncIterator[Any]] | None = None,
        extensions: Sequence[AgentExtension | str | Mapping[str, Any]] = (),
        card: Mapping[str, Any] | None = None,
        closing: Literal["whole", "last"] = "whole",
        parallel: bool = False,
        restart: bool = False,
    ) -> None:
        if not name or "/" in name:
            raise ConfigError("an agent needs a name without a slash")
        self.name = name
        self.description = description
        self.version = version
        self.card: dict[str, Any] = dict(card or {})
        self.closing: Literal["whole", "last"] = closing
        self.parallel = parallel
        self.extensions: tuple[AgentExtension, ...] = tuple(_extension(extension) for extension in extensions)
        self._run = run
        self._run_replies = run is not None and mentions_reply(run)
        self._run_restarts = restart
        self._closing: Callable[[], Awaitable[None]] | None = None
        self._canceled: Callable[[Any], Awaitable[None]] | None = None
        self._functions = Functions()
        self._tools: Toolset | None = None

    @classmethod
    def from_a2a(
        cls,
        target: object,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        card: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Agent:
        """An agent in front of another: its tasks are kept here, its streams resume, every version can call it.

        `target` and `options` are those of `Client`. Its card is asked for now.

        Raises:
            ConfigError: the target cannot be called, or an option is wrong.
            CannotConnect: nobody answers.
            BadCard: it has no card, or one that cannot be read.
        """
        from dragoman.agents.remote import RemoteAgent, card_of_remote
        from dragoman.client.connect import connect
        from dragoman.client.portal import run_apart
        from dragoman.engine.clock import SystemClock

        # With a clock of its own it also has the card from nobody else, who may have asked minutes ago.
        make = partial(connect, target, clock=SystemClock(), **options)

        async def ask() -> AgentCard:
            connection = make()
            await connection.open()
            try:
                return await connection.card()
            finally:
                await connection.close()

        theirs = run_apart(ask())
        remote = RemoteAgent(make, retries=options.get("retries", 5))
        agent = cls(
            name or theirs.name.replace("/", "-"),
            description=theirs.description if description is None else description,
            version=version or theirs.version,
            # A partial and not the method: every message gets a task, which is what stands in front is for.
            run=partial(remote.run),
            card={**card_of_remote(theirs), **(card or {})},
            restart=True,
        )
        agent._closing, agent._canceled = remote.close, remote.canceled
        return agent

    @classmethod
    def from_mcp(
        cls,
        *servers: object,
        env: Mapping[str, str] | Sequence[str] | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        permissions: Mapping[str, str | None] | None = None,
        default_tool: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str = "",
        version: str = "",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An agent whose skills are the tools of MCP servers.

        A server is a command (split like a shell does, never run by one), a list of arguments, a URL or an MCP server
        object. They are started or reached when the agent is opened. `env` are variables for the programs, or names
        of those to pass on, and `headers` go to the URLs. `include` and `exclude` are names or patterns, `permissions`
        say what a caller needs for a name or pattern (None: nothing). A plain text goes to `default_tool`. A tool that
        is silent for `timeout` seconds is stopped; by default that is 600, and 0 is never.

        Raises:
            ConfigError: a server cannot be one, or dragoman[mcp] is not installed.
        """
        from dragoman.server.extras import require

        require("mcp", "mcp")
        from dragoman.agents.mcp_tools.bridge import McpTools
        from dragoman.agents.mcp_tools.source import sources_of

        sources = sources_of(servers, env, headers)
        tools = McpTools(
            sources,
            include=include,
            exclude=exclude,
            permissions=permissions,
            default_tool=default_tool,
            timeout=TOOL_SECONDS if timeout is None else timeout,
        )
        agent = cls(
            name or (sources[0].name if len(sources) == 1 else "tools"),
            description=description,
            version=version,
            # A partial and not the method: every message gets a task.
            run=partial(tools.run),
            card=card,
            parallel=True,
        )
        agent._tools, agent._closing, agent._canceled = tools, tools.close, tools.canceled
        return agent

    # -- skills ----------------------------------------------------------------------------------------------------

    @overload
    def skill(self, fn: F, /) -> F: ...
    @overload
    def skill(
        self,
        /,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        tags: Sequence[str] = (),
        examples: Sequence[str] = (),
        default: bool = False,
        permission: str | None = None,
        timeout: float | None = None,
        restart: bool = False,
    ) -> Callable[[F], F]: ...
    def skill(
        self,
        fn: Any = None,
        /,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        tags: Sequence[str] = (),
        examples: Sequence[str] = (),
        default: bool = False,
        permission: str | None = None,
        timeout: float | None = None,
        restart: bool = False,
    ) -> Any:
        """Make a function a skill of this agent; use it with or without arguments.

        `permission` closes the skill to callers without it, `timeout` is in seconds, and `restart` lets it run
        again after a crash instead of failing.

        Raises:
            ConfigError: a parameter has no type, or the id is taken.
        """

        def decorate(function: F) -> F:
            self._functions.add(
                skill_of(
                    function,
                    id=id,
                    name=name,
                    description=description,
                    tags=tags,
                    examples=examples,
                    default=default,
                    permission=permission,
                    timeout=timeout,
                    restart=restart,
                )
            )
            return function

        return decorate if fn is None else decorate(fn)

    @property
    def skills(self) -> tuple[Offer, ...]:
        """The skills: tools of other servers, as far as they are known yet, then functions in the order they came."""
        tools = () if self._tools is None else self._tools.offers
        return (*tools, *self._functions.skills.values())

    @property
    def tools(self) -> Toolset | None:
        """The tools of other servers that this agent offers, if it was made from such."""
        return self._tools

    @property
    def revision(self) -> tuple[int, int]:
        """Another one whenever the skills have changed."""
        return (0 if self._tools is None else self._tools.revision, len(self._functions.skills))

    # -- as the engine sees it -------------------------------------------------------------------------------------

    @property
    def streams(self) -> bool:
        """False when the author's card says that the agent does not stream."""
        capabilities: Any = self.card.get("capabilities")
        return not (
            isinstance(capabilities, Mapping) and cast("Mapping[str, Any]", capabilities).get("streaming") is False
        )

    def _uses_run(self, ctx: Context) -> bool:
        return self._run is not None and self._functions.named(ctx) is None

    def may_reply(self, ctx: Context) -> bool:
        """True when this message may be answered without a task."""
        if self._uses_run(ctx):
            return self._run_replies
        skill = self._chosen(ctx) if self._functions.may_reply else None
        return skill is not None and skill.may_reply

    def restarts(self, ctx: Context) -> bool:
        """True when the chosen skill, or `run`, may run again after a crash."""
        if self._uses_run(ctx):
            return self._run_restarts if self._tools is None else self._tools.restarts(ctx)
        skill = self._chosen(ctx)
        return skill is not None and skill.restart

    def _chosen(self, ctx: Context) -> Skill | None:
        try:
            return self._functions.choose(ctx)[0]
        except Failed:
            return None

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Do what a message asks."""
        if self._run is not None and self._uses_run(ctx):
            return self._run(ctx)
        return self._functions.run(ctx)

    async def canceled(self, ref: Any) -> None:
        """Pass on that a waiting task was canceled, to whoever works for this agent elsewhere."""
        if self._canceled is not None:
            await self._canceled(ref)

    async def open(self) -> None:
        """Make ready what works for this agent elsewhere. Raises DragomanError when it cannot be reached."""
        if self._tools is not None:
            await self._tools.open()

    async def close(self) -> None:
        """Let go of what the agent holds open; it opens again when it is used."""
        if self._closing is not None:
            await self._closing()

    # -- serving ---------------------------------------------------------------------------------------------------

    def app(self, **settings: Any) -> App:
        """The agent as a plain ASGI callable, to run under any server or to mount anywhere.

        Raises:
            ConfigError: a setting is wrong.
        """
        from dragoman.server.server import Server

        return Server(self, **settings).app()

    def app_for(self, settings: Settings) -> App:
        """The ASGI callable with settings that are read already. Raises ConfigError."""
        from dragoman.server.build import build

        return build((self,), settings)

    def serve(self, **settings: Any) -> None:
        """Listen and answer until stopped. Raises ConfigError when that is not possible."""
        from dragoman.server.server import Server

        Server(self, **settings).serve()

    def in_process(self) -> Connection:
        """A connection for `Client(agent)`: the whole engine in memory, no port and no file."""
        from dragoman.server.in_process import connect

        return connect(self)


def _extension(extension: AgentExtension | str | Mapping[str, Any]) -> AgentExtension:
    if isinstance(extension, AgentExtension):
        return extension
    if isinstance(extension, str):
        return AgentExtension(extension)
    try:
        return msgspec.convert(dict(extension), AgentExtension)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an extension cannot be read: {error}") from None
