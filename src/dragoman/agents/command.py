"""A command, as a user writes it: who it runs, and the variables it is given."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from dragoman.agents.interpreter import NODE, SHELL, interpreter_of, runs_of
from dragoman.model.error import ConfigError

# Programs that only start the one that is meant.
_LAUNCHERS = {
    *("npx", "bunx", "pnpx", "uvx", "uv", "pipx", "npm", "pnpm", "yarn", "bun", "deno", "docker", "podman", "env"),
}
# Programs that start another, and that one's name is not looked for.
_WRAPPERS = {
    *(
        "sudo",
        "doas",
        "su",
        "nice",
        "ionice",
        "nohup",
        "setsid",
        "timeout",
        "time",
        "stdbuf",
        "xargs",
        "watch",
        "script",
    ),
    *(
        "ssh",
        "kubectl",
        "flatpak",
        "firejail",
        "bwrap",
        "chroot",
        "systemd-run",
        "poetry",
        "pdm",
        "hatch",
        "rye",
        "cargo",
    ),
}
_WORDS = {"run", "exec", "tool", "x", "dlx"}
# Options of these that are followed by a value, as `--from PACKAGE`.
_WITH_VALUE = {
    *("--from", "--with", "--python", "-p", "--package", "--directory", "--project", "--index", "--extra", "--group"),
    *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "--network", "--name", "--user", "-w", "--workdir"),
    *("-r", "--require", "--import", "--loader", "-C", "--prefix", "--cwd", "--platform", "--entrypoint", "-u"),
    *("--label", "--memory", "--cpus", "--hostname", "--publish", "--with-editable", "--with-requirements"),
}
# And those that are not.
_ALONE = {
    *("-y", "--yes", "--no", "-q", "--quiet", "--silent", "--verbose", "--", "-i", "-t", "-it", "-ti", "-d", "--rm"),
    *("--init", "--interactive", "--tty", "--privileged", "--read-only", "--isolated", "--frozen", "--locked"),
    *("--offline", "--no-project", "--no-sync", "--no-dev", "--allow-net", "--allow-read", "--allow-all", "-A"),
}
_IMAGE = re.compile(r"(:[\w.-]+)?(@sha256:[0-9a-f]+)?$")
# What can be the name of a program or a package, and is not its address.
_NAME = re.compile(r"[\w@./+-]+")
_VARIABLE = re.compile(r"[A-Za-z_][^\s=\0]*")
# Names that every package has: the folder above says more.
_NAMELESS = {"index", "main", "server", "cli", "app", "__main__", "dist", "build", "src", "lib", "bin"}


def environment_of(env: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """The variables a program gets beside the few everybody gets. `KEY` alone passes this process's own on.

    Raises:
        ConfigError: one of these is not set here, or cannot be a variable.
    """
    if env is None:
        return {}
    found: dict[str, str] = {}
    if isinstance(env, Mapping):
        for key, value in env.items():
            found[_variable(key)] = str(value)
    else:
        for each in (env,) if isinstance(env, str) else env:
            key, given, value = each.partition("=")
            if not given and _variable(key) not in os.environ:
                raise ConfigError(f"env {key}: the variable is not set here: export it, or write {key}=VALUE")
            found[_variable(key)] = value if given else os.environ[key]
    for key, value in found.items():
        if "\0" in value:
            raise ConfigError(f"env {key}: no variable can hold the character NUL")
    return found


def _variable(key: str) -> str:
    if not _VARIABLE.fullmatch(key):
        raise ConfigError(f"env: `{printable(key)}` is not the name of a variable: write KEY=VALUE, or KEY")
    return key


def printable(text: str) -> str:
    """A text without characters that nobody sees."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def is_launcher(program: str) -> bool:
    """True for a program that starts another: what it makes of an argument, or of `--`, is nobody's to know."""
    name = PurePath(program).name
    return name in _LAUNCHERS or name in _WRAPPERS or interpreter_of(name) in (SHELL, NODE)


def name_of_command(argv: Sequence[str]) -> str:
    """The program that is meant: not npx, but what it runs. Where that is in doubt, it is npx."""
    program = _basename(argv[0])
    if program in _LAUNCHERS:
        meant = _launched(program, argv[1:])
    elif interpreter_of(program) is not None:
        meant = _interpreted(argv)
    else:
        meant = None
    return clean_name(program) if meant is None else meant


def _launched(program: str, words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if word in ("-m", "--module"):
            return _module(next(rest, ""))
        if word in _WITH_VALUE:
            next(rest, "")
        elif word.startswith("-"):
            if word not in _ALONE and "=" not in word:
                return None  # it may have a value
        elif word not in _WORDS and "=" not in word:
            named = _IMAGE.sub("", word) if program in ("docker", "podman") else word
            return name_of_command([named, *rest]) if _NAME.fullmatch(named) else None  # which may launch, too
    return None


def _interpreted(argv: Sequence[str]) -> str | None:
    run = next(runs_of(argv), None)
    if run is not None:
        script = argv[run.at]
        return None if run.is_code or not _NAME.fullmatch(script) else clean_name(_basename(script))
    is_module = [word.startswith("-") and word.endswith("m") for word in argv]
    return _module(next(iter(argv[is_module.index(True) + 1 :]), "")) if True in is_module else None


def _module(name: str) -> str | None:
    return clean_name(name) if _NAME.fullmatch(name) else None


def _basename(word: str) -> str:
    path = [*PurePath(word).parts]
    while len(path) > 1 and path[-1].split(".")[0] in _NAMELESS:
        path.pop()
    name = path[-1] if path else word
    if not word.startswith(("/", "./", "../")):
        name = re.sub(r"(?<=.)@[^/@]*$", "", name)  # the version in a package's name
    return re.sub(r"\.(py|js|mjs|cjs|ts|exe|cmd|sh|bash|zsh|fish|rb|pl|php|lua)$", "", name)


def clean_name(name: str) -> str:
    """A name without the characters that have no place in one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "tools"
