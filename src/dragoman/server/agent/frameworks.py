"""Recognizes agents of other frameworks by the modules of their classes, without importing these."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dragoman.server.agent.agent import Agent


class Framework(NamedTuple):
    """A framework: what errors call its agents, the constructor of `Agent` for them, and the extra to install."""

    kind: str
    constructor: str
    module: str = ""
    extra: str = ""


_ADK = Framework("an agent of Google's ADK", "from_adk", "google.adk", "adk")
# `langgraph` itself is a namespace package that other packages share.
_LANGGRAPH = Framework("a LangGraph graph", "from_langgraph", "langgraph.pregel", "langgraph")
_PYDANTIC_AI = Framework("an agent of Pydantic AI", "from_pydantic_ai", "pydantic_ai", "pydantic-ai")
_OPENAI = Framework("an agent of the OpenAI Agents SDK", "from_openai", "agents", "openai")
_MCP = Framework("an MCP server", "from_mcp", "mcp", "mcp")
_EXECUTOR = Framework("an AgentExecutor", "from_executor")

# By the names of flags and of table keys.
BY_NAME = {"adk": _ADK, "langgraph": _LANGGRAPH, "pydantic_ai": _PYDANTIC_AI, "openai": _OPENAI}

# The packages and names of classes whose instances can be served. The modules in between are left out, as they change
# between versions; the names are needed because many files also hold models, tools and the like.
_SERVABLE_CLASSES: tuple[tuple[str, frozenset[str], Framework], ...] = (
    ("google.adk", frozenset({"BaseAgent", "BaseNode", "App", "Runner"}), _ADK),
    ("langgraph", frozenset({"Pregel"}), _LANGGRAPH),
    ("pydantic_ai", frozenset({"AbstractAgent"}), _PYDANTIC_AI),
    ("agents", frozenset({"Agent"}), _OPENAI),
    ("fastmcp", frozenset({"FastMCP"}), _MCP),
    ("mcp", frozenset({"MCPServer", "FastMCP", "Server"}), _MCP),
)


def framework_of(thing: object) -> Framework | None:
    """Return the framework of an agent object, or None.

    A graph that is not compiled counts too: `agent_of` says what is missing.
    """
    for cls in type(thing).__mro__:
        for package, names, framework in _SERVABLE_CLASSES:
            if cls.__qualname__ in names and _is_of(cls, package):
                return framework
    if _is_builder(thing) and not getattr(thing, "compiled", False):
        return _LANGGRAPH
    # Looked up on the class first: a proxy may raise on any attribute.
    if not isinstance(thing, type) and callable(getattr(type(thing), "execute", None)):
        from dragoman.agents.executor import is_executor

        return _EXECUTOR if is_executor(thing) else None
    return None


def extra_of(module: str) -> str | None:
    """Return the extra of dragoman that installs a framework's module, or None."""
    by_module = {"langgraph": _LANGGRAPH, **{each.module: each for each in (_ADK, _PYDANTIC_AI, _OPENAI, _MCP)}}
    matching = (each.extra for name, each in by_module.items() if f"{module}.".startswith(f"{name}."))
    return next(matching, None)


def agent_of(thing: object, framework: Framework, **options: Any) -> Agent:
    """Create an `Agent` from an agent of another framework.

    Raises:
        ConfigError: it is not of that framework, or the framework is not installed.
    """
    from dragoman.server.agent.agent import Agent

    if _is_builder(thing):
        raise ConfigError("this graph is not compiled: serve the result of `.compile()`, as in `graph = g.compile()`")
    actual = framework_of(thing)
    if actual != framework:
        raise ConfigError(f"{_describe(thing)} is not {framework.kind}{_correction(thing, actual)}")
    make: Callable[..., Agent] = getattr(Agent, framework.constructor)
    return make(thing, **options)


def _describe(thing: object) -> str:
    return f"the class `{thing.__name__}`" if isinstance(thing, type) else f"an object of type `{type(thing).__name__}`"


def _correction(thing: object, actual: Framework | None) -> str:
    """Return the end of an error that says what an object is instead."""
    if isinstance(thing, type):
        return ": name an object that is made of it"
    return f", it is {actual.kind}" if actual is not None else ""


def _is_builder(thing: object) -> bool:
    return any(cls.__qualname__ == "StateGraph" and _is_of(cls, "langgraph") for cls in type(thing).__mro__)


def _is_of(cls: type, package: str) -> bool:
    if not f"{cls.__module__}.".startswith(f"{package}."):
        return False
    # Users name their own packages `agents` too, with an Agent or a Runner in it, but not with `function_tool`.
    return package != "agents" or all(hasattr(sys.modules.get(package), name) for name in ("Runner", "function_tool"))


def require(module: str, extra: str) -> ModuleType:
    """Import a module that comes with an extra.

    Raises:
        ConfigError: it, or a dependency of it, is not installed; the text has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        from dragoman.installation import install_line

        raise ConfigError(f"needs the extra `{extra}`: {install_line(extra)}") from error
