"""A command, as a user writes it: who it runs, and the variables it is given."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

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


def environment_of(env: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """The variables a program gets beside the few everybody gets. `KEY` alone passes this process's own on.

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


def name_of_command(argv: Sequence[str]) -> str:
    """The program that is meant: not npx, but what it runs."""
    program = _basename(argv[0])
    rest = iter(argv[1:] if program in _LAUNCHERS or _PYTHON.fullmatch(program) else ())
    for word in rest:
        if word == "-m":
            return clean_name(next(rest, program))
        if word == "-c":
            break  # a program in a word has no name
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-") and word not in _WORDS and "=" not in word:
            return name_of_command([word, *rest])  # which may be another that only starts one
    return clean_name(program)


def _basename(word: str) -> str:
    path = [*PurePath(word).parts]
    while len(path) > 1 and path[-1].split(".")[0] in _NAMELESS:
        path.pop()
    name = path[-1] if path else word
    if not word.startswith(("/", "./", "../")):
        name = re.sub(r"(?<=.)@[^/@]*$", "", name)  # the version in a package's name
    return re.sub(r"\.(py|js|mjs|cjs|ts|exe|cmd)$", "", name)


def clean_name(name: str) -> str:
    """A name without the characters that have no place in one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "tools"
