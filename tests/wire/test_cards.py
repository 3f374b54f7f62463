"""Cards and addresses: where they are, what is on them, and that they are right behind proxies and under prefixes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from dragoman import Server
from dragoman.testing import served

PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"]
CARD = PATHS[0]

# The field tables of the specifications, by name.
KEYS_1_0 = {
    *("name", "description", "supportedInterfaces", "provider", "version", "documentationUrl", "capabilities"),
    *("securitySchemes", "securityRequirements", "defaultInputModes", "defaultOutputModes", "skills", "signatures"),
    "iconUrl",
}
REQUIRED_1_0 = {
    *("name", "description", "supportedInterfaces", "version", "capabilities"),
    *("defaultInputModes", "defaultOutputModes", "skills"),
}
KEYS_0_3 = {
    *("protocolVersion", "name", "description", "url", "preferredTransport", "additionalInterfaces", "iconUrl"),
    *("provider", "version", "documentationUrl", "capabilities", "securitySchemes", "security", "defaultInputModes"),
    *("defaultOutputModes", "skills", "supportsAuthenticatedExtendedCard", "signatures"),
}
REQUIRED_0_3 = {
    *("protocolVersion", "name", "description", "url", "version", "capabilities"),
    *("defaultInputModes", "defaultOutputModes", "skills"),
}
INTERFACE_1_0 = {"url", "protocolBinding", "protocolVersion", "tenant"}
INTERFACE_0_3 = {"url", "transport"}
CAPABILITIES_1_0 = {"streaming", "pushNotifications", "extensions", "extendedAgentCard"}
CAPABILITIES_0_3 = {"streaming", "pushNotifications", "extensions", "stateTransitionHistory"}
SKILL_1_0 = {"id", "name", "description", "tags", "examples", "inputModes", "outputModes", "securityRequirements"}
SKILL_0_3 = {"id", "name", "description", "tags", "examples", "inputModes", "outputModes", "security"}
EXTENSION = {"uri", "description", "required", "params"}


def capabilities(card: dict[str, Any]) -> dict[str, Any]:
    """What the card says it can do, without its extensions."""
    return {key: value for key, value in card["capabilities"].items() if key != "extensions"}


def urls(card: dict[str, Any]) -> set[str]:
    """Every address on a card."""
    listed = [*card.get("supportedInterfaces", ()), *card.get("additionalInterfaces", ())]
    return {each["url"] for each in listed} | ({card["url"]} if "url" in card else set())


def works(http: Any, card: dict[str, Any]) -> None:
    """Talk to the agent at every address its card names."""
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    for each in card["supportedInterfaces"]:
        if each["protocolVersion"] == "0.3":
            continue
        if each["protocolBinding"] == "JSONRPC":
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            answer = http.post(each["url"], json=body).json()["result"]
        else:
            answer = http.post(f"{each['url']}/message:send", json={"message": message}).json()
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


# -- what is on it -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-4", "S2-5", "S2-113")
@pytest.mark.parametrize("path", PATHS)
def test_the_card_is_at_both_well_known_paths_for_everybody(wire: Any, path: str) -> None:
    answer = wire.request("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    card = answer.json
    assert (card["name"], card["description"], card["version"]) == ("wire", "Answers what it is asked", "1.2.3")
    assert capabilities(card) == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}
    echo = next(skill for skill in card["skills"] if skill["id"] == "echo")
    modes = {key: ["text/plain", "application/json"] for key in ("inputModes", "outputModes")}
    assert echo == {"id": "echo", "name": "echo", "description": "Say it again.", "tags": ["wire"], **modes}
    assert card["url"] == f"{wire.url}/a2a"


@pytest.mark.parametrize("path", PATHS)
def test_the_card_is_also_below_every_address_that_it_names(wire: Any, path: str) -> None:
    # LiteLLM's gateway keeps the address of a card, and looks for the card there with every message.
    card = wire.request("GET", path).json
    for address in urls(card):
        below = wire.request("GET", address.removeprefix(wire.url) + path)
        assert (below.status, below.json) == (200, card)


@pytest.mark.requirement("S2-71")
def test_the_card_of_both_versions_holds_all_of_both(wire: Any) -> None:
    card = wire.request("GET", CARD).json
    assert set(card) >= REQUIRED_1_0 | REQUIRED_0_3
    assert set(card) <= KEYS_1_0 | KEYS_0_3
    assert card["protocolVersion"] == "0.3.0"
    spoken = {(each["protocolBinding"], each["protocolVersion"]) for each in card["supportedInterfaces"]}
    assert spoken == {(binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "1.1", "0.3")}
    assert urls(card) == {wire.url, f"{wire.url}/a2a"}


@pytest.mark.parametrize(
    ("version", "required", "keys", "parts"),
    [
        ("1.0", REQUIRED_1_0, KEYS_1_0, (INTERFACE_1_0, CAPABILITIES_1_0, SKILL_1_0)),
        ("0.3", REQUIRED_0_3, KEYS_0_3, (INTERFACE_0_3, CAPABILITIES_0_3, SKILL_0_3)),
    ],
)
def test_a_pinned_card_has_exactly_the_keys_of_its_version(
    wire: Any, new_agent: Callable[..., Any], version: str, required: set[str], keys: set[str], parts: Any
) -> None:
    with served(new_agent(extensions=["https://example.com/x"]), card_version=version) as url:
        cards = [wire.at(url).request("GET", path).json for path in PATHS]
    assert all(card == cards[0] for card in cards)
    card = cards[0]
    assert required <= set(card) <= keys
    interface, capabilities, skill = parts
    for each in (*card.get("supportedInterfaces", ()), *card.get("additionalInterfaces", ())):
        assert set(each) <= interface
    assert set(card["capabilities"]) <= capabilities
    assert set().union(*card["capabilities"]["extensions"]) <= EXTENSION
    assert {"id", "name", "description", "tags"} <= set().union(*card["skills"]) <= skill


@pytest.mark.parametrize(
    ("asked", "required", "keys"),
    [("1.0", REQUIRED_1_0, KEYS_1_0), ("1.1", REQUIRED_1_0, KEYS_1_0), ("0.3", REQUIRED_0_3, KEYS_0_3)],
)
def test_a_card_asked_for_in_a_version_has_exactly_its_keys(
    wire: Any, asked: str, required: set[str], keys: set[str]
) -> None:
    pure = wire.request("GET", CARD, headers={"A2A-Version": asked})
    assert required <= set(pure.json) <= keys
    assert urls(pure.json) == {wire.url, f"{wire.url}/a2a"}
    mixed = wire.request("GET", CARD)
    assert pure.headers["vary"] == mixed.headers["vary"] == "a2a-version"
    assert pure.headers["etag"] != mixed.headers["etag"]
    again = wire.request("GET", CARD, headers={"A2A-Version": asked, "If-None-Match": pure.headers["etag"]})
    assert again.status == 304


@pytest.mark.parametrize("asked", ["", "9.9", "latest", "0.1"])
def test_another_version_gets_the_card_of_both(wire: Any, asked: str) -> None:
    assert wire.request("GET", CARD, headers={"A2A-Version": asked}).json == wire.request("GET", CARD).json


def test_the_setting_counts_before_the_version_that_is_asked_for(wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(), card_version="0.3") as url:
        asked = wire.at(url).request("GET", CARD, headers={"A2A-Version": "1.0"})
    assert "supportedInterfaces" not in asked.json
    assert "vary" not in asked.headers


def test_the_author_s_words_are_merged_into_the_card_last(wire: Any, new_agent: Callable[..., Any]) -> None:
    words = {"iconUrl": "https://example.com/i.png", "capabilities": {"streaming": False}, "x-own": {"a": 1}}
    with served(new_agent(card=words)) as url:
        card = wire.at(url).request("GET", CARD).json
        speaker = wire.at(url).speaker("1.0-rpc")
        answer = speaker.wire.rpc("SendStreamingMessage", speaker.params("hi"))
    assert (card["iconUrl"], card["x-own"]) == ("https://example.com/i.png", {"a": 1})
    assert capabilities(card) == {"streaming": False, "pushNotifications": True, "extendedAgentCard": False}
    assert (answer.code, answer.reason) == (-32004, "UNSUPPORTED_OPERATION")


def test_a_skill_that_needs_a_permission_is_not_shown_to_strangers(wire: Any, new_agent: Callable[..., Any]) -> None:
    agent = new_agent()

    @agent.skill(permission="secrets", tags=["hidden"])
    def secret() -> str:
        return "42"

    with served(agent) as url:
        card = wire.at(url).request("GET", CARD).json
        answer = wire.at(url).speaker("1.0-rpc").send(tool="secret")
    assert "secret" not in [skill["id"] for skill in card["skills"]]
    assert answer.result["task"]["status"]["state"] == "TASK_STATE_REJECTED"


def test_every_address_on_the_card_works(wire: Any, http: Any) -> None:
    works(http, wire.request("GET", CARD).json)


# -- caching -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_a_card_may_be_kept_for_a_while_and_by_any_page(wire: Any, path: str) -> None:
    headers = wire.request("GET", path).headers
    assert headers["cache-control"] == "public, max-age=300"
    assert headers["access-control-allow-origin"] == "*"
    assert parsedate_to_datetime(headers["last-modified"])
    assert headers["etag"].startswith('"')
    assert headers["etag"].endswith('"')


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_a_card_that_is_known_is_not_sent_again(wire: Any, form: str) -> None:
    whole = wire.request("GET", CARD)
    again = wire.request("GET", CARD, headers={"If-None-Match": form.format(whole.headers["etag"])})
    assert (again.status, again.text) == (304, "")
    kept = ("etag", "last-modified", "cache-control")
    assert [again.headers[name] for name in kept] == [whole.headers[name] for name in kept]
    assert "content-length" not in again.headers


@pytest.mark.parametrize("known", ['"other"', "garbage", ""])
def test_another_card_is_sent_whole(wire: Any, known: str) -> None:
    # If-Modified-Since does not count beside it.
    headers = {"If-None-Match": known, "If-Modified-Since": formatdate(4e9, usegmt=True)}
    assert wire.request("GET", CARD, headers=headers).status == 200


@pytest.mark.parametrize(("seconds", "status"), [(0, 304), (60, 304), (-60, 200)])
def test_a_card_is_sent_when_it_is_newer_than_what_is_known(wire: Any, seconds: int, status: int) -> None:
    modified = parsedate_to_datetime(wire.request("GET", CARD).headers["last-modified"])
    since = formatdate(modified.timestamp() + seconds, usegmt=True)
    assert wire.request("GET", CARD, headers={"If-Modified-Since": since}).status == status


def test_an_unreadable_time_is_ignored(wire: Any) -> None:
    assert wire.request("GET", CARD, headers={"If-Modified-Since": "the day before yesterday"}).status == 200


@pytest.mark.parametrize("path", PATHS)
def test_head_says_the_same_without_the_body(wire: Any, path: str) -> None:
    whole, head = wire.request("GET", path), wire.request("HEAD", path)
    assert (head.status, head.text) == (200, "")
    for name in ("content-length", "content-type", "etag", "last-modified", "cache-control"):
        assert head.headers[name] == whole.headers[name]


def test_the_tag_is_that_of_the_content(wire: Any, new_agent: Callable[..., Any]) -> None:
    agent = new_agent()
    with served(agent, url="https://agents.example.com") as url:
        server = wire.at(url)
        before = server.request("GET", CARD)
        agent.skill(id="late")(lambda: "late")
        after = server.request("GET", CARD, headers={"If-None-Match": before.headers["etag"]})
    assert after.status == 200
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json["skills"][-1]["id"] == "late"


# -- addresses ---------------------------------------------------------------------------------------------------------

FORWARDED = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "agents.example.com",
    "X-Forwarded-Prefix": "/calc",
}


def card_for(app: Any, client: str, headers: dict[str, str], base: str = "http://10.0.0.9:8080") -> dict[str, Any]:
    """The card an app gives, in process, to whoever calls from that address."""

    async def ask() -> dict[str, Any]:
        transport = httpx2.ASGITransport(app, client=(client, 4711))
        async with httpx2.AsyncClient(transport=transport, base_url=base) as http:
            return (await http.get(CARD, headers=headers)).json()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("client", "headers", "base"),
    [
        ("10.1.2.3", FORWARDED, "https://agents.example.com/calc"),
        ("::ffff:10.1.2.3", FORWARDED, "https://agents.example.com/calc"),
        ("10.1.2.3", {}, "http://10.0.0.9:8080"),
        ("10.1.2.3", {"X-Forwarded-Proto": "https"}, "https://10.0.0.9:8080"),
        ("10.1.2.3", {"X-Forwarded-Prefix": "calc/"}, "http://10.0.0.9:8080/calc"),
        ("10.1.2.3", {"X-Forwarded-Host": "a.example.com, b.example.com"}, "http://a.example.com"),
        ("192.168.0.1", FORWARDED, "http://10.0.0.9:8080"),
        ("11.1.2.3", FORWARDED, "http://10.0.0.9:8080"),
        ("not an address", FORWARDED, "http://10.0.0.9:8080"),
    ],
)
def test_only_a_trusted_proxy_says_where_the_server_is(
    new_agent: Callable[..., Any], client: str, headers: dict[str, str], base: str
) -> None:
    app = new_agent().app(store="memory:", trust_proxy=["10.0.0.0/8", "fd00::/8"])
    assert urls(card_for(app, client, headers)) == {base, f"{base}/a2a"}


def test_no_proxy_is_trusted_by_default(new_agent: Callable[..., Any]) -> None:
    app = new_agent().app(store="memory:")
    assert urls(card_for(app, "127.0.0.1", FORWARDED)) == {"http://10.0.0.9:8080", "http://10.0.0.9:8080/a2a"}


@pytest.mark.parametrize("headers", [{}, FORWARDED])
@pytest.mark.parametrize("url", ["https://public.example.com/calc", "https://public.example.com/calc/"])
def test_the_url_setting_counts_before_everything(
    new_agent: Callable[..., Any], url: str, headers: dict[str, str]
) -> None:
    app = new_agent().app(store="memory:", url=url, trust_proxy=["10.0.0.0/8"])
    expected = "https://public.example.com/calc"
    assert urls(card_for(app, "10.1.2.3", headers)) == {expected, f"{expected}/a2a"}


def test_a_real_proxy_on_a_real_port(wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(), trust_proxy=["127.0.0.0/8"]) as url:
        card = wire.at(url).request("GET", CARD, headers=FORWARDED).json
    assert urls(card) == {"https://agents.example.com/calc", "https://agents.example.com/calc/a2a"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_card_names_the_host_it_was_asked_from(wire: Any, host: str) -> None:
    port = wire.url.rpartition(":")[2]
    card = wire.at(f"http://{host}:{port}").request("GET", CARD).json
    assert urls(card) == {f"http://{host}:{port}", f"http://{host}:{port}/a2a"}


# -- within another app ------------------------------------------------------------------------------------------------


def mounted(framework: str, app: Any) -> Any:
    """The app under /calc of another, whose lifespan it never hears of."""
    if framework == "starlette":
        return Starlette(routes=[Mount("/outer", routes=[Mount("/calc", app)])])
    outer = FastAPI()
    outer.mount("/outer/calc", app)
    return outer


@pytest.mark.requirement("S2-25")
@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest", "0.3-rpc", "0.3-rest", "0.1-rpc"], indirect=True)
def test_an_agent_works_under_a_prefix_of_another_app(
    speaker: Any, http: Any, new_agent: Callable[..., Any], framework: str
) -> None:
    with served(mounted(framework, new_agent().app(store="memory:"))) as url:
        base = f"{url}/outer/calc"
        card = http.get(base + CARD).json()
        assert urls(card) == {base, f"{base}/a2a"}
        works(http, card)
        there = speaker.wire.at(base).speaker(speaker.name)
        there = there if there.is_rest else there.at("/a2a")
        assert there.texts(there.send("hi")) == ["hi"]
        with there.stream(tool="count", arguments={"n": 2}) as reading:
            assert len(list(reading)) == 5
        assert http.get(f"{base}/unknown").status_code == 404
        assert http.get(f"{base}/healthz").json() == {"status": "ok"}


@pytest.mark.requirement("S2-25")
@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
@pytest.mark.parametrize("lifespan", [False, True], ids=["without-lifespan", "with-lifespan"])
def test_an_agent_works_in_process_with_and_without_a_lifespan(
    new_agent: Callable[..., Any], framework: str, lifespan: bool
) -> None:
    app = new_agent().app(store="memory:", drain=0)
    outer = app if lifespan else mounted(framework, app)
    base = "" if lifespan else "/outer/calc"
    with TestClient(outer) as client:
        assert urls(client.get(base + CARD).json()) == {f"http://testserver{base}", f"http://testserver{base}/a2a"}
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        sent = client.post(f"{base}/message:send", json={"message": message}).json()["task"]
        assert client.get(f"{base}/tasks/{sent['id']}").json() == sent
        with client.stream("POST", f"{base}/message:stream", json={"message": message}) as stream:
            assert stream.read().count(b"data: ") == 4


# -- several agents ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """Three agents behind one address."""
    with served(Server(new_agent("one"), new_agent("two"), new_agent("the third ü")), drain=0) as url:
        yield wire.at(url)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("", "one"), ("/agents/one", "one"), ("/agents/two", "two"), ("/agents/the%20third%20%C3%BC", "the third ü")],
)
def test_each_agent_has_its_own_card_and_answers_where_it_says(several: Any, http: Any, prefix: str, name: str) -> None:
    cards = [several.request("GET", prefix + path).json for path in (*PATHS, *(f"/a2a{path}" for path in PATHS))]
    assert all(card == cards[0] for card in cards)
    assert cards[0]["name"] == name
    assert urls(cards[0]) == {several.url + prefix, f"{several.url}{prefix}/a2a"}
    works(http, cards[0])


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest", "0.3-rpc", "0.3-rest", "0.1-rpc"], indirect=True)
def test_agents_do_not_see_each_other_s_tasks(speaker: Any, several: Any) -> None:
    one, two = (several.at(f"{several.url}/agents/{name}").speaker(speaker.name) for name in ("one", "two"))
    task = one.id_of(one.send(tool="ask_name"))
    assert one.state(one.get(task)) == "input-required"
    assert several.speaker(speaker.name).get(task).result["id"] == task
    for answer in (two.get(task), two.cancel(task)):
        assert answer.reason == "TASK_NOT_FOUND"
    with two.subscribe(task) as reading:
        assert reading.refusal().reason == "TASK_NOT_FOUND"


def test_agents_list_their_own_tasks(several: Any) -> None:
    two = several.at(f"{several.url}/agents/two").speaker("1.0-rest")
    tasks = {two.id_of(two.at("/acme").send("hi")) for _ in range(2)}
    assert {task["id"] for task in two.at("/acme").list().result["tasks"]} == tasks
    assert several.speaker("1.0-rest").at("/acme").list().result["tasks"] == []


# -- the rest of the server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "ready")])
def test_the_server_says_how_it_is(wire: Any, path: str, status: str) -> None:
    answer = wire.request("GET", path)
    assert (answer.status, answer.json) == (200, {"status": status})
    assert wire.request("HEAD", path).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/.well-known/agent-card.json", "GET, HEAD"),
        ("DELETE", "/.well-known/agent.json", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/readyz", "GET, HEAD"),
        ("GET", "/a2a", "POST"),
        ("HEAD", "/a2a/", "POST"),
        ("PUT", "/", "POST"),
        ("DELETE", "/a2a", "POST"),
    ],
)
def test_the_refusal_of_a_wrong_method_names_the_right_ones(wire: Any, method: str, path: str, allow: str) -> None:
    answer = wire.request(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)


@pytest.mark.requirement("S2-33", "S2-47")
@pytest.mark.parametrize("path", ["/unknown", "/registry", "/api/agents", "/.well-known/other.json"])
def test_any_other_path_is_not_found(wire: Any, path: str) -> None:
    assert wire.request("GET", path).status == 404


@pytest.mark.parametrize("path", ["/", "/a2a", "/a2a/", CARD, f"{CARD}/", "/tasks/", "/healthz/", "//", "/v1/"])
def test_no_path_redirects(wire: Any, path: str) -> None:
    for method in ("GET", "POST"):
        answer = wire.request(method, path)
        assert answer.status not in range(300, 400)
        assert "location" not in answer.headers


@pytest.mark.requirement("S2-109")
def test_no_websocket_is_needed_and_none_is_there(wire: Any, new_agent: Callable[..., Any]) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "eA=="}
    assert wire.request("GET", "/a2a", headers={**upgrade, "Sec-WebSocket-Version": "13"}).status == 405
    client = TestClient(new_agent().app(store="memory:"))
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/a2a"):
        pass
    with wire.speaker("1.0-rpc").stream("hi") as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        assert len(list(reading)) == 4
