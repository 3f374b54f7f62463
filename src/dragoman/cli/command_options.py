"""How `serve` is told about programs: by flags, or by a table of the settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.tool_options import ABOUT, TABLE, TEXT, TEXTS, VARIABLES, Kind, check_table
from dragoman.model.error import ConfigError
from dragoman.server.config.values import choice

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.server.agent.agent import Agent

F = TypeVar("F", bound=Callable[..., Any])

# Flag, what Agent.from_command calls it, and whether it may be repeated.
_OPTIONS: tuple[tuple[str, str, str, bool, str], ...] = (
    # It is one, but who gives several is to be told.
    ("--command", "command", "COMMAND", True, "Serve the program that COMMAND starts: each task runs it."),
    ("--profile", "profile", "NAME", False, "Well-known program, which needs no --command."),
    ("--input", "input", "MODE", False, "Where it reads: stdin, to its end, or interactive.  [default: stdin]"),
    ("--output", "output", "FORM", False, "What it writes: text, or jsonl, an event a line.  [default: text]"),
    ("--cwd", "cwd", "FOLDER", False, "Where it runs, if not in a folder for each conversation."),
    ("--limit", "limits", "NAME=VALUE", True, "How much it may use, as in time=60; repeat for several."),
)
_CHOICES = {"input": choice("stdin", "interactive"), "output": choice("text", "jsonl")}
_KINDS: dict[str, Kind] = {
    "command": Kind("a text or a list of texts", (str, list), texts=True),
    **dict.fromkeys(("profile", "input", "output", "cwd", "description", "version"), TEXT),
    "env": VARIABLES,
    "limits": TABLE,
    "tools": TEXTS,
    **ABOUT,
}


def with_command_options(function: F) -> F:
    """Add the flags of programs to a command."""
    for flag, option, metavar, repeat, text in reversed(_OPTIONS):
        add = click.option(flag, f"command_{option}", metavar=metavar, multiple=repeat, default=None, help=text)
        function = add(function)
    return function


def taken_command_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Take the flags of programs out of all flags: what Agent.from_command is given, nothing if there is no program.

    Raises:
        ConfigError: there is no program for them, or more than one, or a value is wrong.
    """
    given: dict[str, Any] = {}
    for flag, option, *_ in _OPTIONS:
        value = flags.pop(f"command_{option}")
        if value is None or value == ():
            continue
        if option not in ("command", "profile") and not given:
            raise ConfigError(f"{flag} is about a program: say which with --command or --profile")
        given[option] = _read(flag, option, value)
    return given


def agent_of_command(options: Mapping[str, Any]) -> Agent:
    """The agent whose tasks are runs of a program. Raises ConfigError."""
    from dragoman.server.agent.agent import Agent

    return Agent.from_command(**options)


def agent_of_command_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """The agent that a table `[agents.NAME]` with `command` or `profile` describes.

    Paths are relative to `folder`, the one of the settings file.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such program.
    """
    check_table(source, table, _KINDS, beside="command" if "command" in table else "profile")
    options = {"name": name, **table}
    for option in _CHOICES.keys() & table.keys():
        options[option] = _chosen(f"{source} {option}", option, table[option])
    if "cwd" in table:
        place: str = table["cwd"]
        options["cwd"] = place if place.startswith("~") else folder / place
    if table.get("command"):
        from dragoman.agents.process.recipe import in_place, words_of

        words = words_of(table["command"])
        options["command"] = in_place(words, folder, files="cwd" not in table) if words else words
    if "default_project_id" in table:
        # TOML has no word for none.
        options["default_project_id"] = table["default_project_id"] or None
    try:
        return agent_of_command(options)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _read(flag: str, option: str, value: Any) -> Any:
    if option in _CHOICES:
        return _chosen(flag, option, value)
    if option == "limits":
        return _limits(value)
    if option == "command":
        if len(value) > 1:
            raise ConfigError(
                "--command is one program: for several, write a table [agents.NAME] for each into dragoman.toml"
            )
        return value[0]
    return value


def _chosen(source: str, option: str, value: Any) -> str:
    try:
        return _CHOICES[option](value, False)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


def _limits(pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--limit {pair}: write NAME=VALUE, as in --limit time=60")
        found[name] = value
    return found
