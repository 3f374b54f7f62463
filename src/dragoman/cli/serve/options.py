"""Builds the agents of `serve` from flags, or from a table `[agents.NAME]` of the settings file."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from dragoman.cli.completion.candidates import complete_setting
from dragoman.cli.options import GroupedOption, with_options
from dragoman.model.error import ConfigError
from dragoman.server.config.settings import SETTINGS
from dragoman.server.config.values import ChoiceParser, choice_parser
from dragoman.server.plugins import AGENT_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.server.agent.agent import Agent


class _Flag(NamedTuple):
    """A flag, the keyword argument it sets, its help and its place in the help. Without a metavar it is a switch."""

    flag: str
    option: str
    help: str
    metavar: str | None = None
    repeat: bool = False
    kind: type = str
    common: bool = False

    def decorator(self, group: str) -> Any:
        """Return the decorator that adds the flag to a command, under this heading of its help."""
        place: dict[str, Any] = {
            "cls": GroupedOption,
            "group": "Agent" if self.common else group,
            "common": self.common,
            "shell_complete": complete_setting,
        }
        if self.metavar is None:
            return click.option(self.flag, is_flag=True, help=self.help, **place)
        return click.option(
            self.flag, metavar=self.metavar, multiple=self.repeat, type=self.kind, help=self.help, **place
        )

    def pop_from(self, flags: dict[str, Any]) -> Any:
        """Pop the value of the flag; None when it is not set."""
        value = flags.pop(self.flag.removeprefix("--").replace("-", "_"))
        return None if value == () or value is False else value


class ServeArguments(NamedTuple):
    """The command line of `serve`."""

    targets: tuple[str, ...]
    a2a: tuple[str, ...]
    config: Path | None
    flags: dict[str, Any]
    frameworks: tuple[str, ...] = ()

    @property
    def framework_targets(self) -> tuple[str, ...]:
        """The targets of `--adk` and its like."""
        return tuple(target for name in self.frameworks for target in self.flags.get(name) or ())

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that are started, and URLs of MCP servers."""
        return (*(self.flags.get("mcp") or ()), *(self.flags.get("command") or ()))

    @property
    def names_agents(self) -> bool:
        """False when the settings file says what to serve."""
        return bool(self.targets or self.a2a or self.framework_targets or self.commands or self.flags.get("profile"))


