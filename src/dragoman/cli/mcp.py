"""`dragoman mcp`: serves A2A agents as tools for an MCP host."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import click

from dragoman.cli.completion.candidates import complete_address
from dragoman.cli.options import HELP, config_option, remote_bytes_option, with_options
from dragoman.cli.printing import out, say, warn
from dragoman.mcp.hosts import install as installing
from dragoman.mcp.serve import WAIT_SECONDS, McpOptions
from dragoman.model.error import ConfigError
from dragoman.server.listen.shutdown import stop_signals

if TYPE_CHECKING:
    from dragoman.mcp.registry import RegistryStore
    from dragoman.server.config.remotes import Remote


class SharedOptions(NamedTuple):
    """The options that `mcp` and `mcp install` share."""

    urls: tuple[str, ...]
    config: Path | None
    allow: tuple[str, ...]
    store: str | None
    wait_seconds: float
    simple_tools: bool
    limits_remote_bytes: int | None


_shared_options = with_options(
    click.argument("urls", nargs=-1, metavar="[URL]...", shell_complete=complete_address),
    config_option,
    click.option("--allow", metavar="HOST", multiple=True, help="Another host that tools may call; repeatable."),
    click.option(
        "--store",
        metavar="URL",
        help="Where to remember agents and tasks, such as sqlite:///FILE.  [default: in memory]",
    ),
    click.option(
        "--wait-seconds",
        metavar="SECONDS",
        type=click.FloatRange(0, 3600),
        default=WAIT_SECONDS,
        help=f"How long a tool waits for a result.  [default: {WAIT_SECONDS:g}]",
    ),
    remote_bytes_option,
    click.option(
        "--simple-tools",
        is_flag=True,
        help="Offer two simple tools too: one to inspect an agent, one to run a request.",
    ),
)


class _McpGroup(click.Group):
    """A group that serves when no subcommand is given: then its arguments are URLs, with options around them."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave everything after the name of a subcommand to that subcommand."""
        if not (args and args[0] in self.commands):
            # Not Group.parse_args, which would take the first URL for the name of a subcommand.
            return click.Command.parse_args(self, ctx, args)
        click.Command.parse_args(self, ctx, [])
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand, or serve."""
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        # With the parent's context: the URLs of this group do not belong into the usage of the subcommand.
        with self.commands[name].make_context(f"{ctx.info_name} {name}", rest, parent=ctx.parent) as below:
            return below.command.invoke(below)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the options and the URLs."""
        return click.Command.collect_usage_pieces(self, ctx)


@click.group(
    "mcp",
    cls=_McpGroup,
    invoke_without_command=True,
    short_help="Offer A2A agents to an MCP host as tools.",
    context_settings=HELP,
)
@click.option(
    "--http", metavar="HOST:PORT", help="Serve over HTTP at this address, path /mcp; port 0 picks a free one."
)
@_shared_options
def command(http: str | None, **shared: Any) -> None:
    """Offer A2A agents to an MCP host as tools.

    The host starts this command and talks to it over stdin and stdout. Set that up with `dragoman mcp install`. The
    tools can call the agents at the URLs, the [remotes] of the settings file, this machine and the hosts of --allow.
    """
    options = SharedOptions(**shared)
    if "install" in options.urls:
        raise ConfigError("`install` comes first: dragoman mcp install …")
    if http is None:
        _serve_stdio(options)
    else:
        _serve_http(options, *_parse_address(http))


