"""`dragoman serve`: agents on a port."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.tool_options import agent_of_table, agent_of_tools, taken_tool_options, with_tool_options
from dragoman.model.error import AuthError, ConfigError
from dragoman.server.settings import SETTINGS, ConfigFile, Limits, Settings, find_config, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.server.serve import Servable

FIRST_AGENT = '''\
from dragoman import Agent

agent = Agent("calculator", description="Adds numbers")

@agent.skill
def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b'''


def _default(name: str) -> str:
    limit = name.removeprefix("limits_")
    value: Any = getattr(Limits(), limit) if limit != name else getattr(Settings(), name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None or value == () else str(value)


def _with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for every setting that has one."""
    for name, info in reversed(SETTINGS.items()):
        if info.flag is None:
            continue
        default = _default(name)
        text = f"{info.help}  [default: {default}]" if default else info.help
        kind: dict[str, Any] = {"default": None} if info.switch else {"metavar": info.metavar, "multiple": info.repeat}
        function = click.option(info.flag, name, help=text, **kind)(function)
    return function


@click.command("serve", short_help="Serve agents over A2A.")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--a2a", metavar="URL", multiple=True, help="Stand in front of the agent at URL, or of a remote by name.")
@with_tool_options
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="File, if not ./dragoman.toml.")
@_with_settings
def command(
    targets: tuple[str, ...], a2a: tuple[str, ...], mcp: tuple[str, ...], config: Path | None, **flags: Any
) -> None:
    """Serve agents over A2A.

    TARGET is `module:name`, `module`, `file.py` or `file.py:name`: an Agent, a Server, a function or an MCP server.
    Several are served together, each under /agents/NAME, the first also at the root. Without one, the [agents.NAME]
    tables of the settings file say what to serve. With --a2a, the agent at URL becomes durable, resumable and readable
    in every version. With --mcp, the tools of an MCP server become the skills of an agent; it listens once they are
    there.
    """
    from dragoman.server.serve import serve
    from dragoman.telemetry.logs import configure

    cwd = Path.cwd()
    tools = taken_tool_options(flags, bool(mcp))
    given = {name: value for name, value in flags.items() if value is not None and value != ()}

    def settings_of(keywords: Mapping[str, Any]) -> Settings:
        return load_settings(keywords, environ=os.environ, config=config, cwd=cwd, flags=given)

    # A wrong setting is told before anything is imported, and what is imported may log already.
    settings = settings_of({})
    configure(settings.log, settings.log_level)
    file = find_config(config, environ=os.environ, cwd=cwd)
    loaded = [_load(target, target, cwd) for target in targets]
    fronts = [_in_front(place, None, file) for place in a2a]
    bridges = [agent_of_tools(mcp, tools)] if mcp else []
    servable = _together([*loaded, *fronts, *bridges] or _in_file(file))
    settings = settings_of(getattr(servable, "keywords", {}))
    configure(settings.log, settings.log_level)
    serve(servable, settings, announce=lambda line: click.echo(line, err=True))


def _in_file(file: ConfigFile | None) -> list[Servable]:
    """What the file says to serve."""
    if file is None or not file.agents:
        raise ConfigError(
            "nothing to serve: name a target, as in `dragoman serve app.py`. To begin, save this as app.py:\n\n"
            + FIRST_AGENT
        )
    return [_of_table(file, name, table) for name, table in file.agents.items()]


def _of_table(file: ConfigFile, name: str, table: Mapping[str, Any]) -> Servable:
    source = f"{file.label} [agents.{name}]"
    given = [key for key in ("target", "a2a", "mcp") if key in table]
    if given == ["mcp"] and table["mcp"] and isinstance(table["mcp"], (str, list)):
        return agent_of_table(source, name, table)
    unknown = next((key for key in table if key not in ("target", "a2a", "mcp")), None)
    if unknown is not None:
        raise ConfigError(f"{source}: there is no setting `{unknown}`; there are `target`, `a2a` and `mcp`")
    if len(given) != 1 or not isinstance(table[given[0]], str) or not table[given[0]]:
        raise ConfigError(
            f'{source}: say what to serve, as in target = "app.py", a2a = "https://…" or mcp = "npx …", one of them'
        )
    if given == ["a2a"]:
        return _in_front(table["a2a"], name, file)
    return _load(f"{source} target", table["target"], file.path.parent.absolute())


def _in_front(place: str, name: str | None, file: ConfigFile | None) -> Servable:
    """An agent in front of the one at a URL, or of a remote that has a name here."""
    from dragoman.cli.remote import address_of
    from dragoman.server.agent import Agent
    from dragoman.server.remotes import load_remotes

    environ = os.environ if file is None else {**os.environ, "DRAGOMAN_CONFIG": str(file.path)}
    remote = load_remotes(environ=environ, cwd=Path.cwd()).get(place) or address_of(place)
    variable = remote.token_env
    token = os.environ.get(variable) if variable else None
    if variable and not token:
        raise ConfigError(f"the remote `{place}` names the variable {variable}, which is not set: export {variable}=…")
    try:
        return Agent.from_a2a(remote.url, name=name, protocol=remote.protocol, auth=token)
    except AuthError as error:
        # The client speaks to those who write Python.
        text = str(error).replace(
            "Give auth=…", "Name it under [remotes] with its url and token_env, and use that name"
        )
        raise AuthError(text, reason=error.reason, status=error.status) from error


def _load(source: str, target: str, folder: Path) -> Servable:
    from dragoman.server.target import as_servable, load_target

    found = load_target(target, cwd=folder)
    try:
        return as_servable(found)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _together(servables: Sequence[Servable]) -> Servable:
    if len(servables) == 1:
        return servables[0]
    from dragoman.server.agent import Agent
    from dragoman.server.server import Server

    agents = [servable for servable in servables if isinstance(servable, Agent)]
    if len(agents) < len(servables):
        raise ConfigError("a Server is served alone: name the agents instead, or make one Server of them")
    names = [agent.name for agent in agents]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two agents are called {twice!r}: each needs a name of its own. In dragoman.toml it gets one, as in\n\n"
            f'[agents.{twice}-2]\na2a = "https://…"'
        )
    return Server(*agents)
