"""The lines that a server says at its start."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Agent, Server
from dragoman.server.config.settings import Limits, Settings
from dragoman.server.listen.serve import _startup_lines, _warnings

SHARED = "note: without auth all callers are one: who names the same contextId goes on with the same conversation"


def said(servable: Any, **settings: Any) -> list[str]:
    return _warnings(servable, Settings(**settings), "127.0.0.1", 8080)


@pytest.mark.parametrize("options", [{"command": "bc", "input": "interactive"}, {"profile": "claude"}])
def test_who_serves_conversations_without_auth_is_told_whose_they_are(options: Any) -> None:
    agent = Agent.from_command(**options)
    assert said(agent) == [SHARED]
    assert said(Server(Agent("other"), agent)) == [SHARED]
    assert said(agent, auth=lambda request: None) == []


def test_of_agents_that_keep_no_conversations_nothing_is_said() -> None:
    assert said(Agent.from_command("cat")) == []
    assert said(Server(Agent("other"))) == []


def test_an_open_address_is_told_first() -> None:
    first, second = _warnings(Agent.from_command(profile="claude"), Settings(), "0.0.0.0", 80)
    assert first.startswith("warning: anyone who can reach 0.0.0.0:80")
    assert second == SHARED


def test_a_rate_is_told_with_how_to_turn_it_off() -> None:
    limited = Settings(limits=Limits(rate=100, burst=1000))
    line = "  rate    100 requests a second for each caller, 1000 at once: --limits-rate 0 is any number"
    assert line in _startup_lines(Agent("a"), limited, "127.0.0.1", 80)
    assert not [line for line in _startup_lines(Agent("a"), Settings(), "127.0.0.1", 80) if line.startswith("  rate")]
