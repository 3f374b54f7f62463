"""Saves the files of an answer: in the folder of --save, or where the user says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.printing import format_file, on_terminal, say
from dragoman.cli.talk.prompt import is_interactive, read_line
from dragoman.model.error import ConfigError
from dragoman.model.part import safe_filename
from dragoman.model.task import Task
from dragoman.telemetry.printable import format_bytes, one_line

if TYPE_CHECKING:
    from dragoman.cli.remote.session import CommandSession
    from dragoman.model.message import Message
    from dragoman.model.part import Part

HERE = Path()


def save_files(files: Sequence[Part], folder: Path) -> None:
    """Save files in a folder, which is created if needed, and print their paths to stderr. Existing files are kept.

    A file of which there is only a URL is not fetched.

    Raises:
        ConfigError: a file cannot be written.
    """
    for part in files:
        if part.raw is None:
            say("not saved: ", one_line(format_file(part)))
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = part.save(folder)
        except OSError as error:
            name = one_line(part.name or "the file")
            raise ConfigError(f"{name} cannot be saved in {folder}: {error.strerror}") from error
        say(f"saved {one_line(str(path))} ({format_bytes(len(part.raw))})")


def offer_files(session: CommandSession, answer: Task | Message) -> None:
    """Ask on the terminal whether to save the files of an answer; elsewhere print how to save them.

    Raises:
        ConfigError: a file cannot be written.
    """
    files = [part for part in answer.files if part.raw is not None]
    if not files:
        return
    if not (is_interactive() and on_terminal() and on_terminal(err=True)):
        print_save_hint(session, answer)
        return
    folder = _ask_for_folder(files)
    if folder is not None:
        save_files(files, folder)


def print_save_hint(session: CommandSession, answer: Task | Message) -> None:
    """Print to stderr how to save the files of an answer, if it has any."""
    if all(part.raw is None for part in answer.files):
        return
    if isinstance(answer, Task):
        say("save with: ", session.command_line("get", session.short_id(answer.id), "--save", "."))
    else:  # a message cannot be fetched again
        say("to save files, send with --save DIR")


def _ask_for_folder(files: Sequence[Part]) -> Path | None:
    """Ask whether and where to save files; None when they are not to be saved."""
    what = safe_filename(files[0].name) or "the file" if len(files) == 1 else f"{len(files)} files"
    while True:
        answer = (read_line(f"save {what} here? [y/N/folder] ") or "").strip()
        if answer.lower() in ("", "n", "no"):
            return None
        if answer.lower() in ("y", "yes"):
            return HERE
        with suppress(OSError, RuntimeError, ValueError):  # no name of a folder, or ~ of an unknown user
            folder = Path(answer).expanduser()
            if folder.is_dir():
                return folder
        say(f"{one_line(answer)} is not a folder: type y to save here, or Enter to skip")
