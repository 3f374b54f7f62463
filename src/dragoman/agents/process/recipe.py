"""How a program is called: its command, what it is given, where and in what surroundings it runs."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from dragoman.agents.command import environment_of, is_launcher, name_of_command
from dragoman.agents.presentation import humanized
from dragoman.agents.process.command_words import PROMPT, at_home, check_words, in_place, words_of
from dragoman.agents.process.limits import Limits
from dragoman.agents.process.outputs import Output, output_of
from dragoman.model.error import ConfigError, Failed, Rejected

if TYPE_CHECKING:
    from dragoman.agents.process.profiles.profile import Profile

# What every program gets of the server's own environment; whatever else it needs is named by its owner.
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# The longest argument Linux takes.
LONGEST_ARGUMENT = 131_071


class Recipe(Struct, frozen=True, kw_only=True):
    """A command and everything around it that is the same for every session."""

    command: tuple[str, ...]
    input: Literal["stdin", "interactive"] = "stdin"
    output: Literal["text", "jsonl"] = "text"
    profile: Profile | None = None
    cwd: Path | None = None
    env: Mapping[str, str] = {}
    limits: Limits = Limits()

    @property
    def about(self) -> str:
        """What is said of the program where its owner says nothing."""
        return f"Runs {humanized(self.name) if self.profile is None else self.profile.title}"

    @property
    def by_argument(self) -> bool:
        """True when the prompt is an argument."""
        return any(PROMPT in word for word in self.command)

    @property
    def interactive(self) -> bool:
        """True when the program stays open for more."""
        return self.input == "interactive"

    @property
    def keeps_input(self) -> bool:
        """True when the program can be told something after its prompt."""
        return self.interactive or (self.by_argument and self.output == "jsonl")

    @property
    def name(self) -> str:
        """What the program is called."""
        return name_of_command(self.command) if self.profile is None else self.profile.name

    def argv(self, prompt: str, remembered: str | None = None) -> tuple[str, ...]:
        """The command for a prompt. Raises Rejected when the prompt cannot be an argument."""
        command = self.command if self.profile is None else self.profile.argv(self.command, remembered)
        if not any(PROMPT in word for word in command):
            return tuple(command)
        if "\0" in prompt:
            raise Rejected("the text holds a character (NUL) that cannot be passed to the program")
        words = tuple(word.replace(PROMPT, prompt) for word in command)
        if any(len(os.fsencode(word)) > LONGEST_ARGUMENT for word in words):
            raise Rejected(f"the text is too long for the program: it takes at most {LONGEST_ARGUMENT // 1024} KB")
        if prompt.startswith("-") and not _takes_hyphens(command):
            # The caller would be choosing the program's options.
            raise Rejected("the text may not begin with a hyphen: the program would take it for an option")
        return words

    def executable(self, name: str, cwd: Path) -> str:
        """Where the program is. Raises Failed when there is none."""
        path = self.env.get("PATH", os.environ.get("PATH", os.defpath))
        place = str(cwd / name) if os.sep in name else name
        found = shutil.which(place, path=path)
        if found is not None:
            return str(Path(found).absolute())
        # What lies there and cannot be run is told by the system, in its own words.
        if os.sep in name and Path(place).exists():
            return place
        where = "" if os.sep in name else " on PATH"
        raise Failed(f"the program cannot be started: there is no `{name}`{where}")

    def check(self) -> None:
        """See that there is such a program. Raises ConfigError."""
        name, cwd = self.command[0], self.cwd or Path.cwd()
        try:
            found = Path(self.executable(name, cwd))
        except Failed as error:
            raise ConfigError(str(error)) from None
        if found.is_dir():
            raise ConfigError(f"the program cannot be started: {found} is a folder")
        if not os.access(found, os.X_OK):
            raise ConfigError(
                f"the program cannot be started: {found} may not be run: chmod +x {shlex.quote(str(found))}"
            )

    def environment(self, facts: Mapping[str, str]) -> dict[str, str]:
        """The variables of a program: some of the server's, the owner's, and facts about its task."""
        own = {name: os.environ[name] for name in INHERITED if name in os.environ}
        if self.profile is not None:
            own |= {name: os.environ[name] for name in self.profile.env if name in os.environ}
        told = {f"DRAGOMAN_{name}": value for name, value in facts.items() if "\0" not in value}
        return own | dict(self.env) | told

    def reading(self) -> Output:
        """A fresh reader of the program's output."""
        reader = None if self.profile is None else self.profile.reader
        return output_of(self.output, interactive=self.interactive, reader=reader)


def recipe_of(
    command: str | Sequence[str] | None,
    *,
    input: str = "stdin",
    output: str = "text",
    profile: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | Sequence[str] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
) -> Recipe:
    """A recipe from what a user says. Raises ConfigError, also where callers could choose or write what is run."""
    from dragoman.agents.process.limits import limits_of
    from dragoman.agents.process.profiles import profile as profile_of

    known = None if profile is None else profile_of(profile)
    if input not in ("stdin", "interactive"):
        raise ConfigError(f"input: `{input}` is neither stdin nor interactive; for an argument, write {PROMPT} into it")
    if output not in ("text", "jsonl"):
        raise ConfigError(f"output: `{output}` is neither text nor jsonl")
    if known is not None and (input, output) != ("stdin", "text"):
        raise ConfigError(f"the profile `{profile}` knows the program's input and output: leave input and output out")
    words: Sequence[str] = () if command is None else words_of(command)
    if not words and known is not None:
        words = known.command
    if not words:
        raise ConfigError('a command is a text or a list of words, as in "my-agent --flag"')
    if input == "interactive" and any(PROMPT in word for word in words):
        raise ConfigError(f"an interactive program gets its prompts as lines: leave {PROMPT} out")
    place = None if cwd is None else at_home(cwd).absolute()
    if place is not None and not place.is_dir():
        raise ConfigError(f"cwd: there is no folder {place}")
    variables = environment_of(env)
    words = in_place(words, Path.cwd(), files=place is None)
    check_words(words, place or Path.cwd(), variables.get("PATH"))
    return Recipe(
        command=tuple(words),
        input=input,
        output=output,
        profile=known,
        cwd=place,
        env=variables,
        limits=limits_of(limits),
    )


def _takes_hyphens(command: Sequence[str]) -> bool:
    """True when a prompt that begins with a hyphen is no option: it is only a part of a word, or `--` is before it."""
    begins = [at for at, word in enumerate(command) if word.startswith(PROMPT)]
    return not begins or (not is_launcher(command[0]) and all(at and command[at - 1] == "--" for at in begins))
