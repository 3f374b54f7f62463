"""Parses command lines: which words are code or scripts, what the program is called, which variables it gets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from dragoman.model.error import ConfigError


class Interpreter(NamedTuple):
    """How one family of interpreters reads its command line.

    `code_option` matches options whose value is code; the group is the code in the same word. `value_option` matches
    options with another kind of value, `no_script_option` options after which no word is a script. With
    `code_after_options`, the code follows all options instead of its own; with `allows_more_code`, more code may follow
    the first. Without `always_script`, the first word may also be a subcommand of the interpreter.
    """

    name: re.Pattern[str]
    code_option: re.Pattern[str]
    value_option: re.Pattern[str]
    no_script_option: re.Pattern[str]
    code_after_options: bool = False
    allows_more_code: bool = True
    always_script: bool = True


class ScriptArgument(NamedTuple):
    """The position of a word that an interpreter executes: code, or the path of a script."""

    position: int
    interpreter: Interpreter
    is_code: bool


def _interpreter(name: str, code: str, value: str, no_script: str, **flags: bool) -> Interpreter:
    name, code, value, no_script = (f"(?s:{each})" for each in (name, code, value, no_script))
    return Interpreter(re.compile(name), re.compile(code), re.compile(value), re.compile(no_script), **flags)


SHELL = _interpreter(
    "sh|ash|bash|dash|zsh|ksh|mksh",
    "-[A-Za-z]*c[A-Za-z]*()",
    "[-+][A-Za-z]*[oO]|--(?:rcfile|init-file)",
    "-[A-Za-z]*s[A-Za-z]*",
    code_after_options=True,
)
NODE = _interpreter(
    "node|nodejs",
    "(?:-e|-p|-pe|--eval=?|--print=?)(.*)",
    "-[rC]|--(?:require|import|loader|experimental-loader|conditions)",
    "-|-i|--interactive|--test|--run.*|inspect",
)
_INTERPRETERS = (
    SHELL,
    NODE,
    _interpreter("fish", "(?:-c|--command=?|-C|--init-command=?)(.*)", "-[dDfop]", "-"),
    _interpreter(
        "(?:python|pypy)[0-9.]*",
        "-[bBdEiIOPqsSuvx]*c(.*)",
        "-[WX]|--check-hash-based-pycs",
        "-|-[bBdEiIOPqsSuvx]*m.*",
        allows_more_code=False,
    ),
    _interpreter(
        "bun|deno",
        "(?:-e|-p|--eval=?|--print=?|eval$)(.*)",
        "-[cr]|--(?:preload|require|config|cwd|env-file)",
        "-",
        always_script=False,
    ),
    _interpreter("perl[0-9.]*", "-[acfilnpstTuUvwWX0-9]*[eE](.*)", "-I", "-|-[A-Za-z]*S"),
    _interpreter("ruby[0-9.]*", "-[acdilnpsvwW0-9]*e(.*)", "-[IrCEx]|--encoding", "-|-[A-Za-z]*S"),
    _interpreter(
        "php[0-9.]*", "(?:-[rRBE]|--(?:run|process-code|process-begin|process-end)=?)(.*)", "-[cdzt]", "-|-[fFSa].*"
    ),
    _interpreter("lua[0-9.]*|luajit", "-e(.*)", "-l", "-"),
)
_SSH = re.compile("ssh|slogin|autossh")
_SSH_VALUE_OPTION = re.compile("-[BbcDEeFIiJLlmOopQRSWw]")


def interpreter_of(word: str) -> Interpreter | None:
    """Return the interpreter that a word names, or None."""
    return next((interpreter for interpreter in _INTERPRETERS if interpreter.name.fullmatch(PurePath(word).name)), None)


def script_arguments(words: Sequence[str]) -> Iterator[ScriptArgument]:
    """Yield the words that an interpreter executes, in order; none if the first word is not an interpreter."""
    interpreter = interpreter_of(words[0]) if words else None
    if interpreter is None:
        return
    has_code = False
    numbers = iter(range(1, len(words)))
    for number in numbers:
        word = words[number]
        code = interpreter.code_option.fullmatch(word)
        if code is not None:
            has_code = True
            if not interpreter.code_after_options:
                at = number if code[1] else next(numbers, None)
                if at is not None:
                    yield ScriptArgument(at, interpreter, is_code=True)
                if not interpreter.allows_more_code:
                    return
        elif interpreter.no_script_option.fullmatch(word):
            if not (interpreter.code_after_options and has_code):
                return
        elif interpreter.value_option.fullmatch(word):
            next(numbers, None)
        elif word == "--" or not word.startswith(("-", "+")):
            at = next(numbers, None) if word == "--" else number
            if at is not None and (interpreter.code_after_options or not has_code):
                yield ScriptArgument(at, interpreter, is_code=has_code)
            return


def code_words(words: Sequence[str]) -> Iterator[int]:
    """Yield the positions of all words that are code, also where `env` and the like start the interpreter.

    Everything that ssh sends to its host counts as code, because a shell parses it there.
    """
    at = 0
    while at < len(words):
        arguments = list(script_arguments(words[at:]))
        code = [argument for argument in arguments if argument.is_code]
        yield from (at + argument.position for argument in code)
        if code:
            # The word after a shell's code is its $0.
            at += code[-1].position + (2 if code[-1].interpreter.code_after_options else 1)
        elif arguments and not at:
            return  # the other words are arguments of the script
        elif _SSH.fullmatch(PurePath(words[at]).name):
            yield from _ssh_command(words, at + 1)
            return
        else:
            at += 1


def _ssh_command(words: Sequence[str], at: int) -> Iterable[int]:
    """Return the positions of the words that ssh sends to the shell of its host, which splits them again."""
    while at < len(words) and words[at].startswith("-"):
        at += 2 if _SSH_VALUE_OPTION.fullmatch(words[at]) else 1
    return range(at + 1, len(words))


# Programs that only start another one, which gives the agent its name.
_LAUNCHERS = {
    *("npx", "bunx", "pnpx", "uvx", "uv", "pipx", "npm", "pnpm", "yarn", "bun", "deno", "docker", "podman", "env"),
}
# Programs that start another one; the agent is still named after them.
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
    *("ssh", "kubectl", "flatpak", "firejail", "bwrap", "chroot", "systemd-run", "poetry", "pdm", "hatch", "rye"),
    *("cargo", "script"),
}
_SUBCOMMANDS = {"run", "exec", "tool", "x", "dlx"}
# Options of launchers that take a value, such as `--from PACKAGE`.
_VALUE_OPTIONS = {
    *("--from", "--with", "--python", "-p", "--package", "--directory", "--project", "--index", "--extra", "--group"),
    *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "--network", "--name", "--user", "-w", "--workdir"),
    *("-r", "--require", "--import", "--loader", "-C", "--prefix", "--cwd", "--platform", "--entrypoint", "-u"),
    *("--label", "--memory", "--cpus", "--hostname", "--publish", "--with-editable", "--with-requirements"),
}
# Options of launchers that take no value.
_FLAGS = {
    *("-y", "--yes", "--no", "-q", "--quiet", "--silent", "--verbose", "--", "-i", "-t", "-it", "-ti", "-d", "--rm"),
    *("--init", "--interactive", "--tty", "--privileged", "--read-only", "--isolated", "--frozen", "--locked"),
    *("--offline", "--no-project", "--no-sync", "--no-dev", "--allow-net", "--allow-read", "--allow-all", "-A"),
}
_IMAGE = re.compile(r"(:[\w.-]+)?(@sha256:[0-9a-f]+)?$")
# A program or package name, but not a URL.
_NAME = re.compile(r"[\w@./+-]+")
_VARIABLE = re.compile(r"[A-Za-z_][^\s=\0]*")
# Generic names: the parent folder identifies the program better.
_GENERIC_NAMES = {"index", "main", "server", "cli", "app", "__main__", "dist", "build", "src", "lib", "bin"}


def environment_of(env: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """Return the extra environment variables of a program. `KEY` without a value passes on this process's own variable.

    Raises:
        ConfigError: a passed-on variable is not set in this process, a name is not valid, or a value contains NUL.
    """
    if env is None:
        return {}
    variables: dict[str, str] = {}
    if isinstance(env, Mapping):
        for key, value in env.items():
            variables[_check_variable(key)] = str(value)
    else:
        for each in (env,) if isinstance(env, str) else env:
            key, separator, value = each.partition("=")
            if not separator and _check_variable(key) not in os.environ:
                raise ConfigError(f"env {key}: the variable is not set here: export it, or write {key}=VALUE")
            variables[_check_variable(key)] = value if separator else os.environ[key]
    for key, value in variables.items():
        if "\0" in value:
            raise ConfigError(f"env {key}: no variable can hold the character NUL")
    return variables


def _check_variable(key: str) -> str:
    if not _VARIABLE.fullmatch(key):
        raise ConfigError(f"env: `{printable(key)}` is not the name of a variable: write KEY=VALUE, or KEY")
    return key


def printable(text: str) -> str:
    """Replace non-printable characters with U+FFFD."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def is_launcher(program: str) -> bool:
    """Return True for a program that starts another one, shells and Node included.

    How such a program treats an argument or `--` cannot be known.
    """
    name = PurePath(program).name
    return name in _LAUNCHERS or name in _WRAPPERS or interpreter_of(name) in (SHELL, NODE)


