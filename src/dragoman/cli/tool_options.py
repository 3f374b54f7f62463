"""How `serve` is told about MCP servers: by flags, or by a table of the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from dragoman.model.error import ConfigError
from dragoman.server.plugins import AGENT_OPTIONS

if TYPE_CHECKING:
    from dragoman.server.agent.agent import Agent

F = TypeVar("F", bound=Callable[..., Any])

# Flag, what Agent.from_mcp calls it, and whether it may be repeated.
_OPTIONS: tuple[tuple[str, str, str, bool, str], ...] = (
    ("--include", "include", "TOOL", True, "Tool to offer, a name or a pattern; repeat for several."),
    ("--exclude", "exclude", "TOOL", True, "Tool not to offer; repeat for several."),
    ("--permission", "permissions", "TOOL=KEY", True, "What a caller needs for a tool; nothing after = is public."),
    ("--default-tool", "default_tool", "TOOL", False, "Tool that gets plain text."),
    ("--tool-timeout", "timeout", "SECONDS", False, "How long a tool may be silent; 0 is for ever.  [default: 600]"),
)


class Kind(NamedTuple):
    """What a value of a table has to be: how that is said, its types, and whether a list is one of texts."""

    words: str
    types: tuple[type, ...]
    texts: bool = False

    def fits(self, value: object) -> bool:
        """True when a value is of this kind."""
        if isinstance(value, list) and self.texts:
            return all(isinstance(each, str) for each in cast("list[object]", value))
        # To Python a bool is a number.
        return isinstance(value, self.types) and not isinstance(value, bool)


TEXT = Kind("a text", (str,))
TEXTS = Kind("a list of texts", (list,), texts=True)
TABLE = Kind("a table", (dict,))
VARIABLES = Kind("a list of names or a table", (list, dict), texts=True)

# What any table may say of its agent.
ABOUT: dict[str, Kind] = {name: Kind(*option) for name, option in AGENT_OPTIONS.items()}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("include", "exclude"), Kind("a list", (list,))),
    **dict.fromkeys(("permissions", "headers"), TABLE),
    **dict.fromkeys(("default_tool", "description", "version", "token_env"), TEXT),
    "tools": TEXTS,
    "env": VARIABLES,
    "timeout": Kind("a number of seconds", (int, float)),
    **ABOUT,
}


def with_tool_options(function: F) -> F:
    """Add the flags of MCP servers to a command."""
    for flag, option, metavar, repeat, text in reversed(_OPTIONS):
        kind: Any = float if option == "timeout" else str
        add = click.option(flag, f"mcp_{option}", metavar=metavar, multiple=repeat, type=kind, default=None, help=text)
        function = add(function)
    text = "Serve the tools of the MCP server that COMMAND starts or that is at URL; repeat for several."
    return click.option("--mcp", metavar="COMMAND|URL", multiple=True, help=text)(function)


def taken_tool_options(flags: dict[str, Any], used: bool) -> dict[str, Any]:
    """Take the flags of MCP servers out of all flags. Raises ConfigError when there is no server for them."""
    given: dict[str, Any] = {}
    for flag, option, *_ in _OPTIONS:
        value = flags.pop(f"mcp_{option}")
        if value is None or value == ():
            continue
        if not used:
            raise ConfigError(f"{flag} is about MCP tools: say which server with --mcp")
        given[option] = _permissions(value) if option == "permissions" else value
    return given


def agent_of_tools(servers: Sequence[object], options: Mapping[str, Any]) -> Agent:
    """The agent whose skills are these servers' tools. Raises ConfigError."""
    from dragoman.server.agent.agent import Agent

    return Agent.from_mcp(*servers, **options)


def agent_of_table(source: str, name: str, table: Mapping[str, Any]) -> Agent:
    """The agent that a table `[agents.NAME]` with `mcp` describes. Raises ConfigError."""
    check_table(source, table, _KINDS, beside="mcp")
    if "tools" in table and "include" in table:
        raise ConfigError(f"{source}: tools and include say the same: write one of them")
    options = {key: value for key, value in table.items() if key not in ("mcp", "token_env", "tools", *ABOUT)}
    if "tools" in table:
        options["include"] = table["tools"]
    servers = table["mcp"]
    listed = cast("list[object]", servers) if isinstance(servers, list) else [cast("object", servers)]
    variable = table.get("token_env")
    if variable is not None:
        token = os.environ.get(variable)
        if not token:
            raise ConfigError(f"{source}: token_env names {variable}, which is not set: export {variable}=…")
        options["headers"] = {**options.get("headers", {}), "Authorization": f"Bearer {token}"}
    permissions = options.get("permissions")
    if isinstance(permissions, Mapping):
        given = cast("Mapping[str, Any]", permissions)
        options["permissions"] = {tool: str(key) if key else None for tool, key in given.items()}
    try:
        return agent_of_tools(listed, {"name": name, **options})
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def check_table(source: str, table: Mapping[str, Any], kinds: Mapping[str, Kind], *, beside: str) -> None:
    """See that a table `[agents.NAME]` holds, beside the key that says what to serve, these and nothing else.

    Raises:
        ConfigError: it has another key, or a value of another kind.
    """
    unknown = next((key for key in table if key not in kinds and key != beside), None)
    if unknown is not None:
        near = get_close_matches(unknown, kinds, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted({*kinds} - {beside}))}"
        raise ConfigError(f"{source}: there is no setting `{unknown}` beside `{beside}`; {hint}")
    for key, kind in kinds.items():
        if key in table and not kind.fits(table[key]):
            raise ConfigError(f"{source}: {key} is {kind.words}")


def _permissions(pairs: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for pair in pairs:
        tool, equals, key = pair.partition("=")
        if not equals or not tool:
            raise ConfigError(f"--permission {pair}: write TOOL=KEY, as in --permission 'delete_*=admin'")
        found[tool] = key or None
    return found
