"""Program specs: the command line, working folder, environment, limits and output format of a program."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from dragoman.agents.command import (
    NODE,
    SHELL,
    Interpreter,
    ScriptArgument,
    code_words,
    environment_of,
    is_launcher,
    name_of_command,
    printable,
    script_arguments,
)
from dragoman.agents.offers import humanized
from dragoman.agents.process.outputs import Output, output_of
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.telemetry import trace

if TYPE_CHECKING:
    from dragoman.agents.process.profiles.profile import Profile

PROMPT = "{prompt}"
# Words that only a shell interprets.
_SHELL_OPERATORS = {"|", "|&", ">", "<", ">>", "<<", "<<<", "&&", "||", ";", "&", "&>", "2>", "2>&1", ">&2", "1>&2"}
# Launchers whose program runs on another machine or sees another file system.
_REMOTE_LAUNCHERS = {"docker", "podman", "ssh", "kubectl", "flatpak", "bwrap", "chroot"}
_SCRIPT_SUFFIXES = {".py", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".sh", ".bash", ".rb", ".pl", ".php", ".lua"}
# Node also tries these suffixes.
_NODE_SUFFIXES = (".js", ".cjs", ".mjs", ".json")
# Variables that every program inherits from the server; its owner names any others.
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# What `TRACEPARENT` may be, and maximum length of the variables about a trace: that of `baggage` in its specification.
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
MAX_TRACE_BYTES = 8192
# Maximum length of one argument on Linux.
MAX_ARGUMENT_BYTES = 131_071


def split_command(command: str | Sequence[str]) -> list[str]:
    """Return a command as words. Text is split like in a shell, but never run by one.

    Raises:
        ConfigError: it cannot be split, or contains shell operators.
    """
    if not isinstance(command, str):
        return [str(word) for word in command]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"command: {error} in `{command}`") from None
    sign = next((word for word in _words_with_quotes(command, words) if word in _SHELL_OPERATORS), None)
    if sign is not None:
        raise ConfigError(f"command: no shell runs this, so `{sign}` means nothing: use sh -c '…', or a script")
    return words


def _words_with_quotes(command: str, words: list[str]) -> list[str]:
    """Return the words with their quotes: a quoted operator is an ordinary word."""
    try:
        return shlex.split(command, posix=False)
    except ValueError:  # escaped quotes
        return words


def check_command(words: Sequence[str], folder: Path, path: str | None = None) -> None:
    """Check a command, with paths relative to `folder` and programs looked up in `path`.

    Raises:
        ConfigError: it contains NUL, a caller could choose the program or write its code, or its script is missing.
    """
    if any("\0" in word for word in words):
        raise ConfigError("command: no word can hold the character NUL")
    script = _find_script_argument(words)
    if PROMPT in words[0] or (script is not None and PROMPT in words[script.position]):
        raise ConfigError(f"command: {PROMPT} stands where a program is named: callers would choose what is run")
    if any(PROMPT in words[at] for at in code_words(words)):
        raise ConfigError(
            f"command: {PROMPT} stands in code, which callers would write then: give it as an argument of its own, as "
            f"in sh -c '… \"$1\"' x {PROMPT}, or leave it out and read standard input"
        )
    if script is not None and _find_script(words[script.position], folder, script.interpreter, path) is None:
        there = printable(str(folder / words[script.position]))
        raise ConfigError(f"command: `{words[0]}` is to run {there}, and there is no such file")


def resolve_paths(words: Sequence[str], folder: Path, *, files: bool = True) -> list[str]:
    """Make the paths in a command absolute, relative to `folder`: programs run in folders of their own.

    This affects the program itself, if it is a path. With `files`, it also affects the script of an interpreter and
    every word with a slash that names an existing file or folder. Other words may match a file name by chance.

    Raises:
        ConfigError: `~` refers to no home folder.
    """
    resolved = list(words)
    if os.sep in resolved[0]:
        resolved[0] = str(folder / expand_home(resolved[0]))
    if not files:
        return resolved
    for at, word in enumerate(resolved[1:], 1):
        if os.sep in word and not word.startswith("-") and _exists(folder / word):
            resolved[at] = str(folder / word)
    script = _find_script_argument(words)
    if script is not None:
        word = resolved[script.position]
        resolved[script.position] = _find_script(word, folder, script.interpreter) or str(folder / expand_home(word))
    elif is_launcher(words[0]) and PurePath(words[0]).name not in _REMOTE_LAUNCHERS and not list(code_words(words)):
        for at, word in enumerate(resolved[1:], 1):
            if PurePath(word).suffix in _SCRIPT_SUFFIXES and _exists(folder / word):
                resolved[at] = str(folder / word)
                break
    return resolved


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Expand `~` in a path. Raises ConfigError if there is no such home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"there is no home folder for {path}") from None


def _find_script_argument(words: Sequence[str]) -> ScriptArgument | None:
    run = next(script_arguments(words), None)
    return None if run is None or run.is_code or not run.interpreter.always_script else run


def _find_script(word: str, folder: Path, kind: Interpreter, path: str | None = None) -> str | None:
    """Return the path of the script that a word names, or None."""
    script = folder / expand_home(word)
    if _exists(script) or (kind is NODE and any(_exists(Path(f"{script}{ending}")) for ending in _NODE_SUFFIXES)):
        return str(script)
    # Shells also look up a script in PATH.
    return word if kind is SHELL and os.sep not in word and shutil.which(word, path=path) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a word may be no valid path
        return False


class ProgramLimits(Struct, frozen=True, kw_only=True):
    """Limits of one program; 0 means no limit. Times are in seconds, sizes in bytes.

    `cpu`, `memory` (address space), `files` (open at once) and `file_size` are enforced by the operating system.
    `output` limits the bytes on standard output, `time` the run time, and `inactivity` the time without output or
    without an answer to a question. `artifacts` limits the total size of the files taken as results. An interactive
    program that has been silent for `quiet` is considered to wait for input. A program that is stopped has `grace` to
    exit by itself. At most `sessions` programs run at once; further tasks wait. `quiet` and `sessions` cannot be 0.
    """

    cpu: int = 0
    memory: int = 0
    files: int = 0
    file_size: int = 0
    output: int = 10_000_000
    time: float = 0
    inactivity: float = 1800
    artifacts: int = 10_000_000
    quiet: float = 1.0
    grace: float = 3.0
    sessions: int = 256


# The largest value the operating system accepts.
_MAX_LIMIT = 2**63 - 1
_INTEGER_LIMITS = ("cpu", "memory", "files", "file_size", "output", "artifacts", "sessions")


def limits_of(limits: ProgramLimits | Mapping[str, Any] | None) -> ProgramLimits:
    """Parse the limits of a program. Raises ConfigError for an unknown name or an invalid number."""
    if limits is None:
        return ProgramLimits()
    if isinstance(limits, ProgramLimits):
        return limits
    numbers: dict[str, Any] = {}
    for name, value in limits.items():
        if name not in ProgramLimits.__struct_fields__:
            near = difflib.get_close_matches(name, ProgramLimits.__struct_fields__, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(ProgramLimits.__struct_fields__)}"
            raise ConfigError(f"limits: there is no limit `{name}`; {hint}")
        numbers[name] = _parse_limit(name, value)
    return ProgramLimits(**numbers)


def _parse_limit(name: str, value: Any) -> float:
    """Parse a number, which is text if it comes from a command line."""
    kind = int if name in _INTEGER_LIMITS else float
    try:
        if isinstance(value, bool):
            raise TypeError
        number = kind(value)
        if not 0 <= number <= _MAX_LIMIT or (not isinstance(value, str) and number != value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"limits: {name} is {what}, 0 or more, not {value!r}") from None
    if name in ("quiet", "sessions") and not number:
        raise ConfigError(f"limits: {name} must be more than 0")
    return number


class ProgramSpec(Struct, frozen=True, kw_only=True):
    """A command with everything that is the same for all of its sessions."""

    command: tuple[str, ...]
    input: Literal["stdin", "interactive"] = "stdin"
    output: Literal["text", "jsonl"] = "text"
    profile: Profile | None = None
    cwd: Path | None = None
    env: Mapping[str, str] = {}
    limits: ProgramLimits = ProgramLimits()

    @property
    def default_description(self) -> str:
        """The default description of the agent."""
        return f"Runs {humanized(self.name) if self.profile is None else self.profile.title}"

    @property
    def prompt_in_argument(self) -> bool:
        """True if the prompt is passed as an argument."""
        return any(PROMPT in word for word in self.command)

    @property
    def interactive(self) -> bool:
        """True if the program stays open for further messages."""
        return self.input == "interactive"

    @property
    def keeps_input(self) -> bool:
        """True if the program takes input after its prompt."""
        return self.interactive or (self.prompt_in_argument and self.output == "jsonl")

    @property
    def name(self) -> str:
        """The name of the program."""
        return name_of_command(self.command) if self.profile is None else self.profile.name

    def argv(self, prompt: str, remembered: str | None = None) -> tuple[str, ...]:
        """Return the command line for a prompt; `remembered` is the program's own id of a conversation to resume.

        Raises:
            Rejected: the prompt cannot be an argument: it has NUL, is too long, or would be taken for an option.
        """
        command = self.command if self.profile is None else self.profile.argv(self.command, remembered)
        if not any(PROMPT in word for word in command):
            return tuple(command)
        if "\0" in prompt:
            raise Rejected("the text holds a character (NUL) that cannot be passed to the program")
        words = tuple(word.replace(PROMPT, prompt) for word in command)
        if any(len(os.fsencode(word)) > MAX_ARGUMENT_BYTES for word in words):
            raise Rejected(f"the text is too long for the program: it takes at most {MAX_ARGUMENT_BYTES // 1024} KB")
        if prompt.startswith("-") and not _takes_hyphens(command):
            # Otherwise the caller could set options of the program.
            raise Rejected("the text may not begin with a hyphen: the program would take it for an option")
        return words

    def executable(self, name: str, cwd: Path) -> str:
        """Return the path of the program, which may not be executable. Raises Failed if there is none."""
        path = self.env.get("PATH", os.environ.get("PATH", os.defpath))
        candidate = str(cwd / name) if os.sep in name else name
        program = shutil.which(candidate, path=path)
        if program is not None:
            return str(Path(program).absolute())
        # For a file that cannot be executed, the error of the operating system is more precise.
        if os.sep in name and Path(candidate).exists():
            return candidate
        where = "" if os.sep in name else " on PATH"
        raise Failed(f"the program cannot be started: there is no `{name}`{where}")

    def check(self) -> None:
        """Check that the program exists and is executable. Raises ConfigError."""
        name, cwd = self.command[0], self.cwd or Path.cwd()
        try:
            program = Path(self.executable(name, cwd))
        except Failed as error:
            raise ConfigError(str(error)) from None
        if program.is_dir():
            raise ConfigError(f"the program cannot be started: {program} is a folder")
        if not os.access(program, os.X_OK):
            raise ConfigError(
                f"the program cannot be started: {program} may not be run: chmod +x {shlex.quote(str(program))}"
            )

    def environment(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program: inherited variables, the owner's, `facts` about the task, its trace."""
        own = {name: os.environ[name] for name in INHERITED if name in os.environ}
        if self.profile is not None:
            own |= {name: os.environ[name] for name in self.profile.env if name in os.environ}
        task_variables = {f"DRAGOMAN_{name}": value for name, value in facts.items() if "\0" not in value}
        return own | dict(self.env) | task_variables | _trace_variables()

    def new_output(self) -> Output:
        """Return a new parser for the program's output."""
        reader = None if self.profile is None else self.profile.reader
        return output_of(self.output, interactive=self.interactive, reader=reader)


