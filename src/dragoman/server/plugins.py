"""The plug-in interface for what a server has beside A2A, and the one place that names the plug-ins.

A plug-in may add rows that are stored with a task, routes and responses, and options of agents. It is asked for them
when the server is built. Plug-ins are named as text and imported then, because they are in a layer above the server.
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
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.store import Store
    from dragoman.engine.settings import EngineSettings
    from dragoman.model.card import AgentCard
    from dragoman.model.error import A2AError
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.transports.endpoint import PluginOperations
    from dragoman.transports.http import Header, Request, Send
    from dragoman.transports.limits import DenialLog
    from dragoman.webhooks.sender import WebhookSender

F = TypeVar("F", bound=Callable[..., Any])
# The plug-ins as "module:attribute".
PLUGINS = (
    "dragoman.compat.sessions.plugin:SESSIONS",
    "dragoman.compat.tool_server.plugin:TOOL_SERVER",
    "dragoman.compat.executor.custom.plugin:CUSTOM_PARTS",
)


# The documents of older servers whose behavior the setting `compat` turns on.
Compat = Literal["tool-server"]


# -- paths and answers -------------------------------------------------------------------------------------------------


class PluginContext(NamedTuple):
    """The parts of a server that the routes of a plug-in may use."""

    agents: Sequence[HostedAgent]
    bus: Bus
    clock: Clock
    body_limit: int
    limits: JsonLimits
    denials: DenialLog
    environ: Mapping[str, str]


class RoutePath(NamedTuple):
    """The segments of a path, relative to an agent; `*` as the last one matches any segment.

    With `mount` it exists only where the agent is mounted under that prefix. A `page` is public and read with GET, as
    the card is; everything else is an operation, for which the caller is authenticated and rate-limited first.
    """

    words: tuple[str, ...]
    mount: str | None = None
    page: bool = False


class Routes(Protocol):
    """The routes that a plug-in adds to one server."""

    @property
    def paths(self) -> Sequence[RoutePath]:
        """The paths of the routes."""
        ...

    @property
    def mounts(self) -> Sequence[str]:
        """Prefixes under which every agent is mounted by its name, beside `/agents/`. Each ends with a slash."""
        ...

    async def serve(self, hosted: HostedAgent, request: Request, send: Send, user: User | None) -> None:
        """Respond to an operation, errors included. At the root `hosted` is the first agent and the prefix is empty."""
        ...

    async def refuse(self, send: Send, error: A2AError, *, challenged: bool) -> None:
        """Respond to a refused operation; `challenged` when a header already says how to authenticate."""
        ...

    def page(
        self, hosted: HostedAgent, request: Request, base: str, user: User | None
    ) -> tuple[int, bytes, list[Header]]:
        """Return status, body and headers of a page; `base` is the agent's URL."""
        ...

    async def no_agent(self, name: str, send: Send) -> None:
        """Respond to a request under one of `mounts` for an unknown agent."""
        ...

    async def close(self) -> None:
        """Release everything. The engines are closed already."""
        ...


# -- options of agents -------------------------------------------------------------------------------------------------


class AgentOption(NamedTuple):
    """A key of `[agents.NAME]` in the settings file that sets an attribute of its agent.

    `words` describe its value in errors; with `texts`, the items of a list must be strings.
    """

    words: str
    types: tuple[type, ...]
    texts: bool = False


# The options that any agent's table may have. An empty string means None, which TOML cannot express.
AGENT_OPTIONS: dict[str, AgentOption] = {
    "default_project_id": AgentOption("a text", (str,)),
    "persona": AgentOption("a table", (dict,)),
    "skill_bundles": AgentOption("a list of texts", (list,), texts=True),
}


class PluginOptions(TypedDict, total=False):
    """The keyword arguments of `Agent.from_command` that plug-ins read."""

    default_project_id: str | None
    persona: Mapping[str, Any] | None
    skill_bundles: Sequence[str]


# The option that names the project of an agent's sessions, and the defaults of programs.
PROJECT: Literal["default_project_id"] = "default_project_id"
_PROGRAM_DEFAULTS: PluginOptions = {PROJECT: "default", "persona": None, "skill_bundles": ()}


