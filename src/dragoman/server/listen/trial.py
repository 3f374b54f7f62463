"""The commands that try an agent which has just been started; each works as it stands in a shell."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.server.config.settings import Settings

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Offer

# Where commands look for an agent that they are given no address of.
DEFAULT_ADDRESS = "http://127.0.0.1:8080"
_BARE = re.compile(r"http://([\w.-]+:\d+)")
_PLAIN = re.compile(r"[\w ,.?-]+")


class Trial(NamedTuple):
    """A first call of an agent at an address."""

    agent: Any
    settings: Settings
    base: str

    def commands(self) -> list[str]:
        """Return the commands to type, in this order."""
        return [self._call()]

    def _call(self) -> str:
        part = sample_part(self.agent)
        if "text" in part:
            return self._command("send", _quoted(part["text"]))
        arguments: dict[str, Any] = part["data"]["arguments"]
        words = [shlex.quote(_argument(name, value)) for name, value in arguments.items()]
        return self._command("call", shlex.quote(part["data"]["tool"]), *words)

    def _command(self, verb: str, *words: str) -> str:
        address = self.settings.url or self.base
        bare = _BARE.fullmatch(address)
        place = [] if address == DEFAULT_ADDRESS else [bare[1] if bare else shlex.quote(address)]
        insecure = ["--insecure"] if address.startswith("https://") and not self.settings.url else []
        return " ".join([program(), verb, *place, *words, *insecure])


def sample_part(agent: Any) -> dict[str, Any]:
    """Return a message part to try: an example of the default skill, else sample arguments for it."""
    skills: Sequence[Offer] = getattr(agent, "skills", ())
    open_skills = [skill for skill in skills if skill.permission is None] or skills
    skill = next((skill for skill in open_skills if skill.default), next(iter(open_skills), None))
    return {"text": "hello"} if skill is None else skill.sample()


def program() -> str:
    """Return what a shell in this folder has to type for `dragoman`."""
    here = Path(sys.executable).parent / "dragoman"
    on_path = shutil.which("dragoman")
    if on_path is not None and (Path(on_path) == here or not here.exists()):
        return "dragoman"
    place = here if here.exists() else Path(sys.executable)
    name = str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)
    return shlex.quote(name) if here.exists() else f"{shlex.quote(name)} -m dragoman"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else shlex.quote(text)


def _argument(name: str, value: Any) -> str:
    """Write one argument of `dragoman call`: text and numbers as they are, anything else as JSON."""
    if isinstance(value, str) or type(value) in (int, float):
        return f"{name}={'hello' if value == '' else value}"
    return f"{name}:={json.dumps(value, ensure_ascii=False)}"
