"""The base of `Agent`: its skills, its backend and what its card needs."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, get_args, overload

import msgspec

from dragoman.agents.functions.run import Functions
from dragoman.agents.functions.skill import Offer, read_skill, returns_reply
from dragoman.agents.offers import whole_agent
from dragoman.engine.call import ClosingChoice
from dragoman.model.card import AgentExtension
from dragoman.model.error import ConfigError
from dragoman.server.plugins import PluginAttributes

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.bridge import McpTools
    from dragoman.agents.process.run import CommandSessions
    from dragoman.engine.execute.context import Context
    from dragoman.engine.ports.agent import ForeignTasks, OutputMetadata

F = TypeVar("F", bound=Callable[..., Any])
# Unicode categories of control characters and surrogates, which file names cannot have.
_UNFIT = ("Cc", "Cs")


class Backend(NamedTuple):
    """What runs the tasks of an agent beside its functions: a `run`, tools, a program or another framework's agent.

    With `replies`, `run` may yield a `Reply`; with `restarts`, it is called again after a crash. `offers` are its
    skills for the card; `output_metadata` is written on all its output. `prepare` is awaited before a run starts,
    `canceled` when a task that waits for input is canceled, with the `ref` of its question. `foreign` says
    whether what such a task waits for has gone on by itself.
    """

    run: Callable[[Context], AsyncIterator[Any]] | None = None
    replies: bool = False
    restarts: bool = False
    offers: tuple[Offer, ...] = ()
    output_metadata: OutputMetadata | None = None
    prepare: Callable[[Context], Awaitable[None]] | None = None
    canceled: Callable[[Any], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    tools: McpTools | None = None
    sessions: CommandSessions | None = None
    foreign: ForeignTasks | None = None

    @property
    def pinned(self) -> bool:
        """True when conversations belong to one process: they have a program, or a server asks within calls."""
        return self.sessions is not None or (self.tools is not None and self.tools.asks_within_calls)

    async def open(self) -> None:
        """Start or connect tools and programs. Raises DragomanError when one cannot be reached."""
        for part in (self.tools, self.sessions):
            if part is not None:
                await part.open()


P = ParamSpec("P")


def _names_keywords(init: Callable[P, None]) -> Callable[P, None]:
    """Return a constructor that says which keyword of `Agent` was meant by an unknown one. It raises ConfigError."""
    names = [name for name, each in signature(init).parameters.items() if each.kind is each.KEYWORD_ONLY]

    @wraps(init)
    def construct(*args: P.args, **keywords: P.kwargs) -> None:
        for name in keywords:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
                raise ConfigError(f"Agent() has no keyword `{name}`; {hint}")
        init(*args, **keywords)

    return construct


class BareAgent(PluginAttributes):
    """The base class of `Agent`, without its constructors. A `backend` takes precedence over `run`."""

    @_names_keywords
    def __init__(
        self,
        name: str,
        backend: Backend | None = None,
        /,
        *,
        description: str = "",
        version: str = "0.1.0",
        run: Callable[[Context], AsyncIterator[Any]] | None = None,
        extensions: Sequence[AgentExtension | str | Mapping[str, Any]] = (),
        card: Mapping[str, Any] | None = None,
        closing: ClosingChoice = "auto",
        closing_message: bool = False,
        parallel: bool = False,
        restart: bool = False,
        replies: bool = False,
    ) -> None:
        check_name(name)
        second: object = backend
        if isinstance(second, str):
            raise ConfigError(f"write Agent({name!r}, description={second!r})")
        if closing not in get_args(ClosingChoice):
            raise ConfigError(f'closing is "auto", "whole" or "last", not {closing!r}')
        self.name = name
        self.description = description
        self.version = version
        self.card: dict[str, Any] = dict(card or {})
        self.closing: ClosingChoice = closing
        self.closing_message = closing_message
        self.parallel = parallel
        self.extensions: tuple[AgentExtension, ...] = tuple(_extension(extension) for extension in extensions)
        if backend is None:
            offers = () if run is None else (whole_agent(name, description),)
            backend = Backend(run, replies or (run is not None and returns_reply(run)), restart, offers)
        self.backend = backend
        self.functions = Functions()

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
        replies: bool = False,
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
        replies: bool = False,
    ) -> Any:
        """Register a function as a skill; usable as a decorator with or without arguments.

        `permission` closes the skill to callers without it, `timeout` is in seconds, and `restart` lets it run
        again after a crash instead of failing. `replies` says that it may return a `Reply`, a bare message instead of
        a task; a return type that contains `Reply` says the same.

        Raises:
            ConfigError: the parameters cannot be read, or the id is taken.
        """

        def decorate(function: F) -> F:
            self.functions.add(
                read_skill(
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
                    replies=replies,
                )
            )
            return function

        return decorate if fn is None else decorate(fn)

    @property
    def skills(self) -> tuple[Offer, ...]:
        """The skills: tools of connected MCP servers, what the backend offers, then functions as registered."""
        tools = () if self.tools is None else self.tools.offers
        functions = self.functions.skills
        # A message that names a function runs it, also where the backend offers something by that name.
        return (*tools, *(each for each in self.backend.offers if each.id not in functions), *functions.values())

    @property
    def tools(self) -> McpTools | None:
        """The tools of MCP servers, if the agent was created from such."""
        return self.backend.tools

    @property
    def revision(self) -> tuple[int, int]:
        """A value that changes whenever the skills change."""
        return (0 if self.tools is None else self.tools.revision, len(self.functions.skills))

    async def close(self) -> None:
        """Release what the agent holds open. It opens again when it is used."""
        if self.backend.close is not None:
            await self.backend.close()


def check_name(name: str) -> None:
    """Raise ConfigError when a name cannot be an agent's: it is part of URLs and file paths."""
    if not name or "/" in name:
        raise ConfigError("an agent needs a name without a slash")
    if name in (".", ".."):
        raise ConfigError(f"an agent cannot be called `{name}`, which is a path")
    if name != name.strip():
        raise ConfigError(f"the name of an agent cannot start or end with a space: `{name}`")
    if any(unicodedata.category(each) in _UNFIT for each in name):
        raise ConfigError(f"the name of an agent cannot contain control characters: {name!r}")


def _extension(extension: AgentExtension | str | Mapping[str, Any]) -> AgentExtension:
    if isinstance(extension, AgentExtension):
        return extension
    if isinstance(extension, str):
        return AgentExtension(extension)
    try:
        return msgspec.convert(dict(extension), AgentExtension)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an extension cannot be read: {error}") from None
