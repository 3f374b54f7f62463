"""What `serve` makes agents from: MCP servers, programs and other frameworks, by flags or by `[agents.NAME]` tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from dragoman.model.error import ConfigError
from dragoman.server.config.values import TABLE, TEXT, TEXTS, Kind, choice
from dragoman.server.plugins import AGENT_OPTIONS

if TYPE_CHECKING:
    from dragoman.server.agent.agent import Agent

F = TypeVar("F", bound=Callable[..., Any])


class Option(NamedTuple):
    """A flag, and what the maker of its agent calls it. One without a metavar is a switch."""

    flag: str
    name: str
    metavar: str
    help: str
    repeat: bool = False
    type: type = str

    @property
    def parameter(self) -> str:
        """What click calls it: settings have some of the same names."""
        return f"agent_{self.name}"


_MCP = Option(
    "--mcp",
    "mcp",
    "COMMAND|URL",
    "Serve the tools of the MCP server that COMMAND starts or that is at URL; repeat for several.",
    repeat=True,
)
_TOOLS = (
    Option("--include", "include", "TOOL", "Tool to offer, a name or a pattern; repeat for several.", repeat=True),
    Option("--exclude", "exclude", "TOOL", "Tool not to offer; repeat for several.", repeat=True),
    Option(
        "--permission", "permissions", "TOOL=KEY", "What a caller needs for a tool; nothing after = is public.", True
    ),
    Option("--default-tool", "default_tool", "TOOL", "Tool that gets plain text."),
    Option(
        "--tool-timeout",
        "timeout",
        "SECONDS",
        "How long a tool may be silent; 0 is for ever.  [default: 600]",
        type=float,
    ),
)
_COMMAND = (
    # It is one, but who gives several is to be told.
    Option("--command", "command", "COMMAND", "Serve the program that COMMAND starts: each task runs it.", repeat=True),
    Option("--profile", "profile", "NAME", "Well-known program, which needs no --command."),
    Option("--input", "input", "MODE", "Where it reads: stdin, to its end, or interactive.  [default: stdin]"),
    Option("--output", "output", "FORM", "What it writes: text, or jsonl, an event a line.  [default: text]"),
    Option("--cwd", "cwd", "FOLDER", "Where it runs, if not in a folder for each conversation."),
    Option("--limit", "limits", "NAME=VALUE", "How much it may use, as in time=60; repeat for several.", repeat=True),
)
_FRAMEWORKS = (
    Option("--adk", "adk", "MODULE:NAME", "Serve an agent or a Runner of Google's ADK.", repeat=True),
    Option("--langgraph", "langgraph", "MODULE:NAME", "Serve a compiled LangGraph graph.", repeat=True),
    Option("--pydantic-ai", "pydantic_ai", "MODULE:NAME", "Serve an agent of Pydantic AI.", repeat=True),
    Option("--openai", "openai", "MODULE:NAME", "Serve an agent of the OpenAI Agents SDK.", repeat=True),
)
FRAMEWORKS = tuple(option.name for option in _FRAMEWORKS)
_SHOWN = (
    Option("--show-tools", "show_tools", "", "Tell callers of the tool calls of --adk."),
    Option("--show-thoughts", "show_thoughts", "", "Tell callers what the model of --adk thinks."),
)
OPTIONS = (_MCP, *_TOOLS, *_COMMAND, *_FRAMEWORKS, *_SHOWN)
_CHOICES = {"input": choice("stdin", "interactive"), "output": choice("text", "jsonl")}

# What the keys of a table have to be, beside the one that says what to serve.
_VARIABLES = Kind("a list of names or a table", (list, dict), texts=True)
_MCP_KEYS: dict[str, Kind] = {
    **dict.fromkeys(("include", "exclude"), Kind("a list", (list,))),
    **dict.fromkeys(("permissions", "headers"), TABLE),
    **dict.fromkeys(("default_tool", "description", "version", "token_env"), TEXT),
    "tools": TEXTS,
    "env": _VARIABLES,
    "timeout": Kind("a number of seconds", (int, float)),
    **AGENT_OPTIONS,
}
_COMMAND_KEYS: dict[str, Kind] = {
    "command": Kind("a text or a list of texts", (str, list), texts=True),
    **dict.fromkeys(("profile", "input", "output", "cwd", "description", "version"), TEXT),
    "env": _VARIABLES,
    "limits": TABLE,
    "tools": TEXTS,
    **AGENT_OPTIONS,
}


def with_agent_options(function: F) -> F:
    """Add the flags of all kinds of agents to a command."""
    for option in reversed(OPTIONS):
        kind: dict[str, Any] = {"is_flag": True, "default": False}
        if option.metavar:
            kind = {"metavar": option.metavar, "multiple": option.repeat, "type": option.type, "default": None}
        function = click.option(option.flag, option.parameter, help=option.help, **kind)(function)
    return function


class AgentFlags:
    """What the flags of a command say of agents. It takes them out of `flags`, where settings are left.

    Raises:
        ConfigError: a flag is about nothing, or a value is wrong.
    """

    def __init__(self, flags: dict[str, Any]) -> None:
        self._servers = flags.pop(_MCP.parameter)
        self._tools, self._program = _tool_options(flags, bool(self._servers)), _command_options(flags)
        self._frameworks = [(option, place) for option, places in _given(flags, _FRAMEWORKS) for place in places]
        self._shown = {option.name: option.flag for option, _ in _given(flags, _SHOWN)}
        if self._shown and all(option.name != "adk" for option, _ in self._frameworks):
            flag = next(iter(self._shown.values()))
            raise ConfigError(f"{flag} is about agents of Google's ADK: name one with --adk")
        self._shared = _shared_options(flags, mcp=bool(self._servers), program=bool(self._program))

    def of_frameworks(self, cwd: Path) -> list[Agent]:
        """The agents of other frameworks. Raises ConfigError."""
        shown = dict.fromkeys(self._shown, True)
        return [
            _of_framework(f"{option.flag} {place}", option.name, place, cwd, shown if option.name == "adk" else {})
            for option, place in self._frameworks
        ]

    def of_programs(self) -> list[Agent]:
        """The agent of MCP servers and that of a program. Raises ConfigError."""
        from dragoman.server.agent.agent import Agent

        agents = [Agent.from_mcp(*self._servers, **self._tools, **self._shared)] if self._servers else []
        return [*agents, *([Agent.from_command(**self._program, **self._shared)] if self._program else [])]


def _given(flags: dict[str, Any], options: Sequence[Option]) -> Iterator[tuple[Option, Any]]:
    """Take options out of all flags: those that were given."""
    values = [(option, flags.pop(option.parameter)) for option in options]
    return ((option, value) for option, value in values if value is not None and value != () and value is not False)


def _tool_options(flags: dict[str, Any], used: bool) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for option, value in _given(flags, _TOOLS):
        if not used:
            raise ConfigError(f"{option.flag} is about MCP tools: say which server with --mcp")
        given[option.name] = value
    if "permissions" in given:
        example = "write TOOL=KEY, as in --permission 'delete_*=admin'"
        pairs = _pairs("--permission", given["permissions"], example)
        given["permissions"] = {tool: key or None for tool, key in pairs.items()}
    return given


def _command_options(flags: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for option, value in _given(flags, _COMMAND):
        if option.name not in ("command", "profile") and not given:
            raise ConfigError(f"{option.flag} is about a program: say which with --command or --profile")
        given[option.name] = value
        if option.name in _CHOICES:
            given[option.name] = _chosen(option.flag, option.name, value)
        elif option.name == "limits":
            given["limits"] = _pairs("--limit", value, "write NAME=VALUE, as in --limit time=60")
        elif option.name == "command":
            if len(value) > 1:
                raise ConfigError(
                    "--command is one program: for several, write a table [agents.NAME] for each into dragoman.toml"
                )
            given["command"] = value[0]
    return given


def _shared_options(flags: dict[str, Any], *, mcp: bool, program: bool) -> dict[str, Any]:
    """Take the flags that agents of MCP servers and of programs both have out of all flags."""
    given = {option: value for option in ("name", "env") if (value := flags.pop(option)) not in (None, ())}
    if given and not mcp and not program:
        raise ConfigError(f"--{next(iter(given))} is for the agent of --mcp or of --command: give one of them")
    if "name" in given and mcp and program:
        raise ConfigError(
            "--name: which agent is meant, that of --mcp or that of --command? Two get their names in dragoman.toml: "
            "a table [agents.NAME] for each"
        )
    return given


def _pairs(flag: str, pairs: Sequence[str], example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: {example}")
        found[name] = value
    return found


def _chosen(source: str, option: str, value: Any) -> str:
    try:
        return _CHOICES[option](value, False)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


# -- tables ------------------------------------------------------------------------------------------------------------


@contextmanager
def named(source: str) -> Generator[None]:
    """Say in every ConfigError where the mistake stands."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def agent_of_mcp_table(source: str, name: str, table: Mapping[str, Any]) -> Agent:
    """The agent that a table `[agents.NAME]` with `mcp` describes. Raises ConfigError."""
    from dragoman.server.agent.agent import Agent

    check_table(source, table, _MCP_KEYS, beside="mcp")
    if "tools" in table and "include" in table:
        raise ConfigError(f"{source}: tools and include say the same: write one of them")
    options = {key: value for key, value in table.items() if key not in ("mcp", "token_env", "tools", *AGENT_OPTIONS)}
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
    with named(source):
        return Agent.from_mcp(*listed, name=name, **options)


