"""`/agents` lists the agents of a server, and what is not found names the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from dragoman import Agent, Server
from dragoman.errors import BadCard
from dragoman.sync import Client
from dragoman.testing import served

CARD = "/.well-known/agent-card.json"
HOST = "http://127.0.0.1"


@pytest.fixture
def http() -> Iterator[TestClient]:
    server = Server(Agent("trip", description="Plans trips"), Agent("two words"))
    with TestClient(server.app(store="memory:"), base_url=HOST) as client:
        yield client


def test_every_agent_is_listed_with_its_address_and_its_card(http: TestClient) -> None:
    agents = http.get("/agents").json()["agents"]
    assert agents == [
        {
            "name": "trip",
            "description": "Plans trips",
            "url": f"{HOST}/agents/trip",
            "cardUrl": f"{HOST}/agents/trip{CARD}",
        },
        {
            "name": "two words",
            "description": "two words",
            "url": f"{HOST}/agents/two%20words",
            "cardUrl": f"{HOST}/agents/two%20words{CARD}",
        },
    ]
    assert [http.get(agent["cardUrl"]).json()["name"] for agent in agents] == ["trip", "two words"]
    assert (http.head("/agents").status_code, http.post("/agents").status_code) == (200, 405)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/agents/trp", f"did you mean `trip`? Its card is at {HOST}/agents/trip{CARD}"),
        (f"/agents/two%20word{CARD}", f"did you mean `two words`? Its card is at {HOST}/agents/two%20words{CARD}"),
        ("/agents/zzz", f"the agents here are listed at {HOST}/agents: trip, two words"),
        ("/", f"the agent's card is at {HOST}{CARD}"),
        ("/agents/two%20words", f"the agent's card is at {HOST}/agents/two%20words{CARD}"),
    ],
)
def test_what_is_not_there_is_answered_with_the_right_card(http: TestClient, path: str, hint: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.json()["hint"]) == (404, hint)


def test_the_list_is_as_public_as_the_cards() -> None:
    async def nobody(_: Any) -> None:
        return None

    with TestClient(Agent("trip").app(store="memory:", auth=nobody), base_url=HOST) as client:
        assert client.get(CARD).status_code == client.get("/agents").status_code == 200
        assert client.get("/agents", headers={"Host": "evil.example"}).status_code == 421


def test_a_client_passes_the_hint_on() -> None:
    with (
        served(Server(Agent("trip"), Agent("hello"))) as url,
        Client(f"{url}/agents/helo") as client,
        pytest.raises(BadCard) as caught,
    ):
        client.card()
    hint = f"The server says: did you mean `hello`? Its card is at {url}/agents/hello{CARD}"
    assert str(caught.value).endswith(hint)
