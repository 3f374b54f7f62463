"""Parses how a user names an MCP server: a command, a URL or an object."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from mcp.server import MCPServer, Server
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from msgspec import Struct

from dragoman.agents.command import clean_name, environment_of, name_of_command
from dragoman.model.error import ConfigError

# The protocol revisions a user can choose: the newest that asks within calls, and the newest.
REVISIONS = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)


class Source(Struct, frozen=True):
    """Where the tools of one server come from. Exactly one of `argv`, `url` and `server` is set.

    `revision` is the protocol revision to speak; empty for the newest that the server has.
    """

    name: str
    argv: tuple[str, ...] = ()
    url: str = ""
    server: Any = None
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    revision: str = ""

    @property
    def asks_within_calls(self) -> bool:
        """True when it may ask while a call is open: the newest revision has no such questions."""
        return self.revision != LATEST_MODERN_VERSION


def parse_sources(
    servers: Sequence[object],
    env: Mapping[str, str] | Sequence[str] | None,
    headers: Mapping[str, str] | None,
    revision: str | None = None,
) -> tuple[Source, ...]:
    """Parse the servers a user names, and give each a unique name.

    Raises:
        ConfigError: a value names no server, an environment variable is not set, or there is no such revision.
    """
    if revision is not None and revision not in REVISIONS:
        raise ConfigError(
            f"there is no MCP revision {revision!r} to choose: there are {' and '.join(REVISIONS)}. A server that "
            "speaks only an older one needs no option"
        )
    if not servers:
        raise ConfigError(
            'name an MCP server: a command, as in "npx -y @modelcontextprotocol/server-everything", or a URL'
        )
    environment = environment_of(env)
    sources: list[Source] = []
    for server in servers:
        source = _parse_source(server, environment, dict(headers or {}))
        names = {each.name for each in sources}
        number = next(n for n in range(1, len(servers) + 2) if _numbered(source.name, n) not in names)
        name = _numbered(source.name, number)
        sources.append(msgspec.structs.replace(source, name=name, revision=revision or ""))
    return tuple(sources)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _parse_source(server: object, env: dict[str, str], headers: dict[str, str]) -> Source:
    if isinstance(server, str):
        if re.match(r"https?://", server):
            return Source(_name_of_url(server), url=server, headers=headers)
        try:
            argv = shlex.split(server)
        except ValueError as error:
            raise ConfigError(f"the MCP command {server!r} cannot be read: {error}") from None
        return _parse_command(argv, env)
    if isinstance(server, (list, tuple)):
        return _parse_command([str(each) for each in cast("Sequence[object]", server)], env)
    inner: Any = server
    for attribute in ("_lowlevel_server", "_mcp_server"):  # where wrappers such as FastMCP keep the SDK's server
        if not isinstance(inner, (MCPServer, Server)):
            inner = getattr(inner, attribute, inner)
    if isinstance(inner, (MCPServer, Server)):
        name: object = getattr(server, "name", "")
        return Source(clean_name(name if isinstance(name, str) else ""), server=cast("Any", inner))
    raise ConfigError(
        f"an object of type `{type(server).__name__}` is no MCP server: give a command, a list of arguments, a URL "
        "or an MCPServer"
    )


def _parse_command(argv: list[str], env: dict[str, str]) -> Source:
    if not argv or not argv[0]:
        raise ConfigError(
            "an MCP command is empty: name a program, as in `npx -y @modelcontextprotocol/server-everything`"
        )
    return Source(name_of_command(argv), argv=tuple(argv), env=env)


def _name_of_url(url: str) -> str:
    parts = urlsplit(url)
    last = [word for word in parts.path.split("/") if word and word not in ("mcp", "sse")][-1:]
    return clean_name(last[0] if last else parts.hostname or "")