def name_of_command(argv: Sequence[str]) -> str:
    """Return the name of the program that a command runs, looking through launchers such as npx.

    Where the launched program is in doubt, the launcher's own name is returned.
    """
    program = _basename(argv[0])
    if program in _LAUNCHERS:
        name = _launched_name(program, argv[1:])
    elif interpreter_of(program) is not None:
        name = _script_name(argv)
    else:
        name = None
    return clean_name(program) if name is None else name


def _launched_name(program: str, words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if word in ("-m", "--module"):
            return _module_name(next(rest, ""))
        if word in _VALUE_OPTIONS:
            next(rest, "")
        elif word.startswith("-"):
            if word not in _FLAGS and "=" not in word:
                return None  # an unknown option may take the next word as its value
        elif word not in _SUBCOMMANDS and "=" not in word:
            name = _IMAGE.sub("", word) if program in ("docker", "podman") else word
            # The launched program may be a launcher, too.
            return name_of_command([name, *rest]) if _NAME.fullmatch(name) else None
    return None


def _script_name(argv: Sequence[str]) -> str | None:
    script_argument = next(script_arguments(argv), None)
    if script_argument is not None:
        script = argv[script_argument.position]
        return None if script_argument.is_code or not _NAME.fullmatch(script) else clean_name(_basename(script))
    is_module = [word.startswith("-") and word.endswith("m") for word in argv]
    return _module_name(next(iter(argv[is_module.index(True) + 1 :]), "")) if True in is_module else None


def _module_name(name: str) -> str | None:
    return clean_name(name) if _NAME.fullmatch(name) else None


def _basename(word: str) -> str:
    path = [*PurePath(word).parts]
    while len(path) > 1 and path[-1].split(".")[0] in _GENERIC_NAMES:
        path.pop()
    name = path[-1] if path else word
    if not word.startswith(("/", "./", "../")):
        name = re.sub(r"(?<=.)@[^/@]*$", "", name)  # drop the version from a package name
    return re.sub(r"\.(py|js|mjs|cjs|ts|exe|cmd|sh|bash|zsh|fish|rb|pl|php|lua)$", "", name)


def clean_name(name: str) -> str:
    """Replace every run of characters other than ASCII letters, digits, `_` and `-` with a hyphen.

    Hyphens at both ends are removed; if nothing is left, the name is "tools".
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "tools"
