"""`dragoman serve`: serves agents over HTTP."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dragoman.cli.completion.candidates import complete_file, complete_setting
from dragoman.cli.options import CONFIG, GroupedCommand, GroupedOption, with_options
from dragoman.cli.printing import StyledText, say, warn
from dragoman.cli.serve.options import (
    ABOUT,
    FRAMEWORKS,
    TEXT,
    ServeArguments,
    agent_of_command_table,
    agent_of_framework_table,
    agent_of_tool_table,
    agent_options,
    agents_of_frameworks,
    check_table,
    pop_command_options,
    pop_framework_options,
    pop_tool_options,
    prefix_errors,
)
from dragoman.model.error import AuthError, ConfigError
from dragoman.server.config.loader import ConfigFile, find_config, load_settings
from dragoman.server.config.settings import SETTINGS, Setting, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.cli.serve.child import ServeChild
    from dragoman.server.listen.serve import Servable

FIRST_AGENT = '''\
from dragoman import Agent

agent = Agent("calculator", description="Adds numbers")

@agent.skill
def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b'''


def _setting_option(setting: Setting) -> Any:
    default = setting.default
    value = ("on" if default else "off") if setting.is_switch else "" if default in (None, ()) else str(default)
    text = f"{setting.help.text}  [default: {value}]" if value else setting.help.text
    kind: dict[str, Any] = {"metavar": setting.metavar, "multiple": setting.kind.repeat}
    return click.option(
        str(setting.flag),
        setting.name,
        help=text,
        cls=GroupedOption,
        group=setting.help.group,
        common=setting.help.common,
        shell_complete=complete_setting,
        **({"default": None} if setting.is_switch else kind),
    )


def _agent_option(flag: str, metavar: str, text: str, *, common: bool = False) -> Any:
    return click.option(
        flag,
        metavar=metavar,
        multiple=flag != "--name",
        help=text,
        cls=GroupedOption,
        group="Agent",
        common=common,
        shell_complete=complete_setting,
    )


def _start_option(flag: str, text: str, *, common: bool = False) -> Any:
    return click.option(flag, is_flag=True, help=text, cls=GroupedOption, group="Logging", common=common)


@click.command(
    "serve", cls=GroupedCommand, short_help="Serve agents over A2A.", context_settings={"max_content_width": 100}
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...", shell_complete=complete_file)
@with_options(
    _agent_option(
        "--a2a", "URL", "Serve a durable front for another agent, by URL or name of a remote; repeatable.", common=True
    ),
    agent_options,
    _agent_option("--name", "NAME", "Name of the --mcp or --command agent."),
    _agent_option(
        "--env",
        "KEY[=VALUE]",
        "Environment variable for --mcp or --command; KEY alone passes on its value; repeatable.",
    ),
    click.option("--config", **CONFIG, cls=GroupedOption, group="Agent", common=True),
    *(_setting_option(setting) for setting in SETTINGS.values() if setting.flag is not None),
    _start_option("--quiet", "Print warnings and errors only.", common=True),
    _start_option("--curl", "Print curl commands to try."),
)
def command(targets: tuple[str, ...], a2a: tuple[str, ...], config: Path | None, **flags: Any) -> None:
    """Serve agents over A2A.

    TARGET is a file or module, with an optional name in it: FILE.py[:NAME] or MODULE[:NAME]. It can be an Agent, a
    Server, a function, an MCP server or an agent of another framework. Several agents are served together, each at
    /agents/NAME. Without TARGET, the settings file says what to serve.

    \b
      dragoman serve trip.py                  the agent in trip.py
      dragoman serve trip.py hello.py:greet   two agents, one of them a function
      dragoman serve trip.py --dev            restart when a file changes
      dragoman serve --mcp "uvx mcp-server-time"
      dragoman serve --command "wc -w"
    """
    arguments = ServeArguments(targets, a2a, config, flags, FRAMEWORKS)
    settings = _preview(arguments)
    if settings.reload and _can_reload(arguments, settings):
        from dragoman.cli.serve.reload import Reloader

        Reloader(arguments, Path.cwd()).run()
    elif settings.workers > 1:
        from dragoman.server.listen.port import check_sharing

        check_sharing()  # first: the supervisor needs signals that other systems lack
        from dragoman.cli.serve.supervisor import WorkerSupervisor

        WorkerSupervisor(arguments, settings).run()
    else:
        serve_agents(arguments)


def _preview(arguments: ServeArguments) -> Settings:
    """Load the settings that can be had without importing the targets. Raises ConfigError when a flag is wrong."""
    flags = {name: value for name in SETTINGS if (value := arguments.flags.get(name)) not in (None, ())}
    load = partial(load_settings, {}, flags=flags, warn=lambda _: None, partial=True)
    try:
        return load(environ=os.environ, config=arguments.config, cwd=Path.cwd())
    except ConfigError:
        # An error in a file can be corrected while it is watched, one in a flag cannot.
        return load(environ={}, config=None, cwd=Path(os.devnull))


def _can_reload(arguments: ServeArguments, settings: Settings) -> bool:
    """True when there is a file to watch. Raises ConfigError where there must be one."""
    from dragoman.cli.serve.watched import watched_files

    if watched_files(arguments, Path.cwd()).paths:
        return True
    if not settings.dev:
        raise ConfigError("--reload: there is no Python file and no settings file to watch here")
    return False


def serve_agents(arguments: ServeArguments, child: ServeChild | None = None) -> None:
    """Import the targets and serve them; `child` is this process, if it serves for a parent process.

    Raises:
        DragomanError: a setting or a target is wrong, or the server does not start.
    """
    from dragoman import __version__
    from dragoman.cli.consoles import ConsoleFiles
    from dragoman.cli.telemetry import configure_export
    from dragoman.server.agent.agent import Agent
    from dragoman.server.listen.port import bind
    from dragoman.server.listen.serve import serve
    from dragoman.telemetry.logs import configure

    targets, a2a, config = arguments.targets, arguments.a2a, arguments.config
    flags = dict(arguments.flags)
    cwd = Path.cwd()
    tools = pop_tool_options(flags)
    program = pop_command_options(flags)
    frameworks = pop_framework_options(flags)
    quiet, curl = flags.pop("quiet"), flags.pop("curl")
    shared = _pop_shared_options(flags, mcp=bool(tools), program=bool(program))
    setting_flags = {name: value for name, value in flags.items() if value is not None and value != ()}

    load = partial(load_settings, environ=os.environ, config=config, cwd=cwd, flags=setting_flags)
    worker = None if child is None else child.worker
    # Before the targets are imported: an invalid setting fails early, and imported modules may log.
    settings = load({}, warn=warn if worker in (None, 1) else lambda _: None, partial=True)
    configure(settings.log, settings.log_level, quiet=quiet, worker=worker)
    file = find_config(config, environ=os.environ, cwd=cwd)
    loaded = [_load(target, target, cwd) for target in targets]
    loaded += agents_of_frameworks(frameworks, cwd)
    limit = settings.limits.remote_bytes or None
    remote_agents = [_agent_for_remote(place, None, file, limit) for place in a2a]
    tool_agents = [Agent.from_mcp(*tools.pop("mcp"), **tools, **shared)] if tools else []
    program_agents = [Agent.from_command(**program, **shared)] if program else []
    servable = _combine([*loaded, *remote_agents, *tool_agents, *program_agents] or _agents_of_file(file, limit))
    served: Sequence[Servable] = getattr(servable, "agents", (servable,))
    names = [agent.name for agent in served]
    settings = load(getattr(servable, "keywords", {}), warn=lambda _: None, agents=names)
    settings = msgspec.structs.replace(settings, reload=False)  # with `dev` there may be nothing to watch
    configure(settings.log, settings.log_level, quiet=quiet, worker=worker)
    # Now that the targets are imported: a program that has configured OpenTelemetry itself keeps what it has.
    service = (servable.name, servable.version) if isinstance(servable, Agent) else ("dragoman", __version__)
    configure_export(*service)
    consoles = ConsoleFiles()
    try:
        settings = settings if child is None else child.adapt(settings)
        serve(
            servable,
            settings,
            announce=announce if child is None else child.announce,
            ends_process=True,
            curl=curl,
            quiet=quiet,
            listener_of=bind if child is None else child.listener_of,
            hands_over=None if child is None else child.hands_over,
            console_token=None if child is None else child.console_token,
            on_console=consoles.add if child is None else child.on_console,
        )
    except ConfigError as error:
        from dragoman.cli.serve.second import with_command

        raise with_command(error, settings) from error
    finally:
        consoles.close()


def announce(lines: Sequence[str]) -> None:
    """Print the lines of a server that is ready."""
    for line in lines:
        say(StyledText(line))


def _pop_shared_options(flags: dict[str, Any], *, mcp: bool, program: bool) -> dict[str, Any]:
    """Pop the flags that --mcp and --command share. Raises ConfigError when they do not fit."""
    options = {option: value for option in ("name", "env") if (value := flags.pop(option)) not in (None, ())}
    if options and not mcp and not program:
        raise ConfigError(f"--{next(iter(options))} needs --mcp or --command")
    if "name" in options and mcp and program:
        raise ConfigError(
            "--name: does it name the --mcp or the --command agent? To name both, write a table [agents.NAME] for each "
            "into dragoman.toml"
        )
    return options


def _agents_of_file(file: ConfigFile | None, limit: int | None) -> list[Servable]:
    """Build the agents of the settings file. Raises ConfigError."""
    if file is None or not file.agents:
        raise ConfigError(
            "nothing to serve: name a target, as in `dragoman serve app.py`. To create one, run "
            "`dragoman init my-agent`, or save this as app.py:\n\n" + FIRST_AGENT
        )
    return [_agent_of_table(file, name, table, limit) for name, table in file.agents.items()]


def _agent_of_table(file: ConfigFile, name: str, table: Mapping[str, Any], limit: int | None) -> Servable:
    source = f"{file.label} [agents.{name}]"
    folder = file.path.parent.absolute()
    sources = [key for key in ("target", "a2a", "mcp") if key in table]
    if not sources and ("command" in table or "profile" in table):
        return agent_of_command_table(source, name, table, folder)
    if not sources and any(framework in table for framework in FRAMEWORKS):
        agent = agent_of_framework_table(source, name, table, folder)
        _apply_agent_options(source, agent, table)
        return agent
    _check_sources(source, table, sources)
    if sources == ["mcp"]:
        servable: Servable = agent_of_tool_table(source, name, table)
    else:
        check_table(source, table, {sources[0]: TEXT, **ABOUT}, beside=sources[0])
        place: str = table[sources[0]]
        is_front = sources == ["a2a"]
        servable = _agent_for_remote(place, name, file, limit) if is_front else _load(f"{source} target", place, folder)
    _apply_agent_options(source, servable, table)
    return servable


def _check_sources(source: str, table: Mapping[str, Any], sources: Sequence[str]) -> None:
    """Raise ConfigError unless a table names exactly one thing to serve."""
    keys = ("target", "a2a", "mcp", "command", "profile", *FRAMEWORKS)
    unknown = next((key for key in table if key not in (*keys, *ABOUT)), None)
    if not sources and unknown is not None:
        # A high cutoff, as short words resemble many: `file` is not meant to be `profile`.
        near = get_close_matches(unknown, keys, 1, cutoff=0.75)
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else "there are `target`, `a2a` and `mcp`, for programs `command` and `profile`, and for frameworks "
            + ", ".join(f"`{each}`" for each in FRAMEWORKS)
        )
        raise ConfigError(f"{source}: there is no setting `{unknown}`; {hint}")
    kind = (str, list) if sources == ["mcp"] else str
    twice = len(sources) != 1 or "command" in table or "profile" in table
    if twice or not isinstance(table[sources[0]], kind) or not table[sources[0]]:
        raise ConfigError(
            f'{source}: say what to serve, as in target = "app.py", a2a = "https://…", mcp = "npx …" or '
            'command = "my-agent", one of them'
        )


def _apply_agent_options(source: str, servable: Servable, table: Mapping[str, Any]) -> None:
    """Apply the options of a table that any agent can have. Raises ConfigError when the target is not an Agent."""
    from dragoman.server.agent.agent import Agent
    from dragoman.server.plugins import set_options

    options = [key for key in ABOUT if key in table]
    if not options:
        return
    if not isinstance(servable, Agent):
        raise ConfigError(
            f'{source}: {options[0]} needs an agent, but the target is not one: name one, as in target = "app.py:agent"'
        )
    set_options(servable, table)


def _agent_for_remote(url_or_name: str, name: str | None, file: ConfigFile | None, limit: int | None) -> Servable:
    """Build an agent that stands in front of the one at a URL, or of a named remote. A task may receive `limit` bytes.

    Raises:
        ConfigError: there is no such remote, or its token is not set.
        AuthError: the agent does not give out its card without credentials.
        CannotConnect: the agent does not answer.
        BadCard: it has no card, or an invalid one.
    """
    from dragoman.cli.remote.address import resolve_target
    from dragoman.cli.remote.session import read_token
    from dragoman.server.agent.agent import Agent
    from dragoman.server.config.remotes import load_remotes

    environ = os.environ if file is None else {**os.environ, "DRAGOMAN_CONFIG": str(file.path)}
    remote = load_remotes(environ=environ, cwd=Path.cwd()).get(url_or_name) or resolve_target(url_or_name)
    token = read_token(remote.token_env, f"the remote `{url_or_name}`") if remote.token_env else None
    try:
        return Agent.from_a2a(remote.url, name=name, protocol=remote.protocol, auth=token, limit=limit)
    except AuthError as error:
        # The client's text is for Python code.
        text = str(error).replace(
            "Give auth=…", "Name it under [remotes] with its url and token_env, and use that name"
        )
        raise AuthError(text, reason=error.reason, status=error.status) from error


def _load(source: str, target: str, folder: Path) -> Servable:
    from dragoman.server.agent.target import as_servable, load_target

    loaded = load_target(target, cwd=folder)
    with prefix_errors(source):
        return as_servable(loaded)


def _combine(servables: Sequence[Servable]) -> Servable:
    if len(servables) == 1:
        return servables[0]
    from dragoman.server.agent.agent import Agent
    from dragoman.server.agent.server import Server

    agents = [servable for servable in servables if isinstance(servable, Agent)]
    if len(agents) < len(servables):
        raise ConfigError(
            "a Server cannot be served with other targets: list its agents instead, or combine all in one Server"
        )
    names = [agent.name for agent in agents]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ConfigError(
            f"two agents are called {duplicate!r}: each needs its own name. "
            "Set it in dragoman.toml, as in\n\n"
            f'[agents.{duplicate}-2]\na2a = "https://…"'
        )
    return Server(*agents)
