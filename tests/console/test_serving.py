"""The servers of these tests serve what the tests need: all agents, and all that is hostile."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest
from console.hostile import CARDS, FILES, NAMES, TEXTS
from console.serving import GUARDED, ServedConsole

pytestmark = pytest.mark.console


def fetched(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=10) as response:
        return json.load(response)


def agents_of(server: ServedConsole) -> list[str]:
    return [agent["name"] for agent in fetched(f"{server.url}/agents")["agents"]]


def test_three_agents_are_served(studio: ServedConsole):
    assert agents_of(studio) == ["studio", "library", "parrot"]
    card = fetched(f"{studio.url}/.well-known/agent-card.json")
    assert {skill["id"] for skill in card["skills"]} >= {"chat", "order", "interview", "files", "wait", "survive"}


def test_there_are_sixty_hostile_things_and_more_and_all_are_served(hostile: ServedConsole):
    assert len(TEXTS) + len(NAMES) + len(CARDS) + len(FILES) >= 60
    assert len(fetched(f"{hostile.url}/agents")["agents"]) == 2 + len(CARDS)
    for key in CARDS:
        assert fetched(f"{hostile.url}/agents/card-{key}/.well-known/agent-card.json")


def test_users_sign_in_to_the_guarded_agents(serve: Any):
    server = serve(GUARDED)
    server.users("add", "ann", "--password-stdin", "--permission", "admin", typed="correct horse battery\n")
    assert "ann" in server.users("list")
    card = fetched(f"{server.url}/.well-known/agent-card.json")
    assert [skill["id"] for skill in card["skills"]] == ["whoami"]
    cookie = server.users("cookie", "ann")
    card = fetched(f"{server.url}/.well-known/agent-card.json", Cookie=f"user={cookie}")
    assert "empty_vault" in {skill["id"] for skill in card["skills"]}


def test_a_server_is_killed_and_started_again_on_its_port(serve: Any):
    server = serve("dragoman.examples.demo")
    port = server.port
    server.kill()
    server.restart()
    assert server.port == port
    assert fetched(f"{server.url}/healthz")
