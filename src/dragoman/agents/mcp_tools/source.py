"""One MCP server, as a user names it: a command, a URL or an object."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from mcp.server import MCPServer, Server
from msgspec import Struct

from dragoman.model.error import ConfigError

# Programs that only start the one that is meant.
_LAUNCHERS = {"npx", "bunx", "pnpx", "uvx", "uv", "pipx", "npm", "node", "bun", "deno", "docker", "podman", "env"}
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_WORDS = {"run", "exec", "tool", "x", "dlx"}
# Options of these that are followed by a value, as `--from PACKAGE`.
_WITH_VALUE = {
    *("--from", "--with", "--python", "-p", "--package", "--directory", "--project", "--index", "--extra", "--group"),
    *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "--network", "--name", "--user", "-w", "--workdir"),
    *("-r", "--require", "--import", "--loader", "-C", "--prefix", "--cwd", "-X", "-W", "--platform", "--entrypoint"),
}
# Names that every package has: the folder above says more.
_NAMELESS = {"index", "main", "server", "cli", "app", "__main__", "dist", "build", "src", "lib", "bin"}


class Source(Struct, frozen=True):
    """Where the tools of one server come from. Exactly one of `argv`, `url` and `server` is there."""

    name: str
    argv: tuple[str, ...] = ()
    url: str = ""
    server: Any = None
    env: dict[str, str] = {}
    headers: dict[str, str] = {}


def sources_of(
    servers: Sequence[object], env: Mapping[str, str] | Sequence[str] | None, headers: Mapping[str, str] | None
) -> tuple[Source, ...]:
    """Read what a user gave, and give each a name of its own.

    Raises:
        ConfigError: it names no server, or a variable that is not set.
    """
    if not servers:
        raise ConfigError(
            'name an MCP server: a command, as in "npx -y @modelcontextprotocol/server-everything", or a URL'
        )
    passed = environment_of(env)
    found: list[Source] = []
    for server in servers:
        source = _source(server, passed, dict(headers or {}))
        taken = {each.name for each in found}
        number = next(n for n in range(1, len(servers) + 2) if _numbered(source.name, n) not in taken)
        found.append(
            Source(_numbered(source.name, number), *(getattr(source, key) for key in Source.__struct_fields__[1:]))
        )
    return tuple(found)


def environment_of(env: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """The variables a server gets beside the few everybody gets. `KEY` alone passes this process's own on.

    Raises:
        ConfigError: one of these is not set here.
    """
    if env is None:
        return {}
    if isinstance(env, Mapping):
        return {key: str(value) for key, value in env.items()}
    found: dict[str, str] = {}
    for each in (env,) if isinstance(env, str) else env:
        key, given, value = each.partition("=")
        if not given and key not in os.environ:
            raise ConfigError(f"env {key}: the variable is not set here: export it, or write {key}=VALUE")
        found[key] = value if given else os.environ[key]
    return found


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _source(server: object, env: dict[str, str], headers: dict[str, str]) -> Source:
    if isinstance(server, str):
        if re.match(r"https?://", server):
            return Source(_name_of_url(server), url=server, headers=headers)
        try:
            argv = shlex.split(server)
        except ValueError as error:
            raise ConfigError(f"the MCP command {server!r} cannot be read: {error}") from None
        return _command(argv, env)
    if isinstance(server, (list, tuple)):
        return _command([str(each) for each in cast("Sequence[object]", server)], env)
    inner: Any = server
    for attribute in ("_lowlevel_server", "_mcp_server"):  # what stands around a server of the SDK
        if not isinstance(inner, (MCPServer, Server)):
            inner = getattr(inner, attribute, inner)
    if isinstance(inner, (MCPServer, Server)):
        named: object = getattr(server, "name", "")
        return Source(_clean(named if isinstance(named, str) else ""), server=cast("Any", inner))
    raise ConfigError(
        f"an object of type `{type(server).__name__}` is no MCP server: give a command, a list of arguments, a URL "
        "or an MCPServer"
    )


def _command(argv: list[str], env: dict[str, str]) -> Source:
    if not argv or not argv[0]:
        raise ConfigError(
            "an MCP command is empty: name a program, as in `npx -y @modelcontextprotocol/server-everything`"
        )
    return Source(_name_of_command(argv), argv=tuple(argv), env=env)


def _name_of_command(argv: Sequence[str]) -> str:
    """The program that is meant: not npx, but what it runs."""
    program = _basename(argv[0])
    rest = iter(argv[1:] if program in _LAUNCHERS or _PYTHON.fullmatch(program) else ())
    for word in rest:
        if word == "-m":
            return _clean(next(rest, program))
        if word == "-c":
            break  # a program in a word has no name
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-") and word not in _WORDS and "=" not in word:
            return _name_of_command([word, *rest])  # which may be another that only starts one
    return _clean(program)


def _basename(word: str) -> str:
    path = [*PurePath(word).parts]
    while len(path) > 1 and path[-1].split(".")[0] in _NAMELESS:
        path.pop()
    name = path[-1] if path else word
    if not word.startswith(("/", "./", "../")):
        name = re.sub(r"(?<=.)@[^/@]*$", "", name)  # the version in a package's name
    return re.sub(r"\.(py|js|mjs|cjs|ts|exe|cmd)$", "", name)


def _name_of_url(url: str) -> str:
    parts = urlsplit(url)
    last = [word for word in parts.path.split("/") if word and word not in ("mcp", "sse")][-1:]
    return _clean(last[0] if last else parts.hostname or "")


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "tools"
