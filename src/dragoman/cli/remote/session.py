"""The options that all commands that call agents share, the agent they name, and the session with it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dragoman.cli.options import remote_bytes_option, with_options
from dragoman.model.error import AuthError, CannotConnect, ConfigError, TimedOut

if TYPE_CHECKING:
    from types import TracebackType

    from click.shell_completion import CompletionItem

    from dragoman.client.client import Client
    from dragoman.net.exchange import Interceptor

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

TOKEN_ENV = "DRAGOMAN_TOKEN"  # noqa: S105 - the name of a variable

LIMIT_ENV = "DRAGOMAN_LIMITS_REMOTE_BYTES"


class Target(NamedTuple):
    """The agent to call: the argument on the command line, and what it resolves to."""

    argument: str
    url: str
    token_env: str | None = None
    protocol: str | None = None


class Options(NamedTuple):
    """The parsed shared options of one command."""

    target: Target
    as_json: bool
    wire: bool
    protocol: str | None
    transport: str | None
    token: str | None
    headers: dict[str, str]
    timeout: float | None
    insecure: bool
    limit: int | None

    def interceptors(self) -> list[Interceptor]:
        """Return the logging interceptor of --wire. It is the last one, so that it logs what is really sent."""
        if not self.wire:
            return []
        from dragoman.cli.remote.wire import WireLog

        return [WireLog([self.token] if self.token else [])]


# -- the options -----------------------------------------------------------------------------------------------------


def complete_alias(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names under [remotes] for a shell; errors complete nothing."""
    from click.shell_completion import CompletionItem

    from dragoman.server.config.remotes import load_remotes

    with suppress(ConfigError):
        remotes = load_remotes(environ=os.environ, cwd=Path.cwd())
        return [
            CompletionItem(each.name, help=each.url) for each in remotes.values() if each.name.startswith(incomplete)
        ]
    return []


def url_argument(*, required: bool = True) -> Callable[[F], F]:
    """Return the decorator that adds the argument URL: an agent's URL or a name under [remotes]."""
    metavar = "URL" if required else "[URL]"
    return click.argument("url", metavar=metavar, required=required, shell_complete=complete_alias)


call_options = with_options(
    click.option("--json", "as_json", is_flag=True, help="Print JSON, in the form of A2A 1.0."),
    click.option("--wire", is_flag=True, help="Show every exchange on stderr, with secrets masked."),
    click.option("--protocol", metavar="VERSION", help="Speak this version of A2A, as in 0.3."),
    click.option("--transport", type=click.Choice(["jsonrpc", "rest", "grpc"]), help="Use this transport."),
    click.option("--token-env", metavar="VAR", help=f"Variable that holds the token.  [default: {TOKEN_ENV}]"),
    click.option("-H", "headers", metavar="'NAME: VALUE'", multiple=True, help="Send this header; repeat for several."),
    click.option(
        "--timeout", metavar="SECONDS", type=click.FloatRange(0, min_open=True), help="Give up after this long."
    ),
    remote_bytes_option,
    click.option("--insecure", is_flag=True, help="Accept any TLS certificate."),
)


