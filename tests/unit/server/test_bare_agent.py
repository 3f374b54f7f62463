"""What an agent can be called."""

from __future__ import annotations

import pytest

from dragoman import Agent
from dragoman.errors import ConfigError


@pytest.mark.parametrize(
    "name", ["", "/", "a/b", ".", "..", " a", "a ", "\ta", "a\n", "a\0b", "a\x1bb", "a\x7f", "\ud800"]
)
def test_a_name_that_is_a_place_or_cannot_be_seen_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="agent"):
        Agent(name)
    if name:
        with pytest.raises(ConfigError, match="agent"):
            Agent.from_command("cat", name=name)


@pytest.mark.parametrize("name", ["a", "a b", "...", ".a", "ü%20x", "日本", "👩‍🌾", "a\\b"])
def test_any_other_name_is_one(name: str) -> None:
    assert Agent(name).name == name
