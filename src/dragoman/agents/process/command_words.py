"""The words of a command, as its owner writes them: how a text is split, and where the files are that it names."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePath

from dragoman.agents.command import is_launcher, printable
from dragoman.agents.interpreter import NODE, SHELL, Interpreter, Run, code_words, runs_of
from dragoman.model.error import ConfigError

PROMPT = "{prompt}"
# What only a shell understands, where it stands by itself.
_SIGNS = {"|", "|&", ">", "<", ">>", "<<", "<<<", "&&", "||", ";", "&", "&>", "2>", "2>&1", ">&2", "1>&2"}
# What these start is not on this machine, or sees other files.
_AWAY = {"docker", "podman", "ssh", "kubectl", "flatpak", "bwrap", "chroot"}
_SCRIPTS = {".py", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".sh", ".bash", ".rb", ".pl", ".php", ".lua"}
# Node looks for a script under these, too.
_NODE_ENDINGS = (".js", ".cjs", ".mjs", ".json")


def words_of(command: str | Sequence[str]) -> list[str]:
    """A command as words; a text is split like a shell does, and never run by one.

    Raises:
        ConfigError: it cannot be split, or has words that only a shell understands.
    """
    if not isinstance(command, str):
        return [str(word) for word in command]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"command: {error} in `{command}`") from None
    sign = next((word for word in _as_written(command, words) if word in _SIGNS), None)
    if sign is not None:
        raise ConfigError(f"command: no shell runs this, so `{sign}` means nothing: use sh -c '…', or a script")
    return words


def _as_written(command: str, words: list[str]) -> list[str]:
    """The words with their quotes: a sign in quotes is a word like any other."""
    try:
        return shlex.split(command, posix=False)
    except ValueError:  # quotes behind backslashes
        return words


def check_words(words: Sequence[str], folder: Path, path: str | None = None) -> None:
    """See that a command can be one, with paths as seen from a folder; `path` is where programs are looked for.

    Raises:
        ConfigError: it holds NUL, callers could choose or write what is run, or its script is not there.
    """
    if any("\0" in word for word in words):
        raise ConfigError("command: no word can hold the character NUL")
    script = _script(words)
    if PROMPT in words[0] or (script is not None and PROMPT in words[script.at]):
        raise ConfigError(f"command: {PROMPT} stands where a program is named: callers would choose what is run")
    if any(PROMPT in words[at] for at in code_words(words)):
        raise ConfigError(
            f"command: {PROMPT} stands in code, which callers would write then: give it as an argument of its own, as "
            f"in sh -c '… \"$1\"' x {PROMPT}, or leave it out and read standard input"
        )
    if script is not None and _found(words[script.at], folder, script.kind, path) is None:
        there = printable(str(folder / words[script.at]))
        raise ConfigError(f"command: `{words[0]}` is to run {there}, and there is no such file")


def in_place(words: Sequence[str], folder: Path, *, files: bool = True) -> list[str]:
    """The words with the paths that they name as seen from a folder: programs run in folders of their own.

    That is the program itself, where it is a path. With `files` it is also the script of an interpreter, and every word
    with a slash that is the path of a file or a folder. Other words may be called like a file by chance.

    Raises:
        ConfigError: a home folder is nobody's.
    """
    found = list(words)
    if os.sep in found[0]:
        found[0] = str(folder / at_home(found[0]))
    if not files:
        return found
    for at, word in enumerate(found[1:], 1):
        if os.sep in word and not word.startswith("-") and _exists(folder / word):
            found[at] = str(folder / word)
    script = _script(words)
    if script is not None:
        word = found[script.at]
        found[script.at] = _found(word, folder, script.kind) or str(folder / at_home(word))
    elif is_launcher(words[0]) and PurePath(words[0]).name not in _AWAY and not list(code_words(words)):
        for at, word in enumerate(found[1:], 1):
            if PurePath(word).suffix in _SCRIPTS and _exists(folder / word):
                found[at] = str(folder / word)
                break
    return found


def at_home(path: str | os.PathLike[str]) -> Path:
    """A path in which `~` is read. Raises ConfigError when it is nobody's home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"there is no home folder for {path}") from None


def _script(words: Sequence[str]) -> Run | None:
    run = next(runs_of(words), None)
    return None if run is None or run.is_code or not run.kind.sure else run


def _found(word: str, folder: Path, kind: Interpreter, path: str | None = None) -> str | None:
    """The script that a word names; None when there is none."""
    place = folder / at_home(word)
    if _exists(place) or (kind is NODE and any(_exists(Path(f"{place}{ending}")) for ending in _NODE_ENDINGS)):
        return str(place)
    # Shells look for a script as for a program.
    return word if kind is SHELL and os.sep not in word and shutil.which(word, path=path) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a word may be anything
        return False