def in_session(function: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options, and pass a session with the agent at `url` before the other arguments."""

    @call_options
    @wraps(function)
    def command(url: str, **options: Any) -> None:
        with CommandSession(parse_options(url, options)) as session:
            function(session, **options)

    return command


def parse_options(url: str, shared: dict[str, Any]) -> Options:
    """Parse the shared options and remove them from `shared`.

    Raises:
        ConfigError: the agent is unknown, a header is invalid, or a token is missing.
    """
    target = resolve_target(url)
    headers = dict(map(_parse_header, shared.pop("headers")))
    return Options(
        target=target,
        as_json=shared.pop("as_json"),
        wire=shared.pop("wire"),
        protocol=shared.pop("protocol") or target.protocol,
        transport=shared.pop("transport"),
        token=_find_token(shared.pop("token_env"), target),
        headers=headers,
        timeout=shared.pop("timeout"),
        insecure=shared.pop("insecure"),
        limit=_parse_limit(shared.pop("limits_remote_bytes")),
    )


def read_token(variable: str, source: str) -> str:
    """Read the token from an environment variable; `source` names the setting. Raises ConfigError when it is unset."""
    token = os.environ.get(variable)
    if not token:
        raise ConfigError(f"{source} names the variable {variable}, which is not set: export {variable}=…")
    return token


def resolve_target(argument: str) -> Target:
    """Resolve a URL or a name under [remotes].

    Raises:
        ConfigError: it is neither; the text suggests the nearest name.
    """
    if argument.startswith(("http://", "https://")):
        return Target(argument, argument)
    from dragoman.server.config.remotes import load_remotes

    remotes = load_remotes(environ=os.environ, cwd=Path.cwd())
    remote = remotes.get(argument)
    if remote is not None:
        return Target(argument, remote.url, remote.token_env, remote.protocol)
    near = get_close_matches(argument, remotes, n=1)
    if near:
        raise ConfigError(f"there is no remote `{argument}`; did you mean `{near[0]}`?")
    if "://" in argument:
        raise ConfigError(f"{argument} cannot be called: an agent's address begins with http:// or https://")
    if any(char in argument for char in ".:/") or argument == "localhost":
        raise ConfigError(f"`{argument}` is not the address of an agent: write http://{argument}")
    names = f"; there are {', '.join(remotes)}" if remotes else ""
    raise ConfigError(
        f"there is no remote `{argument}`{names}: write the agent's URL, "
        f"or name it in dragoman.toml: [remotes.{argument}]"
    )


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not name.isascii() or any(char in name for char in ' \t\r\n"(),/;<=>?@[]{}'):
        raise ConfigError("-H takes a header as in -H 'X-Team: blue'")
    if any(char in value for char in "\r\n\0"):
        raise ConfigError(f"-H {name}: a header is one line")
    return name, value


def _parse_limit(limit: int | None) -> int | None:
    from dragoman.client.connection import DEFAULT_LIMIT

    text = os.environ.get(LIMIT_ENV)
    if limit is None and text:
        if not text.isdecimal():
            raise ConfigError(f"environment {LIMIT_ENV}: must be a whole number from 0, not {text!r}")
        limit = int(text)
    return DEFAULT_LIMIT if limit is None else limit or None


def _find_token(variable: str | None, target: Target) -> str | None:
    if variable is None and target.token_env is None:
        return os.environ.get(TOKEN_ENV) or None
    return read_token(
        variable or target.token_env or "", "--token-env" if variable else f"the remote `{target.argument}`"
    )


@contextmanager
def _interruptible() -> Generator[None]:
    """Cancel the current task on Ctrl-C, and end the program on a second one.

    asyncio's own handler does not wake a loop that is just about to wait: then Ctrl-C took effect with the next event.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        if task is None or task.cancelling():
            raise KeyboardInterrupt
        task.cancel()

    before = signal.getsignal(signal.SIGINT)
    try:
        if before is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, RuntimeError, ValueError):  # not a POSIX system, or not the main thread
        before = signal.SIG_IGN
    try:
        yield
    finally:
        if before is not signal.SIG_IGN:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)


# -- the session -----------------------------------------------------------------------------------------------------


class _WarningPrinter(logging.Handler):
    """Prints the client's warnings on stderr, such as an event that cannot be read."""

    def emit(self, record: logging.LogRecord) -> None:
        from dragoman.cli.printing import warn

        warn(record.getMessage())


class CommandSession:
    """A client for one agent, for the duration of one command.

    The event loop runs only within `run`, so that Ctrl-C works while the command waits for the user.
    """

    def __init__(self, options: Options, *interceptors: Interceptor) -> None:
        from dragoman.client.client import Client

        self.options = options
        self._runner = asyncio.Runner()
        self._warnings = _WarningPrinter(logging.WARNING)
        self._remaining = options.timeout
        self.client: Client = Client(
            options.target.url,
            auth=options.token,
            protocol=options.protocol,
            transport=options.transport,
            verify=not options.insecure,
            headers=options.headers or None,
            interceptors=[*interceptors, *options.interceptors()],
            limit=options.limit,
        )

    def __enter__(self) -> CommandSession:
        logging.getLogger("dragoman.client").addHandler(self._warnings)
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()
            logging.getLogger("dragoman.client").removeHandler(self._warnings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client, within the command's timeout.

        Raises:
            CannotConnect: the connection fails, or the timeout of the command is over.
            DragomanError: what the client raises.
            KeyboardInterrupt: Ctrl-C; the coroutine has been canceled.
        """
        start = time.monotonic()
        try:
            return self._runner.run(self._run_limited(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except AuthError as error:
            # The client's text is for Python code.
            text = str(error).replace(
                "Give auth=…", f"Put a token into {TOKEN_ENV}, or name its variable with --token-env"
            )
            raise AuthError(text, reason=error.reason, status=error.status) from error
        except CannotConnect as error:
            if error.reason != "TLS" or self.options.insecure:
                raise
            raise CannotConnect(f"{error}. --insecure accepts any certificate", reason="TLS") from error
        finally:
            if self._remaining is not None:
                self._remaining = max(0.0, self._remaining - (time.monotonic() - start))

    async def _run_limited(self, work: Coroutine[Any, Any, T]) -> T:
        limit = asyncio.timeout(self._remaining)
        try:
            async with limit:
                with _interruptible():
                    return await work
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{self.options.target.url} was not done within {self.options.timeout:g} s"
            raise TimedOut(text) from None

    def command_line(self, verb: str, *words: str) -> str:
        """Return a `dragoman` command line for this agent. The words are quoted, as an id may contain anything."""
        import shlex

        return f"dragoman {verb} {shlex.join([self.options.target.argument, *words])}"
