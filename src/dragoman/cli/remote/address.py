"""The address of an agent on the command line: what it may look like, and which agent is meant without one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dragoman.cli.completion.candidates import complete_address
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.model.error import CannotConnect
    from dragoman.server.config.remotes import Remote

F = TypeVar("F", bound=Callable[..., Any])

AGENT_ENV = "DRAGOMAN_AGENT"
DEFAULT_URL = "http://127.0.0.1:8080"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
# The host is not a bare number: 12:30 is a time of day.
_HOST_AND_PORT = re.compile(r"(?!\d+:)(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+):([0-9]{1,5})(?:[/?#]\S*)?")
# Of this machine, as `dragoman top` takes it. One digit is a smile: `:3`.
_PORT = re.compile(r":[0-9]{2,5}")
_HTTPS_PORT = 443
_MAX_PORT = 65535
# How long a server may take to say whether it speaks TLS.
_PROBE_SECONDS = 3.0
# Text may resemble the name of a remote by chance.
_CLOSE = 0.75


class Target(NamedTuple):
    """The agent to call: how the command line names it, and what that resolves to."""

    argument: str
    url: str
    token_env: str | None = None
    protocol: str | None = None
    is_default: bool = False


# -- what an address is ----------------------------------------------------------------------------------------------


def is_address(word: str) -> bool:
    """True for a word with a scheme or a port, and for the name of a remote. Raises ConfigError for a broken file."""
    return _url_of(word) is not None or _SCHEME.fullmatch(word) is not None or word in _remotes_for(word)


def resolve_target(argument: str) -> Target:
    """Resolve a URL, a host with a port, or a name under [remotes].

    Raises:
        ConfigError: it is none of them; the text suggests the nearest name.
    """
    url = _url_of(argument)
    if url is not None:
        return Target(argument, url)
    remotes = _remotes_for(argument)
    remote = remotes.get(argument)
    if remote is not None:
        return Target(argument, remote.url, remote.token_env, remote.protocol)
    near = get_close_matches(argument, remotes, n=1)
    if near:
        raise ConfigError(f"there is no remote `{argument}`; did you mean `{near[0]}`?")
    if "://" in argument:
        raise ConfigError(
            f"{argument} cannot be called: an agent's address begins with http://, https://, grpc:// or grpcs://"
        )
    if any(char in argument for char in ".:/") or argument == "localhost":
        raise ConfigError(
            f"`{argument}` is not the address of an agent: add a port, as in localhost:8080, or write http://{argument}"
        )
    names = f"; there are {', '.join(remotes)}" if remotes else ""
    raise ConfigError(
        f"there is no remote `{argument}`{names}: write an address, as in localhost:8080, "
        f"or name it in dragoman.toml: [remotes.{argument}]"
    )


def default_target() -> Target:
    """Return the agent that is meant when no address is given: `$DRAGOMAN_AGENT`, else port 8080 of this machine.

    Raises:
        ConfigError: the variable names no agent.
    """
    argument = os.environ.get(AGENT_ENV)
    if not argument:
        return Target(DEFAULT_URL, DEFAULT_URL, is_default=True)
    try:
        return resolve_target(argument)._replace(is_default=True)
    except ConfigError as error:
        raise ConfigError(f"environment {AGENT_ENV}: {error}") from None


def with_address(target: Target, words: Sequence[str]) -> list[str]:
    """Return the words of a command line for an agent: with its address, unless it is the default."""
    try:
        is_default = target.is_default or target[1:] == default_target()._replace(is_default=False)[1:]
        is_needed = not is_default or any(map(is_address, words))
    except ConfigError:
        is_needed = True
    return [target.argument, *words] if is_needed else [*words]


def misread_word(word: str) -> str | None:
    """Return a sentence about a word that is taken as text but was perhaps meant as an address; None for others."""
    if word == "localhost" or re.fullmatch(r"\d+\.\d+\.\d+\.\d+", word):
        return f"`{word}` is not taken as an address: add a port, as in {word}:8080"
    near = get_close_matches(word, _remotes_for(word), n=1, cutoff=_CLOSE)
    return f"there is no remote `{word}`; did you mean `{near[0]}`?" if near else None


def _url_of(word: str) -> str | None:
    """Return the URL of a word that is one, or a host with a port, or a port; None for everything else."""
    if word.startswith(("http://", "https://", "grpc://", "grpcs://")):
        return word if _SCHEME.fullmatch(word) else None
    if _PORT.fullmatch(word):
        word = f"127.0.0.1{word}"
    match = _HOST_AND_PORT.fullmatch(word)
    port = int(match[1]) if match else 0
    if not 0 < port <= _MAX_PORT:
        return None
    return f"https://{word}" if port == _HTTPS_PORT else f"http://{word}"


def _remotes_for(word: str) -> dict[str, Remote]:
    """Load the remotes, if the word can be the name of one."""
    if not word or any(char.isspace() for char in word):
        return {}
    from dragoman.server.config.remotes import load_remotes

    return load_remotes(environ=os.environ, cwd=Path.cwd())


# -- addresses that cannot be called ---------------------------------------------------------------------------------


async def connection_hint(url: str, error: CannotConnect) -> str:
    """Return a sentence about what to try after an error; empty when nothing can be said.

    A server that speaks TLS closes a plain connection without a word, so one that did is asked for TLS.
    """
    from dragoman.net.exchange import is_loopback, origin_of, other_scheme_hint

    scheme = url.partition("://")[0]
    is_refused = error.reason == "CANNOT_CONNECT" and "refused" in str(error).lower()
    if is_refused and is_loopback(url):
        port = origin_of(url).rpartition(":")[2]
        flag = f"--grpc 127.0.0.1:{port}" if scheme.startswith("grpc") else f"--port {port}"
        return f"If your agent belongs there, start it with `dragoman serve {flag}`"
    was_closed = error.reason == "CONNECTION_LOST" and error.status is None
    if scheme == "http" and was_closed and await _speaks_tls(url):
        hint = other_scheme_hint(url)
        return f"{hint[0].upper()}{hint[1:]}"
    return ""


async def _speaks_tls(url: str) -> bool:
    import asyncio
    import ssl

    from dragoman.net.exchange import origin_of

    host, _, port = origin_of(url).partition("://")[2].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: this asks only whether the other side speaks TLS.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.transport.abort()
    return True


# -- the argument ----------------------------------------------------------------------------------------------------


def url_argument(function: F) -> F:
    """Add the argument `[ADDRESS]`, as `url`: None when it is not given."""
    add = click.argument(
        "url", metavar="[ADDRESS]", required=False, callback=_empty_to_none, shell_complete=complete_address
    )
    return add(function)


def _empty_to_none(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return value or None


class AddressCommand(click.Command):
    """A command whose arguments begin with `[ADDRESS]` and go on: it may be left out, also when the others are there.

    The first word is the address if it looks like one, and if there is one word more than the other arguments take.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with an empty address where there is none. Raises UsageError and ConfigError."""
        words = self._words(ctx, args)
        try:
            has_address = bool(words) and self._begin_with_address(words)
        except ConfigError:
            if not ctx.resilient_parsing:
                raise
            has_address = False
        rest = super().parse_args(ctx, args if has_address or not words else ["", *args])
        if ctx.resilient_parsing and has_address:
            # While an option is completed whose value is missing, click reads no arguments.
            ctx.params["url"] = words[0]
        return rest

    def _words(self, ctx: click.Context, args: list[str]) -> Sequence[str]:
        """Return the arguments that are no options nor their values."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        _, words, _ = click.Command(self.name, params=list(options)).make_parser(ctx).parse_args(args=list(args))
        return words

    def _begin_with_address(self, words: Sequence[str]) -> bool:
        others = [param for param in self.params if isinstance(param, click.Argument)][1:]
        if all(param.nargs == 1 for param in others) and len(words) > len(others):
            return True
        return is_address(words[0])