class PluginAttributes:
    """The attributes of an agent that plug-ins read. They may be set until the agent is served."""

    default_project_id: str | None = None
    persona: Mapping[str, Any] | None = None
    skill_bundles: tuple[str, ...] = ()
    tool_names: tuple[str, ...] | None = None
    task_store: object | None = None
    push_config_store: object | None = None
    push_sender: object | None = None


def with_plugin_options(function: F) -> F:
    """Add the options of plug-ins to the signature of a function that takes them as `**options`."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=of) for name, of in _PROGRAM_DEFAULTS.items()
    ]
    cast("Any", function).__signature__ = signature.replace(parameters=[*own, *more])
    return function


def program_options(options: PluginOptions) -> PluginOptions:
    """Return the options of a program with defaults filled in. Raises TypeError for an unknown option."""
    unknown = next((name for name in options if name not in _PROGRAM_DEFAULTS), None)
    if unknown is not None:
        raise TypeError(f"Agent.from_command() got an unexpected keyword argument {unknown!r}")
    return {**_PROGRAM_DEFAULTS, **options}


def set_options(agent: PluginAttributes, options: Mapping[str, Any]) -> None:
    """Set the attributes of an agent from the options that are present; an empty string means None."""
    for name, option in AGENT_OPTIONS.items():
        if name in options:
            value = options[name]
            setattr(agent, name, tuple(value) if option.texts else None if value == "" else value)


# -- the plug-in -------------------------------------------------------------------------------------------------------


class Plugin:
    """Base class of plug-ins, which override what they add to.

    Methods are called when a server is built; those about cards also while it serves, whenever a card is built. One
    with `compat` is asked only where the setting of that name has this value.
    """

    compat: Compat | None = None

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """Return a function that adds to the engine settings of an agent. The store is not open yet."""
        return lambda _, settings: settings

    def sender(self, agent: Agent) -> WebhookSender | None:
        """Return what sends the tasks of an agent to webhooks; None for HTTP requests."""
        return None

    def routes(self, site: PluginContext) -> Routes | None:
        """Return the routes it adds to a server."""
        return None

    def operations(self, agent: Agent, store: Store, clock: Clock) -> PluginOperations | None:
        """Return how the methods of A2A 0.1 are answered for an agent; None for the default."""
        return None

    def description(self, agent: Agent, text: str) -> str:
        """Return the description for an agent's card."""
        return text

    def card_members(self, agent: Agent, card: AgentCard, base: str) -> Mapping[str, Any]:
        """Return further members for the JSON of an agent's card, beside those of A2A."""
        return {}

    def max_depth(self, environ: Mapping[str, str]) -> int | None:
        """Return how many agents may call each other in a row; None to leave it to others."""
        return None


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return all plug-ins, imported on the first call."""
    loaded: list[Plugin] = []
    for place in PLUGINS:
        module, _, name = place.partition(":")
        loaded.append(getattr(import_module(module), name))
    return tuple(loaded)


def chosen_plugins(compat: Compat | None) -> tuple[Plugin, ...]:
    """Return the plug-ins of a server with this setting."""
    return tuple(plugin for plugin in plugins() if plugin.compat in (None, compat))


def refine_settings(agent: Agent, store: Store, clock: Clock, settings: EngineSettings) -> EngineSettings:
    """Return the engine settings of one agent with the additions of plug-ins."""
    for plugin in chosen_plugins(None):
        settings = plugin.engine(store, clock)(agent, settings)
    return settings


def webhook_senders(agents: Sequence[Agent]) -> dict[str, WebhookSender]:
    """Return the senders of plug-ins by the names of their agents."""
    found = ((agent.name, plugin.sender(agent)) for plugin in plugins() for agent in agents)
    return {name: sender for name, sender in found if sender is not None}


def describe_agent(agent: Agent, text: str) -> str:
    """Return the description of an agent with the additions of plug-ins."""
    for plugin in plugins():
        text = plugin.description(agent, text)
    return text


def add_card_members(agent: Agent, card: AgentCard, base: str, written: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of an agent's card with the members that plug-ins add; none replaces one that is there."""
    for plugin in plugins():
        written = {**plugin.card_members(agent, card, base), **written}
    return written
