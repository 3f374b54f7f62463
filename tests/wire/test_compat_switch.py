"""The switch `compat`: the document of the tool server as a whole on any MCP server, and nothing of it without."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from dragoman import Agent
from dragoman.auth.inbound.cookie import seal_cookie
from dragoman.clock import SystemClock
from dragoman.errors import ConfigError
from dragoman.keys.ring import KeyRing
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.testing import served

CARD, OLD_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
UNKNOWN_CALLER = -31401


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def primes(below: int) -> list[int]:
    """List prime numbers."""
    return [each for each in range(2, below) if all(each % other for other in range(2, each))]


def describe(name: str) -> dict[str, Any]:
    """Say what is known of something."""
    return {"name": name, "legs": 4}


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def agent(**options: Any) -> Agent:
    """An agent made of an ordinary MCP server, whose author has never read the document."""
    server = MCPServer("words", version="2.0.0", log_level="ERROR")
    for tool in (shout, count_words, primes, describe):
        server.add_tool(tool)
    return Agent.from_mcp(server, **options)


class Door:
    """A server on a file, and the cookie of a user of it."""

    def __init__(self, wire: Any, path: Path, cookie: str) -> None:
        self.wire = wire
        self.path = path
        self.cookie = {"Cookie": f"user={cookie}"}

    def send(self, tool: str, at: str = "/a2a", *, known: bool = True, **arguments: Any) -> Any:
        part = {"type": "data", "data": {"tool": tool, "arguments": arguments}}
        params = {"message": {"role": "user", "parts": [part]}}
        return self.wire.rpc("tasks/send", params, path=at, **(self.cookie if known else {}))

    def tables(self) -> set[str]:
        with closing(sqlite3.connect(self.path)) as reader:
            return {name for (name,) in reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as reader:
            return list(reader.execute("SELECT id, user_id, state, artifacts FROM a2a_tasks ORDER BY id"))


@contextmanager
def door(wire: Any, path: Path, made: Agent, **settings: Any) -> Iterator[Door]:
    users = SqliteUsers(path)
    users.prepare()
    users.add("ada")
    account = users.account("ada")
    assert account is not None
    cookie = seal_cookie(KeyRing.from_text(SECRET), account, SystemClock())
    with served(made, store=f"sqlite:///{path}", secret=SECRET, drain=0, **settings) as url:
        yield Door(wire.at(url), path, cookie)


@pytest.mark.requirement("S0-5", "S0-21", "S0-24", "S0-48", "S0-49", "S0-57")
def test_with_the_switch_an_ordinary_mcp_server_is_the_document_s_as_a_whole(wire: Any, tmp_path: Path) -> None:
    with door(wire, tmp_path / "t.db", agent(), compat="tool-server") as here:
        refused = here.send("shout", known=False, text="hi")
        assert (refused.status, refused.code) == (401, UNKNOWN_CALLER)
        task = here.send("shout", text="hi").result
        assert task["id"].isdigit()
        assert len(task["id"]) == 13
        ((number, user, state, _),) = here.rows()
        assert (str(number), state) == (task["id"], "completed")
        assert user == 1
        card = here.wire.request("GET", OLD_CARD).json
    assert card["authentication"] == {"schemes": ["cookie"]}
    assert card["capabilities"] == {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True}
    assert [(each["id"], each["tags"]) for each in card["skills"]] == [
        (name, []) for name in ("shout", "count_words", "primes", "describe")
    ]
    assert card["url"].endswith("/a2a")


@pytest.mark.requirement("S0-55", "S0-60")
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("shout", {"text": "hi"}, "HI"),
        ("count_words", {"text": "one two three"}, "3"),
        ("primes", {"below": 12}, "[2,3,5,7,11]"),
        ("describe", {"name": "cat"}, '{"name":"cat","legs":4}'),
    ],
)
def test_what_an_ordinary_tool_gives_is_one_text(
    wire: Any, tmp_path: Path, tool: str, arguments: dict[str, Any], text: str
) -> None:
    with door(wire, tmp_path / "t.db", agent(), compat="tool-server") as here:
        task = here.send(tool, **arguments).result
        assert task["artifacts"] == [{"name": f"{tool}-result", "parts": [{"type": "text", "text": text}]}]
        assert here.wire.rpc("tasks/get", {"id": task["id"]}, path="/a2a", **here.cookie).result == task


@pytest.mark.parametrize("permissions", [None, {"describe": "admin"}], ids=["open", "with a permission"])
def test_without_the_switch_there_is_nothing_of_it(wire: Any, tmp_path: Path, permissions: Any) -> None:
    with door(wire, tmp_path / "t.db", agent(permissions=permissions)) as here:
        task = here.send("count_words", known=False, text="one two").result
        assert not task["id"].isdigit()
        assert task["artifacts"][0]["parts"][0]["metadata"] == {"structuredContent": {"result": 2}}
        assert not here.send("count_words", text="one two").result["id"].isdigit()
        assert "a2a_tasks" not in here.tables()
        cards = [here.wire.request("GET", path).json for path in (CARD, OLD_CARD)]
    assert cards[0] == cards[1]
    assert cards[0]["capabilities"]["streaming"] is True
    assert {each["url"].removesuffix("/a2a") != each["url"] for each in cards[0]["supportedInterfaces"][:1]} == {True}


def test_a_permission_makes_the_cookie_count_without_the_switch(wire: Any, tmp_path: Path) -> None:
    with door(wire, tmp_path / "t.db", agent(permissions={"shout": "admin"})) as here:
        cards = [here.wire.request("GET", CARD, headers=who).json for who in ({}, here.cookie)]
        assert [len(card["skills"]) for card in cards] == [3, 3]  # she is known, and has no permission
        assert here.wire.rpc("tasks/get", {"id": "x"}, Cookie="user=forged").status == 401


def test_the_switch_is_refused_where_no_agent_is_made_of_tools() -> None:
    plain = Agent("plain", run=lambda ctx: None)
    with pytest.raises(ConfigError, match="compat: tool-server is for agents made of MCP tools"):
        plain.app(store="memory:", compat="tool-server")