_SERVERS = "Serve the tools of an MCP server; repeatable."
_TOOLS = (
    _Flag("--mcp", "mcp", _SERVERS, "COMMAND|URL", True, common=True),
    _Flag("--include", "include", "Tool to offer: a name or a pattern; repeatable.", "TOOL", True),
    _Flag("--exclude", "exclude", "Tool to leave out: a name or a pattern; repeatable.", "TOOL", True),
    _Flag(
        "--permission",
        "permissions",
        "Permission required to call a tool; TOOL= makes it public; repeatable.",
        "TOOL=KEY",
        True,
    ),
    _Flag("--default-tool", "default_tool", "Tool that receives plain text messages.", "TOOL"),
    _Flag(
        "--tool-timeout",
        "timeout",
        "How long to wait for output of a tool; 0 for no limit.  [default: 600]",
        "SECONDS",
        kind=float,
    ),
    _Flag(
        "--tool-total-timeout",
        "total_timeout",
        "How long a tool may take in all, also while it reports progress.  [default: no limit]",
        "SECONDS",
        kind=float,
    ),
    _Flag("--mcp-revision", "revision", "MCP revision to use.  [default: the server's newest]", "REVISION"),
)
_PROGRAM = (
    # Only one is allowed; repeatable, so that several can be rejected with an explanation.
    _Flag(
        "--command",
        "command",
        "Serve a command-line program; each task runs it.",
        "COMMAND",
        True,
        common=True,
    ),
    _Flag("--profile", "profile", "Serve a well-known program, such as codex.", "NAME", common=True),
    _Flag(
        "--input",
        "input",
        "Input of the program: stdin (one run per message) or interactive (kept open).  [default: stdin]",
        "MODE",
    ),
    _Flag("--output", "output", "Output of the program: text, or jsonl (one event per line).  [default: text]", "FORM"),
    _Flag("--cwd", "cwd", "Working directory.  [default: a new folder for each conversation]", "FOLDER"),
    _Flag("--limit", "limits", "Resource limit, such as time=60; repeatable.", "NAME=VALUE", True),
)
_FRAMEWORKS = (
    _Flag("--adk", "adk", "Serve a Google ADK agent or Runner; repeatable.", "MODULE:NAME", True),
    _Flag("--langgraph", "langgraph", "Serve a compiled LangGraph graph; repeatable.", "MODULE:NAME", True),
    _Flag("--pydantic-ai", "pydantic_ai", "Serve a Pydantic AI agent; repeatable.", "MODULE:NAME", True),
    _Flag("--openai", "openai", "Serve an OpenAI Agents SDK agent; repeatable.", "MODULE:NAME", True),
)
_ADK_FLAGS = (
    _Flag("--show-tools", "show_tools", "Show the tool calls of --adk agents to callers."),
    _Flag("--show-thoughts", "show_thoughts", "Show the model's thoughts of --adk agents to callers."),
)
FRAMEWORKS = tuple(flag.option for flag in _FRAMEWORKS)
_CHOICES = {"input": choice_parser("stdin", "interactive"), "output": choice_parser("text", "jsonl")}
_GROUPS = {"MCP tools": _TOOLS, "Programs": _PROGRAM, "Other frameworks": (*_FRAMEWORKS, *_ADK_FLAGS)}
agent_options = with_options(*(flag.decorator(group) for group, flags in _GROUPS.items() for flag in flags))


def choices_of(name: str) -> Sequence[str]:
    """Return the values that an option may have; none where that is anything."""
    match name:
        case "auth":
            from dragoman.auth.inbound.config import NAMES

            return NAMES
        case "profile":
            from dragoman.agents.process.profiles import PROFILES

            return PROFILES
        case _:
            parser = SETTINGS[name].kind.parse if name in SETTINGS else _CHOICES.get(name)
            return parser.choices if isinstance(parser, ChoiceParser) else ()


# -- flags -----------------------------------------------------------------------------------------------------------


def _pop_flags(flags: dict[str, Any], group: Sequence[_Flag], needed: Sequence[str], subject: str) -> dict[str, Any]:
    """Pop the flags of one kind of agent. Raises ConfigError when the flag that names the agent is missing."""
    values = {each.option: each.pop_from(flags) for each in group}
    present = [each for each in group if values[each.option] is not None]
    if present and not any(each.option in needed for each in present):
        raise ConfigError(f"{present[0].flag} is about {subject}")
    return {each.option: values[each.option] for each in present}


def pop_tool_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Pop the flags of MCP servers: the arguments of Agent.from_mcp, with the servers as `mcp`.

    Raises:
        ConfigError: there is no server for them, or a value is wrong.
    """
    options = _pop_flags(flags, _TOOLS, ("mcp",), "MCP tools: say which server with --mcp")
    if "permissions" in options:
        pairs = _parse_pairs("--permission", options["permissions"], "TOOL=KEY, as in --permission 'delete_*=admin'")
        options["permissions"] = {tool: key or None for tool, key in pairs.items()}
    return options


def pop_command_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Pop the flags of programs: the arguments of Agent.from_command, empty if there is no program.

    Raises:
        ConfigError: there is no program for them, or more than one, or a value is wrong.
    """
    needed = "a program: say which with --command or --profile"
    options = _pop_flags(flags, _PROGRAM, ("command", "profile"), needed)
    if "command" in options:
        if len(options["command"]) > 1:
            raise ConfigError(
                "--command is one program: for several, write a table [agents.NAME] for each into dragoman.toml"
            )
        options["command"] = options["command"][0]
    _parse_choices(options, "--")
    if "limits" in options:
        options["limits"] = _parse_pairs("--limit", options["limits"], "NAME=VALUE, as in --limit time=60")
    return options