@command.command("install", short_help="Add `dragoman mcp` to the settings of an MCP host.", context_settings=HELP)
@click.option("--host", "name", type=click.Choice(list(installing.HOSTS)), required=True, help="MCP host to configure.")
@click.option("--print", "only_print", is_flag=True, help="Print the entry without writing it.")
@_shared_options
def install(name: str, only_print: bool, **shared: Any) -> None:
    """Add `dragoman mcp`, with these URLs and options, to the settings of an MCP host.

    Nothing else in the host's settings file changes, and a backup of it is kept. Tokens are never written; the entry
    only names their environment variables.
    """
    options = SharedOptions(**shared)
    remotes = _remotes(options)
    _store_path(options.store)
    launch = installing.launch_command(*_launch_arguments(options), environ=os.environ)
    if launch[1:2] != ["--from"]:
        _require()
    variables = list(dict.fromkeys(each.token_env for each in remotes.values() if each.token_env))
    entry = installing.build_entry(name, launch, variables)
    path = installing.config_path(name, environ=os.environ, cwd=Path.cwd())
    if only_print:
        out(installing.snippet(name, entry))
        say(f"add this to {path}")
        if name == "claude-code":
            say(f"or type: {installing.claude_command(entry)}")
    else:
        title = installing.HOSTS[name].title
        written = installing.write_entry(path, name, entry)
        say(f"{path} is already up to date" if written is None else f"updated {path}; restart {title} to use it")
        entry = written or {}
    for variable in installing.variables_to_fill(name, entry):
        say(f"{installing.HOSTS[name].title} does not pass on {variable}: write its value into that file")


# -- serving ---------------------------------------------------------------------------------------------------------


def _serve_stdio(shared: SharedOptions) -> None:
    from dragoman.mcp.session.stdio import host_streams

    if sys.stdin is not None and sys.stdin.isatty():
        say("waiting for an MCP host on stdin. To let a host start this itself, run `dragoman mcp install --host …`")
    # Before any import: what imported modules print must not reach the host.
    with host_streams() as streams:
        with _starting():
            import asyncio

            options, store = _prepare(shared)
            from dragoman.mcp.serve import serve_stdio
            from dragoman.server.listen.serve import tune_gc

            tune_gc()
        asyncio.run(serve_stdio(options, store, streams))


def _serve_http(shared: SharedOptions, host: str, port: int) -> None:
    with _starting():
        import asyncio

        options, store = _prepare(shared)
        from dragoman.mcp.serve import serve_http
        from dragoman.server.listen.serve import tune_gc

        tune_gc()
    if asyncio.run(serve_http(options, host, port, announce=say, store=store)):
        raise KeyboardInterrupt


@contextmanager
def _starting() -> Generator[None]:
    """Context for the imports: garbage collection is off, and SIGINT and SIGTERM exit at once.

    An exception raised by a signal within an import could be caught there, or turned into another error.
    """
    import gc

    def end(number: int, _: object) -> NoReturn:
        os._exit(130 if number == signal.SIGINT else 0)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in stop_signals()}
    # A host is waiting, and imports create no garbage.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        for number, handler in before.items():
            signal.signal(number, handler)


def _prepare(shared: SharedOptions) -> tuple[McpOptions, RegistryStore | None]:
    """Load and check all settings before anything is served. Raises ConfigError."""
    from dragoman import __version__
    from dragoman.cli.telemetry import configure_export
    from dragoman.server.config.loader import load_settings
    from dragoman.telemetry.logs import configure

    flags = {"limits_remote_bytes": shared.limits_remote_bytes}
    settings = load_settings({}, environ=os.environ, config=shared.config, cwd=Path.cwd(), flags=flags, warn=warn)
    configure(settings.log, settings.log_level)
    configure_export("dragoman", __version__)
    # The SDK logs every step of its start and stop at INFO.
    logging.getLogger("mcp").setLevel(logging.NOTSET if settings.log_level == "debug" else logging.WARNING)
    remotes = _remotes(shared)
    path = _store_path(shared.store)
    _require()
    options = McpOptions(
        remotes=remotes,
        tokens=_tokens(remotes),
        allow=shared.allow,
        wait_seconds=shared.wait_seconds,
        store=shared.store,
        simple_tools=shared.simple_tools,
        remote_bytes=settings.limits.remote_bytes or None,
    )
    if path is None:
        return options, None
    from dragoman.mcp.registry_file import RegistryFile

    return options, RegistryFile(path)


