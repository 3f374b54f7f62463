"""The options that all commands that call agents share, and the session with the agent they name."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import ssl
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dragoman import __version__
from dragoman.cli.options import remote_bytes_option, with_options
from dragoman.cli.remote.address import AGENT_ENV, Target, connection_hint, default_target, resolve_target, with_address
from dragoman.cli.remote.recent import RecentTask, RecentTasks
from dragoman.cli.telemetry import configure_export
from dragoman.model.error import AuthError, CannotConnect, ConfigError, TaskNotFound, TimedOut
from dragoman.telemetry.trace import HEADERS, adopt

if TYPE_CHECKING:
    from types import TracebackType

    from dragoman.client.client import Client
    from dragoman.net.exchange import Interceptor

T = TypeVar("T")

TOKEN_ENV = "DRAGOMAN_TOKEN"  # noqa: S105 - the name of a variable

# The client's logger for a connection that is lost, and for one that is there again.
_CONNECTION_LOGGER = "dragoman.client.connection"
_SHORT_ID = 8
LIMIT_ENV = "DRAGOMAN_LIMITS_REMOTE_BYTES"


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
    reconnect: float
    ca: Path | None = None

    def verification(self) -> bool | ssl.SSLContext:
        """Return whose certificates to trust, as the net layer takes it. Raises ConfigError for the file of --ca."""
        if self.ca is None:
            return not self.insecure
        from dragoman.net.pem import PemContext

        try:
            return PemContext.default(self.ca)
        except OSError as error:
            why = "no certificate in PEM format is in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigError(f"--ca {self.ca}: {why}") from None

    def interceptors(self) -> list[Interceptor]:
        """Return the logging interceptor of --wire. It is the last one, so that it logs what is really sent."""
        if not self.wire:
            return []
        from dragoman.cli.remote.wire import WireLog

        return [WireLog([self.token] if self.token else [])]


# -- the options -----------------------------------------------------------------------------------------------------


call_options = with_options(
    click.option("--json", "as_json", is_flag=True, help="Print JSON in the A2A 1.0 format."),
    click.option("--wire", is_flag=True, help="Print every request and response to stderr, with secrets masked."),
    click.option(
        "--protocol", metavar="VERSION", help="A2A version to use, such as 0.3.  [default: from the agent's card]"
    ),
    click.option("--transport", type=click.Choice(["jsonrpc", "rest", "grpc"]), help="Transport to use."),
    click.option("--token-env", metavar="VAR", help=f"Environment variable with the token.  [default: {TOKEN_ENV}]"),
    click.option("-H", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header to send; repeatable."),
    click.option(
        "--timeout", metavar="SECONDS", type=click.FloatRange(0, min_open=True), help="Give up after this time."
    ),
    click.option(
        "--reconnect",
        metavar="SECONDS",
        type=click.FloatRange(0),
        help="How long to retry a lost connection; 0 to give up at once.  [default: 60]",
    ),
    remote_bytes_option,
    click.option(
        "--ca",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Trust the certificates in this file (PEM), instead of the system's.",
    ),
    click.option("--insecure", is_flag=True, help="Accept any TLS certificate."),
)


def in_session(function: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options, and pass a session with the agent at `url` before the other arguments."""

    @call_options
    @wraps(function)
    def command(url: str | None, **options: Any) -> None:
        configure_export("dragoman", __version__)
        # A script that is part of a trace has its context in the environment.
        adopt({name: value for name in HEADERS if (value := os.environ.get(name.upper()))})
        with CommandSession(parse_options(url, options)) as session:
            function(session, **options)

    return command


def parse_options(url: str | None, shared: dict[str, Any]) -> Options:
    """Parse the shared options and remove them from `shared`. Without an address, the default agent is meant.

    Raises:
        ConfigError: the agent is unknown, a header is invalid, or a token is missing.
    """
    target = resolve_target(url) if url is not None else default_target()
    headers = dict(map(_parse_header, shared.pop("headers")))
    if shared.get("ca") is not None and shared["insecure"]:
        raise ConfigError("--ca says whom to trust, --insecure to trust anybody: leave one of them out")
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
        reconnect=_or_default(shared.pop("reconnect")),
        ca=shared.pop("ca", None),
    )


def read_token(variable: str, source: str) -> str:
    """Read the token from an environment variable; `source` names the setting. Raises ConfigError when it is unset."""
    token = os.environ.get(variable)
    if not token:
        raise ConfigError(f"{source} names the variable {variable}, which is not set: run `export {variable}=…`")
    return token


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not name.isascii() or any(char in name for char in ' \t\r\n"(),/;<=>?@[]{}'):
        raise ConfigError("-H needs a header, as in -H 'X-Team: blue'")
    if any(char in value for char in "\r\n\0"):
        raise ConfigError(f"-H {name}: a header is one line")
    return name, value