def _trace_variables() -> dict[str, str]:
    """Return the variables with the trace of the task, if it has one."""
    headers: dict[str, str] = {}
    trace.inject(headers)
    # Without OpenTelemetry they are the caller's own words, and scripts do not always quote their variables.
    if not _TRACEPARENT.fullmatch(headers.get("traceparent", "")):
        return {}
    sizes = {name: len(headers.get(name, "")) for name in trace.HEADERS}
    usable = (name for name, size in sizes.items() if 0 < size <= MAX_TRACE_BYTES and headers[name].isprintable())
    return {name.upper(): headers[name] for name in usable}


def program_spec(
    command: str | Sequence[str] | None,
    *,
    input: str = "stdin",
    output: str = "text",
    profile: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | Sequence[str] | None = None,
    limits: ProgramLimits | Mapping[str, Any] | None = None,
) -> ProgramSpec:
    """Build the spec of a program from user settings.

    Raises:
        ConfigError: a setting is invalid, or callers could choose or write the code that runs.
    """
    from dragoman.agents.process.profiles import profile as profile_of

    profile_spec = None if profile is None else profile_of(profile)
    if input not in ("stdin", "interactive"):
        raise ConfigError(f"input: `{input}` is neither stdin nor interactive; for an argument, write {PROMPT} into it")
    if output not in ("text", "jsonl"):
        raise ConfigError(f"output: `{output}` is neither text nor jsonl")
    if profile_spec is not None and (input, output) != ("stdin", "text"):
        raise ConfigError(f"the profile `{profile}` knows the program's input and output: leave input and output out")
    words: Sequence[str] = () if command is None else split_command(command)
    if not words and profile_spec is not None:
        words = profile_spec.command
    if not words:
        raise ConfigError('a command is a text or a list of words, as in "my-agent --flag"')
    if input == "interactive" and any(PROMPT in word for word in words):
        raise ConfigError(f"an interactive program gets its prompts as lines: leave {PROMPT} out")
    folder = None if cwd is None else expand_home(cwd).absolute()
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"cwd: there is no folder {folder}")
    variables = environment_of(env)
    words = resolve_paths(words, Path.cwd(), files=folder is None)
    check_command(words, folder or Path.cwd(), variables.get("PATH"))
    return ProgramSpec(
        command=tuple(words),
        input=input,
        output=output,
        profile=profile_spec,
        cwd=folder,
        env=variables,
        limits=limits_of(limits),
    )


def _takes_hyphens(command: Sequence[str]) -> bool:
    """Return True if a prompt with a leading hyphen is no option: it is part of a longer word, or follows `--`."""
    positions = [at for at, word in enumerate(command) if word.startswith(PROMPT)]
    return not positions or (not is_launcher(command[0]) and all(at and command[at - 1] == "--" for at in positions))
