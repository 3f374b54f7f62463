"""An agent: its skills, and how the engine and the server see it."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec

from dragoman.agents.functions.run import Functions
from dragoman.agents.functions.skill import Offer, returns_reply, skill_of
from dragoman.model.card import AgentExtension
from dragoman.model.error import ConfigError, Failed
from dragoman.server.plugins import PluginAttributes

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.agents.functions.skill import Skill
    from dragoman.agents.offers import Toolset
    from dragoman.agents.process.bridge import CommandSessions
    from dragoman.engine.execute.context import Context
    from dragoman.engine.execute.outputs import Marks

F = TypeVar("F", bound=Callable[..., Any])
# Control characters, and halves of characters, which no file can be called by.
_UNFIT = ("Cc", "Cs")


class BareAgent(PluginAttributes):
    """What every agent has, whatever it was made from. See `Agent`."""

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
        replies: bool = False,
    ) -> None:
        check_name(name)
        self.name = name
        self.description = description
        self.version = version
        self.card: dict[str, Any] = dict(card or {})
        self.closing: Literal["whole", "last"] = closing
        self.parallel = parallel
        self.extensions: tuple[AgentExtension, ...] = tuple(_extension(extension) for extension in extensions)
        self._run = run
        self._run_replies = replies or (run is not None and returns_reply(run))
        self._run_restarts = restart
        self._closing: Callable[[], Awaitable[None]] | None = None
        self._canceled: Callable[[Any], Awaitable[None]] | None = None
        self._functions = Functions()
        self._tools: Toolset | None = None
        # What a program or a framework's agent can do, as the card tells it.
        self._offers: tuple[Offer, ...] = ()
        self._marks: Marks | None = None
        self._sessions: CommandSessions | None = None
        self._prepare: Callable[[Context], Awaitable[None]] | None = None

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
        """Make a function a skill of this agent; use it with or without arguments.

        `permission` closes the skill to callers without it, `timeout` is in seconds, and `restart` lets it run
        again after a crash instead of failing. `replies` says that it may return a `Reply`, a bare message instead of
        a task; a return type that contains `Reply` says the same.

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
                    replies=replies,
                )
            )
            return function

        return decorate if fn is None else decorate(fn)

    @property
    def skills(self) -> tuple[Offer, ...]:
        """The skills: tools of other servers, as far as they are known yet, then functions in the order they came."""
        tools = () if self._tools is None else self._tools.offers
        return (*tools, *self._offers, *self._functions.skills.values())

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
    def marks(self) -> Marks | None:
        """What the agent writes on everything it says, if anything."""
        return self._marks

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

    def prepare(self, ctx: Context) -> Callable[[], Awaitable[None]] | None:
        """What is to be called before the work begins, if anything is."""
        return partial(self._prepare, ctx) if self._prepare is not None and self._uses_run(ctx) else None

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Do what a message asks."""
        if self._run is not None and self._uses_run(ctx):
            return self._run(ctx)
        return self._functions.run(ctx)

    async def canceled(self, ref: Any) -> None:
        """Pass on that a waiting task was canceled, to whoever works for this agent elsewhere."""
        if self._canceled is not None:
            await self._canceled(ref)

    @property
    def keeps_talks(self) -> bool:
        """True when what works for this agent remembers conversations by itself, as a program may."""
        return self._sessions is not None and self._sessions.keeps_talks

    async def open(self) -> None:
        """Make ready what works for this agent elsewhere. Raises DragomanError when it cannot be reached."""
        if self._tools is not None:
            await self._tools.open()
        if self._sessions is not None:
            await self._sessions.open()

    def settle(self, home: Path | None, keep: float = 0, max_depth: int = 3) -> None:
        """Say where what belongs to conversations is kept, for how long, and how deep agents may call each other."""
        if self._sessions is not None:
            self._sessions.settle(home, keep, max_depth)

    async def close(self) -> None:
        """Let go of what the agent holds open; it opens again when it is used."""
        if self._closing is not None:
            await self._closing()


def check_name(name: str) -> None:
    """See that an agent can be called so: its name is in URLs and in the paths of files. Raises ConfigError."""
    if not name or "/" in name:
        raise ConfigError("an agent needs a name without a slash")
    if name in (".", ".."):
        raise ConfigError(f"an agent cannot be called `{name}`: that is a place")
    if name != name.strip():
        raise ConfigError(f"the name of an agent neither begins nor ends with a space: `{name}`")
    if any(unicodedata.category(each) in _UNFIT for each in name):
        raise ConfigError(f"the name of an agent has no control characters: {name!r}")


def _extension(extension: AgentExtension | str | Mapping[str, Any]) -> AgentExtension:
    if isinstance(extension, AgentExtension):
        return extension
    if isinstance(extension, str):
        return AgentExtension(extension)
    try:
        return msgspec.convert(dict(extension), AgentExtension)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an extension cannot be read: {error}") from None