def pop_framework_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Pop the flags of other frameworks. Raises ConfigError when an ADK flag is set without --adk."""
    adk = _pop_flags(flags, (_FRAMEWORKS[0], *_ADK_FLAGS), ("adk",), "agents of Google's ADK: name one with --adk")
    return adk | {each.option: each.pop_from(flags) for each in _FRAMEWORKS[1:]}


def agents_of_frameworks(options: Mapping[str, Any], cwd: Path) -> list[Agent]:
    """Load the agents that these flags name. Raises ConfigError."""
    adk_options = {each.option: True for each in _ADK_FLAGS if each.option in options}
    return [
        _load_agent(f"{each.flag} {place}", each.option, place, cwd, adk_options if each.option == "adk" else {})
        for each in _FRAMEWORKS
        for place in options.get(each.option) or ()
    ]


def _parse_pairs(flag: str, pairs: Sequence[str], form: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: write {form}")
        values[name] = value
    return values


def _parse_choices(options: dict[str, Any], source: str) -> None:
    """Parse the options with a fixed set of values, in place. Raises ConfigError."""
    for option, read in _CHOICES.items():
        if option in options:
            try:
                options[option] = read(options[option], False)
            except ValueError as error:
                raise ConfigError(f"{source}{option}: {error}") from None


# -- tables ----------------------------------------------------------------------------------------------------------


class ValueType(NamedTuple):
    """The type of a table's value: its description, the Python types, and whether a list must hold texts."""

    description: str
    types: tuple[type, ...]
    texts: bool = False

    def fits(self, value: object) -> bool:
        """True when a value is of this type."""
        if isinstance(value, list) and self.texts:
            return all(isinstance(each, str) for each in cast("list[object]", value))
        # Without the second half, True would pass as an int.
        return isinstance(value, self.types) and isinstance(value, bool) == (bool in self.types)


TEXT = ValueType("a text", (str,))
_TEXTS = ValueType("a list of texts", (list,), texts=True)
_TABLE = ValueType("a table", (dict,))
_VARIABLES = ValueType("a list of names or a table", (list, dict), texts=True)
_SWITCH = ValueType("true or false", (bool,))

# The keys that any table of an agent may have.
ABOUT: dict[str, ValueType] = {name: ValueType(*option) for name, option in AGENT_OPTIONS.items()}
_TOOL_KEYS: dict[str, ValueType] = {
    **dict.fromkeys(("include", "exclude"), ValueType("a list", (list,))),
    **dict.fromkeys(("permissions", "headers"), _TABLE),
    **dict.fromkeys(("default_tool", "description", "revision", "version", "token_env"), TEXT),
    "tools": _TEXTS,
    "env": _VARIABLES,
    **dict.fromkeys(("timeout", "total_timeout"), ValueType("a number of seconds", (int, float))),
    **ABOUT,
}
_PROGRAM_KEYS: dict[str, ValueType] = {
    "command": ValueType("a text or a list of texts", (str, list), texts=True),
    **dict.fromkeys(("profile", "input", "output", "cwd", "description", "version"), TEXT),
    "env": _VARIABLES,
    "limits": _TABLE,
    "tools": _TEXTS,
    **ABOUT,
}


def check_table(source: str, table: Mapping[str, Any], keys: Mapping[str, ValueType], *, beside: str) -> None:
    """Check that a table `[agents.NAME]` has only these keys, beside the one that says what to serve.

    Raises:
        ConfigError: it has another key, or a value of another type.
    """
    unknown = next((key for key in table if key not in keys and key != beside), None)
    if unknown is not None:
        near = get_close_matches(unknown, keys, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted({*keys} - {beside}))}"
        raise ConfigError(f"{source}: there is no setting `{unknown}` beside `{beside}`; {hint}")
    for key, value_type in keys.items():
        if key in table and not value_type.fits(table[key]):
            raise ConfigError(f"{source}: {key} is {value_type.description}")