def _require() -> None:
    from dragoman.server.agent.frameworks import require

    try:
        require("mcp", "mcp")
    except ConfigError as error:
        from dragoman.installation import requirement

        command = shlex.join(["uvx", "--from", requirement("mcp"), "dragoman", "mcp"])
        raise ConfigError(f"{error}, or run it as {command}") from error


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port.isascii() and port.isdigit() and int(port) < 65536 and (host or ":" not in text):
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
    raise ConfigError(f"--http {text}: write HOST:PORT, as in --http 127.0.0.1:8000")


# -- the agents ------------------------------------------------------------------------------------------------------


def _remotes(options: SharedOptions) -> dict[str, Remote]:
    """Return the agents under [remotes] and those on the command line. Raises ConfigError for an invalid URL."""
    from dragoman.server.config.remotes import Remote, load_remotes

    environ = os.environ if options.config is None else {**os.environ, "DRAGOMAN_CONFIG": str(options.config)}
    remotes = load_remotes(environ=environ, cwd=Path.cwd())
    # A configured agent keeps its credentials.
    configured_urls = {each.url.rstrip("/") for each in remotes.values()}
    for typed in options.urls:
        if typed in remotes or typed.rstrip("/") in configured_urls:
            continue
        if "://" not in typed:
            names = f", where there are {', '.join(remotes)}" if remotes else ""
            hint = f": write http://{typed}" if any(char in typed for char in ".:/") else ""
            if near := get_close_matches(typed, ("install", *remotes), n=1):
                hint = f"; did you mean `{near[0]}`?"
            raise ConfigError(f"`{typed}` is neither an agent's URL nor a name in [remotes]{names}{hint}")
        remotes[typed] = Remote(name=typed, url=typed)
    for remote in remotes.values():
        _check_url(remote.url)
    return remotes


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https", "grpc", "grpcs") and bool(parts.hostname) and parts.port != 0
        if "@" in parts.netloc:
            raise ConfigError(
                f"`{parts.scheme}://…@{parts.hostname}` has credentials in it: name the agent under [remotes], "
                "with token_env"
            )
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"`{url}` is not an agent's address: write one like https://agents.example.com")


def _tokens(remotes: dict[str, Remote]) -> dict[str, str]:
    """Read the tokens of the remotes from the environment; warn about missing ones."""
    tokens: dict[str, str] = {}
    for remote in remotes.values():
        if remote.token_env is None:
            continue
        token = os.environ.get(remote.token_env, "")
        if installing.is_unset(remote.token_env, token):
            warn(
                f"the remote `{remote.name}` names the variable {remote.token_env}, which is not set: "
                "it is called without a token"
            )
        else:
            tokens[remote.name] = token
    return tokens


def _store_path(store: str | None) -> Path | None:
    from dragoman.net.postgres import is_postgres_url
    from dragoman.server.config.store_url import parse_store

    if store is not None and is_postgres_url(store):
        raise ConfigError(
            "--store postgresql://…: `dragoman mcp` keeps what its host has asked for in a SQLite file of its own: "
            "use --store sqlite:///FILE, or leave it out"
        )
    return None if store is None else parse_store(store, setting="--store")


# -- the command for the host ----------------------------------------------------------------------------------------


def _launch_arguments(options: SharedOptions) -> list[str]:
    """Return the arguments with absolute paths: the host may start this in any folder. Raises ConfigError."""
    from dragoman.server.config.loader import find_config

    # Without a settings file none is read: a file in a foreign folder must not decide who gets our tokens.
    file = find_config(options.config, environ=os.environ, cwd=Path.cwd())
    arguments = [*options.urls, "--config", os.devnull if file is None else str(file.path.absolute())]
    for host in options.allow:
        arguments += ["--allow", host]
    path = _store_path(options.store)
    if path is not None:
        arguments += ["--store", f"sqlite:///{path.absolute().as_posix()}"]
    if options.wait_seconds != WAIT_SECONDS:
        arguments += ["--wait-seconds", f"{options.wait_seconds:g}"]
    if options.limits_remote_bytes is not None:
        arguments += ["--limits-remote-bytes", str(options.limits_remote_bytes)]
    if options.simple_tools:
        arguments.append("--simple-tools")
    return arguments
