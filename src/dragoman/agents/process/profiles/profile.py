"""A profile: how a well-known command-line agent is called, and what its output means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, Literal, Protocol

from msgspec import Struct

from dragoman.agents.process.events import Event

# It becomes an argument of a command: it must not look like an option, nor like a path elsewhere.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)


def conversation_id(value: Any) -> str | None:
    """The value if it can be put on a command line; None when it is anything else."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


PROMPT = "{prompt}"
SESSION = "{session}"


class LineReader(Protocol):
    """Reads what one run of a program writes to its standard output."""

    def feed(self, line: bytes) -> Iterable[Event]:
        """What a line says. One that is no JSON object, or of a type that is not known, says nothing."""
        ...

    def close(self) -> Iterable[Event]:
        """The output has ended. What the program said last is its answer if it has not given one, nor failed."""
        ...


class Profile(Struct, frozen=True, kw_only=True):
    """A command-line agent that can be run without a terminal.

    `command` is what is run unless the user has a command of their own; the prompt comes on standard input where it
    holds no `{prompt}`. `resume` are the arguments that go on with an earlier conversation and hold `{session}`;
    `place` is where they belong: options at the `end`, a subcommand of the `program`, or one that is followed by the
    `prompt`. `env` names the variables that are passed on from the server's environment where they are set. `reader`
    makes a reader for a run.
    """

    name: str
    title: str
    command: tuple[str, ...]
    reader: Callable[[], LineReader]
    resume: tuple[str, ...] = ()
    place: Literal["end", "program", "prompt"] = "end"
    env: tuple[str, ...] = ()

    def argv(self, command: Sequence[str] | None, remembered: str | None) -> tuple[str, ...]:
        """The command to run; with `remembered` it goes on with that conversation."""
        words = tuple(command or self.command)
        session = conversation_id(remembered)
        # A user who names a conversation in the command wants that one.
        if session is None or not self.resume or any(word.split("=")[0] == self.resume[0] for word in words):
            return words
        return self.add_resume(words, session)

    def add_resume(self, words: tuple[str, ...], session: str) -> tuple[str, ...]:
        """A command with the arguments that go on with a conversation, where its program looks for them."""
        more = tuple(word.replace(SESSION, session) for word in self.resume)
        if self.place == "program":
            named = [at for at, word in enumerate(words) if PurePath(word).name == self.command[0]]
            after = named[0] + 1 if named else 1
            return (*words[:after], *more, *words[after:])
        # What stands behind `--` is no option, and may be anything.
        end = words.index("--") if "--" in words else len(words)
        options, rest = words[:end], words[end:]
        if self.place == "prompt":
            prompts = tuple(word for word in options if word == "-" or (PROMPT in word and word[0] != "-"))
            options = tuple(word for word in options if word not in prompts)
            rest = (*prompts, *rest) or ("-",)
        return (*options, *more, *rest)
