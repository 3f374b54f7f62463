"""Session tasks over HTTP: `/a2a/tasks/send`, `/a2a/tasks/{id}`, and agents under `/api/agents/{id}`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from support.session_programs import SessionPrograms

from dragoman import Agent, User
from dragoman.agents.process.run import SessionRuns
from dragoman.compat.remote import invoke_remote_agent
from dragoman.model.error import Unauthenticated
from dragoman.server.agent.base import Backend
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings
from dragoman.testing import Clock, served

SEND, NOT_FOUND = "/a2a/tasks/send", {"error": "Task not found"}
NO_AGENT = {"error": "Agent with default project not found", "code": "NOT_FOUND"}


class Site:
    """Agents behind one address, in this process and on time that stands still."""

    def __init__(self, *agents: Agent, **settings: Any) -> None:
        self.clock = Clock()
        keywords = {"store": "memory:", "drain": 0, **settings}
        loaded = load_settings(keywords, environ={}, config=None, cwd=Path.cwd())
        self.app = build(agents, loaded, clock=self.clock)
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://test")

    async def send(self, message: str = "Hello", path: str = SEND, **params: Any) -> Any:
        response = await self.http.post(path, json={"params": {"message": message, **params}})
        assert response.status_code == 200, response.text
        return response.json()

    async def get(self, task: Any, prefix: str = "") -> Any:
        response = await self.http.get(f"{prefix}/a2a/tasks/{task['id']}")
        assert response.status_code == 200, response.text
        return response.json()

    async def rpc(self, method: str, params: Any, path: str = "/") -> Any:
        answer = await self.http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return answer.json()["result"]

    async def quiet(self) -> None:
        await self.clock.advance(0)

    async def close(self) -> None:
        await self.http.aclose()
        await self.app.stop()


@pytest.fixture
async def site() -> AsyncIterator[Callable[..., Site]]:
    opened: list[Site] = []

    def make(*agents: Agent, **settings: Any) -> Site:
        opened.append(Site(*agents, **settings))
        return opened[-1]

    yield make
    for each in opened:
        await each.close()


@pytest.fixture
def programs() -> SessionPrograms:
    return SessionPrograms()


def program_agent(name: str, programs: SessionPrograms, project: str | None = "p") -> Agent:
    runs = SessionRuns(programs, agent_id=name, project_id=project)
    backend = Backend(runs.run, prepare=runs.prepare, canceled=runs.canceled)
    agent = Agent(name, backend, description="Runs a program")
    agent.default_project_id = project
    return agent


def plain_agent(name: str = "plain", project: str | None = None) -> Agent:
    agent = Agent(name, description="Says it again", version="1.2.3")
    agent.default_project_id = project

    @agent.skill(tags=["talk"])
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @agent.skill
    async def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    return agent


def words(task: Any) -> list[str]:
    return [message["parts"][0]["text"] for message in task["messages"] if message["role"] == "agent"]


# -- a task --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-2", "S3-5", "S3-6", "S3-44", "S3-60")
async def test_a_message_is_sent_and_its_task_polled_until_the_program_has_ended(site: Any, programs: Any) -> None:
    at = site(program_agent("ada", programs))
    task = await at.send("Hello")
    assert list(task) == ["id", "state", "messages", "sessionId", "createdAt", "updatedAt"]
    assert task["state"] == "working"
    assert task["messages"] == [{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
    assert str(UUID(task["id"])) == task["id"]
    for time in (task["createdAt"], task["updatedAt"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    [(session, _, _)] = programs.started
    assert (session.id, session.source, session.project_id) == (task["sessionId"], "agent", "p")
    assert await at.get(task) == task
    programs.emit(session.id, type="assistant", message={"content": "Hi there"})
    programs.emit(session.id, type="session_exited")
    await at.quiet()
    ended = await at.get(task)
    assert (ended["state"], words(ended)) == ("completed", ["Hi there"])


async def test_a_skill_the_agent_has_is_used(site: Any) -> None:
    at = site(plain_agent(project="p"))
    task = await at.send("Hello", skill="shout")
    await at.quiet()
    assert words(await at.get(task)) == ["HELLO"]


async def test_a_task_is_the_same_in_every_other_dialect(site: Any) -> None:
    at = site(plain_agent(project="p"))
    task = await at.send("Hello")
    await at.quiet()
    modern = await at.rpc("GetTask", {"id": task["id"]})
    assert modern["artifacts"][0]["parts"] == [{"text": "Hello"}]
    assert (await at.rpc("tasks/get", {"id": task["id"]}))["status"]["state"] == "completed"
    assert [each["id"] for each in (await at.rpc("ListTasks", {}))["tasks"]] == [task["id"]]


@pytest.mark.requirement("S3-66")
async def test_after_a_restart_the_route_knows_no_task_of_before(site: Any, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    first = site(plain_agent(project="p"), store=store)
    task = await first.send()
    await first.app.stop()
    second = site(plain_agent(project="p"), store=store)
    response = await second.http.get(f"/a2a/tasks/{task['id']}")
    assert (response.status_code, response.json()) == (404, NOT_FOUND)
    assert (await second.rpc("GetTask", {"id": task["id"]}))["id"] == task["id"]


# -- what is refused -----------------------------------------------------------------------------------------------


REQUIRED = "Validation failed: : message is required (either at top-level or inside params)"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "Invalid JSON body"),
        (b"", "Invalid JSON body"),
        (b"{}", REQUIRED),
        (b'{"message":"Hi","timeoutMs":999}', "Validation failed: timeoutMs: must be from 1000 to 600000"),
        (b'{"message":"Hi","timeoutMs":1000.5}', "Validation failed: timeoutMs: must be a whole number"),
    ],
)
async def test_a_wrong_body_is_answered_with_400_and_what_is_wrong(site: Any, content: bytes, text: str) -> None:
    at = site(plain_agent(project="p"))
    response = await at.http.post(SEND, content=content, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()) == (400, {"error": text})


@pytest.mark.requirement("S3-24", "S3-50")
async def test_the_first_agent_with_a_project_gets_the_task_and_without_one_none_does(site: Any) -> None:
    none, first, second = plain_agent("none"), plain_agent("first", "p1"), plain_agent("second", "p2")
    at = site(none, first, second)
    task = await at.send()
    await at.quiet()
    assert (await at.rpc("GetTask", {"id": task["id"]}, "/agents/first"))["id"] == task["id"]
    lonely = site(plain_agent())
    response = await lonely.http.post(SEND, json={"message": "Hi"})
    assert (response.status_code, response.json()) == (404, NO_AGENT)
    response = await lonely.http.get("/a2a/tasks/none")
    assert (response.status_code, response.json()) == (404, NOT_FOUND)


@pytest.mark.requirement("S3-60")
@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", SEND, "POST"), ("DELETE", SEND, "POST"), ("POST", "/a2a/tasks/x", "GET"), ("PUT", "/a2a/tasks/x", "GET")],
)
async def test_other_methods_are_not_allowed(site: Any, method: str, path: str, allow: str) -> None:
    response = await site(plain_agent(project="p")).http.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)


async def test_an_internal_error_reveals_nothing(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at = site(plain_agent(project="p"))

    async def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("dragoman.compat.sessions.registry.TaskRegistry.send", broken)
    response = await at.http.post(SEND, json={"message": "Hi"})
    assert response.status_code == 500
    assert response.json() == {"error": "Internal server error", "timestamp": "2027-01-15T08:00:00.000Z"}


@pytest.mark.parametrize("headers", [{}, {"x-source-agent": "ada"}])
async def test_a_chain_of_agents_is_at_most_three_long(site: Any, headers: Any) -> None:
    at = site(plain_agent(project="p"))
    fine = await at.http.post(SEND, json={"message": "Hi", "depth": 3}, headers=headers)
    assert fine.status_code == 200
    deep = await at.http.post(SEND, json={"params": {"message": "Hi", "depth": 4}}, headers=headers)
    assert deep.status_code == 400
    assert deep.json() == {"error": "Invocation depth limit exceeded.", "code": "VALIDATION_ERROR"}


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"x-source-agent": "ada"}, {}),
        ({"x-source-agent": "ada"}, {"sourceAgent": " "}),
        ({}, {"sourceAgent": "ada"}),
        ({}, {"params": {"sourceAgent": "ada"}}),
    ],
)
async def test_an_agent_may_send_five_tasks_a_minute(site: Any, headers: Any, body: Any) -> None:
    at = site(plain_agent(project="p"))
    for _ in range(5):
        assert (await at.http.post(SEND, json={"message": "Hi", **body}, headers=headers)).status_code == 200
    response = await at.http.post(SEND, json={"message": "Hi", **body}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (429, "RATE_LIMITED")
    assert int(response.headers["retry-after"]) > 0
    await at.clock.advance(60)
    assert (await at.http.post(SEND, json={"message": "Hi", **body}, headers=headers)).status_code == 200


async def whoever(request: Any) -> User:
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not name:
        raise Unauthenticated("say who you are")
    return User(name)


async def test_a_stranger_gets_a_challenge(site: Any) -> None:
    at = site(plain_agent(project="p"), auth=whoever)
    for response in (await at.http.post(SEND, json={"message": "Hi"}), await at.http.get("/a2a/tasks/x")):
        assert (response.status_code, response.json()) == (401, {"error": "Authentication required"})
        assert response.headers.get_list("www-authenticate") == ["Bearer"]


async def test_a_foreign_page_may_not_send_a_task(site: Any) -> None:
    at = site(plain_agent(project="p"))
    response = await at.http.post(SEND, json={"message": "Hi"}, headers={"origin": "https://evil.example"})
    assert (response.status_code, response.json()["code"]) == (403, "AUTHORIZATION_ERROR")


# -- agents by their ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/agents/second", "/api/agents/second"])
async def test_an_agent_has_the_same_routes_under_its_name(site: Any, prefix: str) -> None:
    at = site(plain_agent("first", "p"), plain_agent("second"))
    task = await at.send("Hello", prefix + SEND)
    await at.quiet()
    assert words(await at.get(task, prefix)) == ["Hello"]
    # At the root all tasks are known, and elsewhere those of that agent.
    assert await at.get(task) == await at.get(task, prefix)
    assert (await at.http.get(f"/agents/first/a2a/tasks/{task['id']}")).status_code == 404


async def test_an_agent_is_invoked_and_called_under_its_id(site: Any) -> None:
    at = site(plain_agent("first", "p"), plain_agent("second one"))
    task = await at.send("Hello", "/api/agents/second%20one/invoke")
    await at.quiet()
    assert words(await at.get(task)) == ["Hello"]
    sent = await at.rpc("GetTask", {"id": task["id"]}, "/api/agents/second%20one")
    assert sent["id"] == task["id"]
    assert (await at.http.get("/api/agents/first/invoke")).status_code == 405
    assert (await at.http.post("/invoke", json={"message": "Hi"})).status_code == 404


@pytest.mark.parametrize("path", ["", "/invoke", "/agent-card", "/a2a/tasks/send"])
async def test_an_unknown_agent_is_not_found(site: Any, path: str) -> None:
    response = await site(plain_agent()).http.post(f"/api/agents/no%20body{path}", json={"message": "Hi"})
    assert (response.status_code, response.json()) == (404, {"error": "Agent no body not found", "code": "NOT_FOUND"})


# -- cards ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-3", "S3-36", "S3-63")
async def test_the_instance_has_a_card_from_the_start(site: Any) -> None:
    tools = ["corvid_save_memory", "count_words"]
    at = site(Agent.from_command(["cat"], name="ada", description="Counts", tools=tools))
    card = (await at.http.get("/.well-known/agent-card.json")).json()
    assert (card["name"], card["description"]) == ("ada", "Counts")
    assert card["url"].startswith("http://test")
    assert card["authentication"] == {"schemes": []}
    assert [(skill["id"], skill["name"]) for skill in card["skills"]] == [
        ("corvid_save_memory", "Save Memory"),
        ("count_words", "Count Words"),
    ]
    endpoints = {each["protocol"]: each["endpoint"] for each in card["supportedProtocols"]}
    assert endpoints == {"A2A": f"http://test{SEND}", "HTTP": "http://test/api"}
    # What it says is true.
    sent = await at.http.post(endpoints["A2A"], json={"message": "Hi"})
    assert sent.status_code == 200
    own = await at.http.get(f"{endpoints['HTTP']}/agents/ada/agent-card")
    assert [skill["id"] for skill in own.json()["skills"]] == tools


@pytest.mark.requirement("S3-63")
async def test_the_card_names_the_schemes_of_the_server(site: Any, programs: Any) -> None:
    at = site(program_agent("ada", programs), auth="bearer")
    card = (await at.http.get("/.well-known/agent-card.json")).json()
    assert card["authentication"] == {"schemes": ["Bearer"]}


async def test_only_agents_that_get_session_tasks_have_the_members_of_an_instance(site: Any) -> None:
    for project, members in ((None, False), ("p", True)):
        at = site(plain_agent("first", project))
        card = (await at.http.get("/.well-known/agent-card.json")).json()
        assert ("authentication" in card, "supportedProtocols" in card) == (members, members)
    pure = site(plain_agent("first", "p"), card_version="1.0")
    card = (await pure.http.get("/.well-known/agent-card.json")).json()
    assert not {"authentication", "supportedProtocols"} & card.keys()


@pytest.mark.requirement("S3-58", "S3-59", "S3-61")
async def test_the_card_of_an_agent_is_under_its_id(site: Any) -> None:
    agent = plain_agent("second", "p")
    agent.persona, agent.skill_bundles = {"archetype": "scholar"}, ("a", "b")
    at = site(plain_agent("first"), agent)
    response = await at.http.get("/api/agents/second/agent-card")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["cache-control"].replace(" ", "") == "public,max-age=300"
    card = response.json()
    assert response.text == json.dumps(card, indent=2)
    assert card["name"] == "second"
    assert card["description"] == "Says it again | Archetype: scholar | Skills: a, b"
    assert card["url"] == "http://test/api/agents/second"
    assert card["version"] == "1.2.3"
    assert card["capabilities"]["streaming"] is True
    assert (card["skills"][0]["id"], card["skills"][0]["tags"]) == ("echo", ["talk"])
    endpoints = {each["protocol"]: each["endpoint"] for each in card["supportedProtocols"]}
    assert endpoints == {"A2A": card["url"] + SEND, "HTTP": card["url"] + "/invoke"}
    # What it says is true.
    sent = await at.http.post(endpoints["HTTP"], json={"message": "Hi"})
    assert sent.status_code == 200


async def test_a_card_that_is_known_is_not_sent_again(site: Any) -> None:
    at = site(plain_agent("ada"))
    path = "/api/agents/ada/agent-card"
    tag = (await at.http.get(path)).headers["etag"]
    again = await at.http.get(path, headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert (await at.http.post(path)).status_code == 405
    assert (await at.http.options(path, headers={"origin": "https://page.example"})).status_code == 204


async def test_the_card_of_an_agent_is_public_although_its_tasks_are_not(site: Any) -> None:
    at = site(plain_agent("ada", "p"), auth=whoever)
    assert (await at.http.get("/api/agents/ada/agent-card")).json()["authentication"] == {"schemes": []}
    assert (await at.http.post("/api/agents/ada/invoke", json={"message": "Hi"})).status_code == 401


# -- both halves ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-1", "S3-2", "S3-13")
async def test_the_client_of_the_document_talks_to_its_server() -> None:
    with served(plain_agent(project="p")) as url:
        result = await invoke_remote_agent(url, "Hello", skill="shout")
    assert (result.success, result.response_text) == (True, "HELLO")


# -- a life --------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_when_the_server_has_stopped(site: Any, programs: Any) -> None:
    at = site(program_agent("ada", programs), limits={"request_timeout": 0})
    task = await at.send()
    sending = asyncio.create_task(at.send())
    await at.quiet()
    await sending
    await at.app.stop()
    await at.quiet()
    assert at.clock.pending == 0
    assert programs.callbacks[task["sessionId"]] == []