def agent_of_command_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """The agent that a table `[agents.NAME]` with `command` or `profile` describes.

    Paths are relative to `folder`, the one of the settings file.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such program.
    """
    from dragoman.agents.process.recipe import in_place, words_of
    from dragoman.server.agent.agent import Agent

    check_table(source, table, _COMMAND_KEYS, beside="command" if "command" in table else "profile")
    options: dict[str, Any] = {"name": name, **table}
    for option in _CHOICES.keys() & table.keys():
        options[option] = _chosen(f"{source} {option}", option, table[option])
    if "cwd" in table:
        place: str = table["cwd"]
        options["cwd"] = place if place.startswith("~") else folder / place
    if table.get("command"):
        words = words_of(table["command"])
        options["command"] = in_place(words, folder, files="cwd" not in table) if words else words
    with named(source):
        return Agent.from_command(**options)


def agent_of_framework_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """The agent that a table `[agents.NAME]` with `adk`, `langgraph`, `pydantic_ai` or `openai` describes.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such agent.
    """
    framework = next(each for each in FRAMEWORKS if each in table)
    kinds: dict[str, Kind] = {framework: TEXT, "description": TEXT, "version": TEXT, **AGENT_OPTIONS}
    if framework == "adk":
        kinds |= dict.fromkeys((option.name for option in _SHOWN), Kind("true or false", (bool,)))
    check_table(source, table, kinds, beside=framework)
    options = {key: value for key, value in table.items() if key in kinds and key not in (framework, *AGENT_OPTIONS)}
    return _of_framework(f"{source} {framework}", framework, table[framework], folder, {"name": name, **options})


def _of_framework(source: str, framework: str, place: str, folder: Path, options: Mapping[str, Any]) -> Agent:
    from dragoman.server.agent.frameworks import BY_NAME, agent_of, require
    from dragoman.server.agent.target import load_target

    known = BY_NAME[framework]
    with named(source):
        # Before the target is imported: that would fail as well, and could not say how to get it.
        require(known.module, known.extra)
        return agent_of(load_target(place, cwd=folder), known, **options)


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