def _parse_limit(limit: int | None) -> int | None:
    from dragoman.client.options import DEFAULT_LIMIT

    text = os.environ.get(LIMIT_ENV)
    if limit is None and text:
        if not text.isdecimal():
            raise ConfigError(f"environment {LIMIT_ENV}: must be a whole number from 0, not {text!r}")
        limit = int(text)
    return DEFAULT_LIMIT if limit is None else limit or None


def _or_default(reconnect: float | None) -> float:
    from dragoman.client.options import RECONNECT

    return RECONNECT if reconnect is None else reconnect


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


class _LogPrinter(logging.Handler):
    """Prints what the client logs on stderr: its warnings, and that the connection was lost and is there again."""

    def emit(self, record: logging.LogRecord) -> None:
        from dragoman.cli.printing import say, warn

        (say if record.name == _CONNECTION_LOGGER else warn)(record.getMessage())


class CommandSession:
    """A client for one agent, for the duration of one command.

    The event loop runs only within `run`, so that Ctrl-C works while the command waits for the user.
    """

    def __init__(self, options: Options, *interceptors: Interceptor) -> None:
        from dragoman.client.client import Client

        self.options = options
        self._runner = asyncio.Runner()
        self._log_printer = _LogPrinter(logging.INFO)
        self._remaining = options.timeout
        self._remembered = ("", "")
        self.is_remembered = False
        self.client: Client = Client(
            options.target.url,
            auth=options.token,
            protocol=options.protocol,
            transport=options.transport,
            verify=options.verification(),
            headers=options.headers or None,
            interceptors=[*interceptors, *options.interceptors()],
            limit=options.limit,
            reconnect=options.reconnect,
        )

    def __enter__(self) -> CommandSession:
        logging.getLogger("dragoman.client").addHandler(self._log_printer)
        logging.getLogger(_CONNECTION_LOGGER).setLevel(logging.INFO)
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()
            logging.getLogger(_CONNECTION_LOGGER).setLevel(logging.NOTSET)
            logging.getLogger("dragoman.client").removeHandler(self._log_printer)

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
            token = "a token, or USER:PASSWORD for basic," if re.search(r"\bbasic\b", str(error)) else "a token"
            text = str(error).replace(
                "Give auth=…", f"Put {token} into {TOKEN_ENV}, or name its variable with --token-env"
            )
            raise AuthError(text, reason=error.reason, status=error.status) from error
        except TaskNotFound as error:
            raise TaskNotFound(f"{error}. `{self.command_line('tasks')}` lists your tasks") from error
        except CannotConnect as error:
            if error.reason == "TLS" and not self.options.insecure and "is not trusted" in str(error):
                hint = "--ca FILE trusts the authority in that file, --insecure accepts any certificate"
                raise CannotConnect(f"{error}. {hint}", reason="TLS") from error
            if error.reason == "CANNOT_CONNECT" and self.options.target.is_default:
                raise CannotConnect(_nobody_there(self.options.target), arrived=error.arrived) from error
            hint = self._runner.run(connection_hint(self.options.target.url, error))
            if hint:
                raise CannotConnect(f"{error}. {hint}", reason=error.reason, arrived=error.arrived) from error
            raise
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

    # -- the conversation --------------------------------------------------------------------------------------------

    def recent(self) -> list[RecentTask]:
        """Return the tasks that commands of this user have sent to at this address, the newest first."""
        return RecentTasks().at(self.options.target.url)

    def remember(self, task_id: str, context_id: str) -> None:
        """Make a task the last one at this address, for later commands. `is_remembered` says whether that worked."""
        context_id = context_id or (self._remembered[1] if task_id == self._remembered[0] else "")
        if (task_id, context_id) == self._remembered:
            return
        self._remembered = task_id, context_id
        self.is_remembered = RecentTasks().add(self.options.target.url, task_id, context_id)

    def short_id(self, task_id: str) -> str:
        """Return the id of a task; on a terminal only its beginning, if later commands know the task by that."""
        from dragoman.cli.printing import on_terminal
        from dragoman.cli.remote.task_id import is_uuid

        beginning = task_id[:_SHORT_ID]
        if not is_uuid(task_id) or not on_terminal(err=True):
            return task_id
        found = [each.task_id for each in self.recent() if each.task_id.startswith(beginning)]
        return beginning if found == [task_id] else task_id

    def command_line(self, verb: str, *words: str) -> str:
        """Return a `dragoman` command line for this agent, without its address where that is the default.

        The words are quoted, as an id may contain anything.
        """
        import shlex

        return shlex.join(["dragoman", verb, *with_address(self.options.target, words)])


def _nobody_there(target: Target) -> str:
    """Return the error text for a default address at which nobody answers."""
    if os.environ.get(AGENT_ENV):
        return f"no agent answers at {target.url} (from {AGENT_ENV}): correct it, or name another address"
    return (
        f"no agent answers at {target.url}: start one with `dragoman serve`, "
        "or name an address, as in `dragoman send localhost:9000 hello`"
    )
