"""Profiles of popular command-line agents."""

from __future__ import annotations

import difflib

from dragoman.agents.process.profiles.codex import CODEX
from dragoman.agents.process.profiles.gemini import GEMINI
from dragoman.agents.process.profiles.messages import AMP, CLAUDE, CURSOR, QWEN
from dragoman.agents.process.profiles.opencode import OPENCODE
from dragoman.agents.process.profiles.profile import LineReader, Profile
from dragoman.model.error import ConfigError

__all__ = ["PROFILES", "LineReader", "Profile", "profile"]

_BY_NAME = {one.name: one for one in (CLAUDE, CODEX, GEMINI, OPENCODE, CURSOR, AMP, QWEN)}
# The names of all profiles.
PROFILES = tuple(_BY_NAME)


def profile(name: str) -> Profile:
    """Return a profile by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, PROFILES, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(PROFILES)}"
    raise ConfigError(f"there is no profile `{name}`; {hint}")
