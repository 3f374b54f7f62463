"""Plug-ins: what a server has beside A2A, and the one place that names them.

A plug-in may add to three things: what is kept with a task, paths and answers at the edge, and options of agents. The
server asks its plug-ins once, when it is built. They are named as text and imported then, because they stand above the
server.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.dialects.reading.checks import JsonLimits
    from dragoman.engine.operations import EngineSettings
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.store import Store
    from dragoman.model.error import A2AError
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.http.app import HostedAgent
    from dragoman.transports.endpoint import PluginResponses
    from dragoman.transports.http import Header, Request, Send
    from dragoman.transports.limits import DenialLog

F = TypeVar("F", bound=Callable[..., Any])
# Where each plug-in is, as "module:attribute".
PLUGINS = ("dragoman.compat.sessions.plugin:SESSIONS", "dragoman.compat.tool_server.plugin:TOOL_SERVER")


# -- paths and answers -------------------------------------------------------------------------------------------------


class Site(NamedTuple):
    """What the routes of a plug-in have to work with."""

    agents: Sequence[HostedAgent]
    bus: Bus
    clock: Clock
    body_limit: int
    limits: JsonLimits
    denials: DenialLog
    environ: Mapping[str, str]


class RoutePath(NamedTuple):
    """The words of a path, relative to an agent; `*` as the last one is any word.

    With `mount` it counts only where the agent stands under that prefix. A `page` is read with GET by everybody, as the
    card is; everything else is an operation, for which a caller is identified and counted first.
    """

    words: tuple[str, ...]
    mount: str | None = None
    page: bool = False


class Routes(Protocol):
    """The paths that a plug-in adds to one server, and what answers there."""

    @property
    def paths(self) -> Sequence[RoutePath]:
        """Which they are."""
        ...

    @property
    def mounts(self) -> Sequence[str]:
        """Prefixes under which every agent stands by its name, beside `/agents/`. Each ends with a slash."""
        ...

    async def serve(self, hosted: HostedAgent, request: Request, send: Send, user: User | None) -> None:
        """Answer an operation, errors too. At the server's root `hosted` is the first agent and the prefix is empty."""
        ...

    async def refuse(self, send: Send, error: A2AError, *, challenged: bool) -> None:
        """Answer an operation that is not permitted; `challenged` when a header says already how to authenticate."""
        ...

    def page(
        self, hosted: HostedAgent, request: Request, base: str, user: User | None
    ) -> tuple[int, bytes, list[Header]]:
        """Status, body and headers of a page; `base` is the agent's address."""
        ...

    async def no_agent(self, name: str, send: Send) -> None:
        """Answer a request under one of `mounts` for an agent that there is not."""
        ...

    def renew(self) -> None:
        """Begin anew, for a new event loop."""
        ...

    async def close(self) -> None:
        """End what goes on. The engines are closed already."""
        ...


# -- options of agents -------------------------------------------------------------------------------------------------


class AgentOption(NamedTuple):
    """A key of `[agents.NAME]` in the settings file that sets an attribute of its agent.

    `words` say what its value must be; with `texts`, a list must be one of texts.
    """

    words: str
    types: tuple[type, ...]
    texts: bool = False


# What any table may say of its agent. An empty text is none: TOML has no word for that.
AGENT_OPTIONS: dict[str, AgentOption] = {
    "default_project_id": AgentOption("a text", (str,)),
    "persona": AgentOption("a table", (dict,)),
    "skill_bundles": AgentOption("a list of texts", (list,), texts=True),
}


class PluginOptions(TypedDict, total=False):
    """The keywords of `Agent.from_command` that plug-ins read."""

    default_project_id: str | None
    persona: Mapping[str, Any] | None
    skill_bundles: Sequence[str]


# The option that names the project of an agent's sessions, and what a program has when it is not told.
PROJECT: Literal["default_project_id"] = "default_project_id"
_PROGRAM_DEFAULTS: PluginOptions = {PROJECT: "default", "persona": None, "skill_bundles": ()}


class PluginAttributes:
    """The attributes of an agent that plug-ins read. They may be set until it is served."""

    default_project_id: str | None = None
    persona: Mapping[str, Any] | None = None
    skill_bundles: tuple[str, ...] = ()
    tool_names: tuple[str, ...] | None = None


def with_plugin_options(function: F) -> F:
    """Name the options of plug-ins in the signature of a function that takes them as its `**options`."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=of) for name, of in _PROGRAM_DEFAULTS.items()
    ]
    cast("Any", function).__signature__ = signature.replace(parameters=[*own, *more])
    return function


def program_options(options: PluginOptions) -> PluginOptions:
    """The options of a program, with the defaults of those that are not given. Raises TypeError for unknown ones."""
    unknown = next((name for name in options if name not in _PROGRAM_DEFAULTS), None)
    if unknown is not None:
        raise TypeError(f"Agent.from_command() got an unexpected keyword argument {unknown!r}")
    return {**_PROGRAM_DEFAULTS, **options}


def set_options(agent: PluginAttributes, options: Mapping[str, Any]) -> None:
    """Set the attributes of an agent from those options that are there; an empty text is none."""
    for name, option in AGENT_OPTIONS.items():
        if name in options:
            value = options[name]
            setattr(agent, name, tuple(value) if option.texts else None if value == "" else value)


# -- the plug-in -------------------------------------------------------------------------------------------------------


class Plugin:
    """A plug-in overrides what it adds to. None of this is called while a request is answered."""

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """For one server, before its store is opened: what gives the settings of an agent's engine its extra rows."""
        return lambda _, settings: settings

    def routes(self, site: Site) -> Routes | None:
        """The paths it adds to a server."""
        return None

    def answers(self, agent: Agent, store: Store, clock: Clock) -> PluginResponses | None:
        """How the oldest methods are answered for an agent; None when as ever."""
        return None

    def description(self, agent: Agent, text: str) -> str:
        """The description on an agent's card."""
        return text

    def max_depth(self, environ: Mapping[str, str]) -> int | None:
        """How many agents may call each other in a row; None when that is not its matter."""
        return None


@cache
def plugins() -> tuple[Plugin, ...]:
    """All plug-ins, imported with the first call."""
    loaded: list[Plugin] = []
    for place in PLUGINS:
        module, _, name = place.partition(":")
        loaded.append(getattr(import_module(module), name))
    return tuple(loaded)


def describe_agent(agent: Agent, text: str) -> str:
    """A description, with what plug-ins say of the agent."""
    for plugin in plugins():
        text = plugin.description(agent, text)
    return text