@contextmanager
def prefix_errors(source: str) -> Generator[None]:
    """Prefix each ConfigError with the place of the wrong setting."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def agent_of_tool_table(source: str, name: str, table: Mapping[str, Any]) -> Agent:
    """Build the agent of a table `[agents.NAME]` with `mcp`. Raises ConfigError when a key or a value is wrong."""
    from dragoman.server.agent.agent import Agent

    check_table(source, table, _TOOL_KEYS, beside="mcp")
    if "tools" in table and "include" in table:
        raise ConfigError(f"{source}: tools and include mean the same: use one of them")
    options = {key: value for key, value in table.items() if key not in ("mcp", "token_env", "tools", *ABOUT)}
    if "tools" in table:
        options["include"] = table["tools"]
    variable = table.get("token_env")
    if variable is not None:
        token = os.environ.get(variable)
        if not token:
            raise ConfigError(f"{source}: token_env names {variable}, which is not set: run `export {variable}=…`")
        options["headers"] = {**options.get("headers", {}), "Authorization": f"Bearer {token}"}
    if "permissions" in options:
        options["permissions"] = {tool: str(key) if key else None for tool, key in options["permissions"].items()}
    servers = table["mcp"]
    listed = cast("list[object]", servers) if isinstance(servers, list) else [servers]
    with prefix_errors(source):
        return Agent.from_mcp(*listed, name=name, **options)


def agent_of_command_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """Build the agent of a table `[agents.NAME]` with `command` or `profile`.

    Paths are relative to `folder`, the one of the settings file.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such program.
    """
    from dragoman.server.agent.agent import Agent

    check_table(source, table, _PROGRAM_KEYS, beside="command" if "command" in table else "profile")
    options: dict[str, Any] = {"name": name, **table}
    _parse_choices(options, f"{source} ")
    if "cwd" in table:
        cwd: str = table["cwd"]
        options["cwd"] = cwd if cwd.startswith("~") else folder / cwd
    if table.get("command"):
        from dragoman.agents.process.spec import resolve_paths, split_command

        words = split_command(table["command"])
        options["command"] = resolve_paths(words, folder, files="cwd" not in table) if words else words
    with prefix_errors(source):
        return Agent.from_command(**options)


def agent_of_framework_table(source: str, name: str, table: Mapping[str, Any], folder: Path) -> Agent:
    """Build the agent of a table `[agents.NAME]` with `adk`, `langgraph`, `pydantic_ai` or `openai`.

    Raises:
        ConfigError: a key or a value is wrong, or there is no such agent.
    """
    framework = next(each for each in FRAMEWORKS if each in table)
    keys: dict[str, Any] = {framework: TEXT, "description": TEXT, "version": TEXT, **ABOUT}
    if framework == "adk":
        keys |= {each.option: _SWITCH for each in _ADK_FLAGS}
    check_table(source, table, keys, beside=framework)
    options = {key: value for key, value in table.items() if key in keys and key not in (framework, *ABOUT)}
    return _load_agent(f"{source} {framework}", framework, table[framework], folder, {"name": name, **options})


def _load_agent(source: str, framework: str, place: str, folder: Path, options: Mapping[str, Any]) -> Agent:
    from dragoman.server.agent.frameworks import BY_NAME, agent_of, require
    from dragoman.server.agent.target import load_target

    framework_info = BY_NAME[framework]
    with prefix_errors(source):
        # Before the target is imported: the import would fail too, but without saying what to install.
        require(framework_info.module, framework_info.extra)
        return agent_of(load_target(place, cwd=folder), framework_info, **options)
