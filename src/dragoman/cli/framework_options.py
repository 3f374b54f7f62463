"""How `serve` is told about agents of other frameworks: by flags, or by a table of the settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.tool_options import ABOUT, TEXT, Kind, check_table
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.server.agent.agent import Agent

F = TypeVar("F", bound=Callable[..., Any])

# Flag, its name in tables, and what it serves.
_FLAGS = (
    ("--adk", "adk", "Serve an agent or a Runner of Google's ADK."),
    ("--langgraph", "langgraph", "Serve a compiled LangGraph graph."),
    ("--pydantic-ai", "pydantic_ai", "Serve an agent of Pydantic AI."),
    ("--openai", "openai", "Serve an agent of the OpenAI Agents SDK."),
)
FRAMEWORKS = tuple(name for _, name, _ in _FLAGS)
_SHOWN = (
    ("--show-tools", "show_tools", "Tell callers of the tool calls of --adk."),
    ("--show-thoughts", "show_thoughts", "Tell callers what the model of --adk thinks."),
)


class _Switch(Kind):
    """The one kind of value that a bool is of."""

    def fits(self, value: object) -> bool:
        """True when a value is true or false."""
        return isinstance(value, bool)


_SWITCH = _Switch("true or false", (bool,))


def with_framework_options(function: F) -> F:
    """Add the flags of other frameworks to a command."""
    for flag, name, text in reversed(_SHOWN):
        function = click.option(flag, name, is_flag=True, default=False, help=text)(function)
    for flag, name, text in reversed(_FLAGS):
        function = click.option(flag, name, metavar="MODULE:NAME", multiple=True, help=text)(function)
    return function


def taken_framework_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Take the flags of other frameworks out of all flags. Raises ConfigError when one is about nothing."""
    taken = {name: flags.pop(name) for _, name, _ in (*_FLAGS, *_SHOWN)}
    for flag, name, _ in _SHOWN:
        if taken[name] and not taken["adk"]:
            raise ConfigError(f"{flag} is about agents of Google's ADK: name one with --adk")
    return taken


def agents_of_frameworks(taken: Mapping[str, Any], cwd: Path) -> list[Agent]:
    """The agents that these flags name. Raises ConfigError."""
    shown = {name: True for _, name, _ in _SHOWN if taken[name]}
    named = [(flag, name, place) for flag, name, _ in _FLAGS for place in taken[name]]
    return [_loaded(f"{flag} {place}", name, place, cwd, shown if name == "adk" else {}) for flag, name, place in named]


def agent_of_framework_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """The agent that a table `[agents.NAME]` with `adk`, `langgraph`, `pydantic_ai` or `openai` describes.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such agent.
    """
    framework = next(each for each in FRAMEWORKS if each in table)
    kinds: dict[str, Any] = {framework: TEXT, "description": TEXT, "version": TEXT, **ABOUT}
    if framework == "adk":
        kinds |= {option: _SWITCH for _, option, _ in _SHOWN}
    check_table(source, table, kinds, beside=framework)
    options = {key: value for key, value in table.items() if key in kinds and key not in (framework, *ABOUT)}
    return _loaded(f"{source} {framework}", framework, table[framework], folder, {"name": name, **options})


def _loaded(source: str, framework: str, place: str, folder: Path, options: Mapping[str, Any]) -> Agent:
    from dragoman.server.agent.frameworks import BY_NAME, agent_of, require
    from dragoman.server.agent.target import load_target

    known = BY_NAME[framework]
    try:
        # Before the target is imported: that would fail as well, and could not say how to get it.
        require(known.module, known.extra)
        return agent_of(load_target(place, cwd=folder), known, **options)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
