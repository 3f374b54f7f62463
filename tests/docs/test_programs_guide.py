"""docs/guides/programs.md tells of every limit, profile and variable of programs that the code has, and of no other."""

from __future__ import annotations

import re

from docs.tables import code, page, rows

from dragoman.agents.process.profiles import PROFILES, profile
from dragoman.agents.process.spec import INHERITED, ProgramLimits
from dragoman.compat.remote.budget import COOLDOWN_MS, MAX_AGENTS, MAX_CALLS
from dragoman.compat.sessions.invocation_guard import MAX_DEPTH, PER_MINUTE

GUIDE = "guides/programs.md"
PROFILE = ("profile", "runs", "of the server's environment it also gets, where set")


def test_the_limits_are_those_there_are_with_their_defaults() -> None:
    shown = {
        code(name)[0]: float(default) for name, default, _ in rows("limit", "default", "when it is reached", of=GUIDE)
    }
    assert shown == {name: float(getattr(ProgramLimits(), name)) for name in ProgramLimits.__struct_fields__}


def test_the_profiles_are_those_there_are_with_their_commands() -> None:
    shown = {code(name)[0]: code(command)[0] for name, command, _ in rows(*PROFILE, of=GUIDE)}
    assert shown == {name: " ".join(profile(name).command) for name in PROFILES}


def test_the_variables_that_a_profile_passes_on_are_really_passed_on() -> None:
    for name, _, variables in rows(*PROFILE, of=GUIDE):
        known = profile(code(name)[0]).env
        assert set(code(variables)) <= set(known), name
        assert "and others" in variables or "usual providers" in variables or set(code(variables)) == set(known), name


def test_the_variables_of_every_program_are_those_there_are() -> None:
    shown = rows("variable", "", of=GUIDE)
    assert tuple(code(shown[0][0])) == INHERITED


def test_the_limits_of_agents_that_call_agents_are_those_there_are() -> None:
    shown = {
        code(name)[0]: int(default) for name, default, _ in rows("environment of the server", "default", "", of=GUIDE)
    }
    assert shown == {"A2A_MAX_DEPTH": MAX_DEPTH, "A2A_RATE_PER_MINUTE": PER_MINUTE}


def test_the_reference_has_the_same_and_those_of_a_budget() -> None:
    shown = {name: int(default) for name, default in re.findall(r"^\| `(A2A_\w+)` \| (\d+) \|", page(), re.MULTILINE)}
    assert shown == {
        "A2A_MAX_DEPTH": MAX_DEPTH,
        "A2A_RATE_PER_MINUTE": PER_MINUTE,
        "A2A_SESSION_MAX_CALLS": MAX_CALLS,
        "A2A_SESSION_MAX_AGENTS": MAX_AGENTS,
        "A2A_SESSION_COOLDOWN_MS": COOLDOWN_MS,
    }
