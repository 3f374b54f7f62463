"""What the verbs that call agents share: their options, who is meant by URL, and the way to it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dragoman.cli.options import remote_bytes_option, with_options
from dragoman.model.error import AuthError, CannotConnect, ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from click.shell_completion import CompletionItem

    from dragoman.client.client import Client
    from dragoman.net.exchange import Interceptor

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

TOKEN_ENV = "DRAGOMAN_TOKEN"  # noqa: S105 - the name of a variable

LIMIT_ENV = "DRAGOMAN_LIMITS_REMOTE_BYTES"


class Address(NamedTuple):
    """Who is meant by what was typed."""

    typed: str
    url: str
    token_env: str | None = None
    protocol: str | None = None


class Options(NamedTuple):
    """The shared options of one command, checked."""

    address: Address
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
        """What shows the exchanges, with --wire. It is the last to see a request: what it shows is what is sent."""
        if not self.wire:
            return []
        from dragoman.cli.wire import Wire

        return [Wire([self.token] if self.token else [])]


# -- the options -----------------------------------------------------------------------------------------------------


def complete_alias(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names under [remotes] that begin with what was typed; a shell hears of no error."""
    from click.shell_completion import CompletionItem

    from dragoman.server.config.remotes import load_remotes

    with suppress(ConfigError):
        remotes = load_remotes(environ=os.environ, cwd=Path.cwd())
        return [
            CompletionItem(each.name, help=each.url) for each in remotes.values() if each.name.startswith(incomplete)
        ]
    return []


def url_argument(*, required: bool = True) -> Callable[[F], F]:
    """The argument that says which agent."""
    metavar = "URL" if required else "[URL]"
    return click.argument("url", metavar=metavar, required=required, shell_complete=complete_alias)


calling = with_options(
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
    """Add these options, and give the function a session with the agent at `url` before its other arguments."""

    @calling
    @wraps(function)
    def command(url: str, **given: Any) -> None:
        with Session(options_of(url, given)) as session:
            function(session, **given)

    return command


def options_of(url: str, shared: dict[str, Any]) -> Options:
    """What the shared options mean together. Takes them out of `shared`.

    Raises:
        ConfigError: the agent is not known, a header is none, or a token is missing.
    """
    address = address_of(url)
    headers = dict(map(_header, shared.pop("headers")))
    return Options(
        address=address,
        as_json=shared.pop("as_json"),
        wire=shared.pop("wire"),
        protocol=shared.pop("protocol") or address.protocol,
        transport=shared.pop("transport"),
        token=_token(shared.pop("token_env"), address),
        headers=headers,
        timeout=shared.pop("timeout"),
        insecure=shared.pop("insecure"),
        limit=_limit(shared.pop("limits_remote_bytes")),
    )


def token_in(variable: str, source: str) -> str:
    """The token in an environment variable. Raises ConfigError when it is not set; `source` is what names it."""
    token = os.environ.get(variable)
    if not token:
        raise ConfigError(f"{source} names the variable {variable}, which is not set: export {variable}=…")
    return token


def address_of(typed: str) -> Address:
    """The agent meant by a URL or by a name under [remotes].

    Raises:
        ConfigError: it is neither; names the nearest.
    """
    if typed.startswith(("http://", "https://")):
        return Address(typed, typed)
    from dragoman.server.config.remotes import load_remotes

    remotes = load_remotes(environ=os.environ, cwd=Path.cwd())
    remote = remotes.get(typed)
    if remote is not None:
        return Address(typed, remote.url, remote.token_env, remote.protocol)
    near = get_close_matches(typed, remotes, n=1)
    if near:
        raise ConfigError(f"there is no remote `{typed}`; did you mean `{near[0]}`?")
    if "://" in typed:
        raise ConfigError(f"{typed} cannot be called: an agent's address begins with http:// or https://")
    if any(mark in typed for mark in ".:/") or typed == "localhost":
        raise ConfigError(f"`{typed}` is not the address of an agent: write http://{typed}")
    known = f"; there are {', '.join(remotes)}" if remotes else ""
    raise ConfigError(
        f"there is no remote `{typed}`{known}: write the agent's URL, or name it in dragoman.toml: [remotes.{typed}]"
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not name.isascii() or any(mark in name for mark in ' \t\r\n"(),/;<=>?@[]{}'):
        raise ConfigError("-H takes a header as in -H 'X-Team: blue'")
    if any(mark in value for mark in "\r\n\0"):
        raise ConfigError(f"-H {name}: a header is one line")
    return name, value


def _limit(given: int | None) -> int | None:
    from dragoman.client.connection import DEFAULT_LIMIT

    text = os.environ.get(LIMIT_ENV)
    if given is None and text:
        if not text.isdecimal():
            raise ConfigError(f"environment {LIMIT_ENV}: must be a whole number from 0, not {text!r}")
        given = int(text)
    return DEFAULT_LIMIT if given is None else given or None


def _token(named: str | None, address: Address) -> str | None:
    if named is None and address.token_env is None:
        return os.environ.get(TOKEN_ENV) or None
    return token_in(named or address.token_env or "", "--token-env" if named else f"the remote `{address.typed}`")


# -- the way ---------------------------------------------------------------------------------------------------------


class Session:
    """One agent for the time of one command. Between its runs Ctrl-C works as everywhere."""

    def __init__(self, options: Options, *interceptors: Interceptor) -> None:
        from dragoman.client.client import Client

        self.options = options
        self._runner = asyncio.Runner()
        self._left = options.timeout
        self.client: Client = Client(
            options.address.url,
            auth=options.token,
            protocol=options.protocol,
            transport=options.transport,
            verify=not options.insecure,
            headers=options.headers or None,
            interceptors=[*interceptors, *options.interceptors()],
            limit=options.limit,
        )

    def __enter__(self) -> Session:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out something with the client.

        Raises:
            CannotConnect: nobody answers, or the command's time is up.
            DragomanError: what the client raises.
            KeyboardInterrupt: Ctrl-C; what was begun has been cleaned up.
        """
        start = time.monotonic()
        try:
            return self._runner.run(self._limited(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except AuthError as error:
            # The client speaks to those who write Python.
            text = str(error).replace(
                "Give auth=…", f"Put a token into {TOKEN_ENV}, or name its variable with --token-env"
            )
            raise AuthError(text, reason=error.reason, status=error.status) from error
        except CannotConnect as error:
            if error.reason != "TLS" or self.options.insecure:
                raise
            raise CannotConnect(f"{error}. --insecure accepts any certificate", reason="TLS") from error
        finally:
            if self._left is not None:
                self._left = max(0.0, self._left - (time.monotonic() - start))

    async def _limited(self, work: Coroutine[Any, Any, T]) -> T:
        limit = asyncio.timeout(self._left)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{self.options.address.url} was not done within {self.options.timeout:g} s"
            raise CannotConnect(text, reason="TIMED_OUT") from None

    def line(self, verb: str, *words: str) -> str:
        """What to type to go on with something. The words are quoted: an id is whatever an agent made it."""
        import shlex

        return f"dragoman {verb} {shlex.join([self.options.address.typed, *words])}"
