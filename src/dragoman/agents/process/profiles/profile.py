"""Profiles: how to run a command-line agent, and how to parse its output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, Literal, Protocol

from msgspec import Struct

from dragoman.agents.process.events import Event

# Passed as a command-line argument, so it must look neither like an option nor like a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)


def conversation_id(value: Any) -> str | None:
    """Return the value if it is a text that is safe as a command-line argument, else None."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


PROMPT = "{prompt}"
SESSION = "{session}"


class LineReader(Protocol):
    """Parses the standard output of one program run, line by line."""

    def feed(self, line: bytes) -> Iterable[Event]:
        """Return the events of a line; none if it is no JSON object or of an unknown type."""
        ...

    def close(self) -> Iterable[Event]:
        """Return the events at the end of the output: the last text is the answer if there was none, and no error."""
        ...


class Profile(Struct, frozen=True, kw_only=True):
    """A command-line agent that runs without a terminal.

    `command` is the default command; the prompt goes to standard input if it contains no `{prompt}`. `resume` are the
    arguments that continue an earlier conversation and contain `{session}`. `place` is where they go: options at the
    `end`, a subcommand right after the `program`, or one that precedes the `prompt`. `env` names variables that are
    passed on from the server's environment. `reader` creates a reader for one run.
    """

    name: str
    title: str
    command: tuple[str, ...]
    reader: Callable[[], LineReader]
    resume: tuple[str, ...] = ()
    place: Literal["end", "program", "prompt"] = "end"
    env: tuple[str, ...] = ()

    def argv(self, command: Sequence[str] | None, remembered: str | None) -> tuple[str, ...]:
        """Return the command line; with `remembered`, a valid conversation id, it continues that conversation."""
        words = tuple(command or self.command)
        session = conversation_id(remembered)
        # A command that names a conversation itself is left alone.
        if session is None or not self.resume or any(word.split("=")[0] == self.resume[0] for word in words):
            return words
        return self.add_resume(words, session)

    def add_resume(self, words: tuple[str, ...], session: str) -> tuple[str, ...]:
        """Insert the arguments that continue a conversation at the place where the program expects them."""
        more = tuple(word.replace(SESSION, session) for word in self.resume)
        if self.place == "program":
            named = [at for at, word in enumerate(words) if PurePath(word).name == self.command[0]]
            after = named[0] + 1 if named else 1
            return (*words[:after], *more, *words[after:])
        # Words after `--` are no options.
        end = words.index("--") if "--" in words else len(words)
        options, rest = words[:end], words[end:]
        if self.place == "prompt":
            prompts = tuple(word for word in options if word == "-" or (PROMPT in word and word[0] != "-"))
            options = tuple(word for word in options if word not in prompts)
            rest = (*prompts, *rest) or ("-",)
        return (*options, *more, *rest)
