"""The cards of an agent made from MCP tools: for readers of today, for those of 0.1, and the schemas beside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest
from click.testing import CliRunner
from mcp.server import MCPServer
from pydantic import BaseModel, Field

from dragoman import Agent, Server
from dragoman.cli.main import group
from dragoman.dialects.cards.card import read_card
from dragoman.model.card import SKILL_SCHEMAS
from dragoman.testing import served

CARD, OLD_CARD, SCHEMAS = (f"/.well-known/{name}.json" for name in ("agent-card", "agent", "skill-schemas"))
PLACES = (CARD, OLD_CARD, SCHEMAS)
COMPAT: dict[str, Any] = {"compat": "tool-server"}  # the plain card of 0.1, and the cookie
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
PUBLIC = "https://agents.example.com"
OPEN_TOOLS = ("get_greeting", "current_time", "is_admin", "get_counter", "add_numbers")
PLAIN_KEYS = [
    *("name", "description", "url", "version", "capabilities", "authentication"),
    *("defaultInputModes", "defaultOutputModes", "skills"),
]


def get_greeting(name: str = "you") -> str:
    """Greet somebody."""
    return f"Hello, {name}"


def current_time() -> str:
    """What time it is."""
    return "noon"


def is_admin() -> bool:
    """Whether the caller is an admin."""
    return False


def get_counter() -> int:
    """How often something was counted."""
    return 7


def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def delete_all(sure: bool) -> str:
    """Delete everything."""
    return "gone" if sure else "kept"


def corvid_github_star_repo(repo: str) -> str:
    """Star a repository."""
    return repo


def frobnicate() -> str:
    """Does what it does."""
    return "done"


class Box(msgspec.Struct):
    size: int


class Order(BaseModel):
    item: str


def pack(box: Box) -> int:
    """Pack a box."""
    return box.size


class Address(BaseModel):
    city: str


class Parcel(Order):
    to: Address


def order(what: Order, parcels: list[Parcel]) -> str:
    """Take an order, whose schema pydantic makes."""
    return f"{what.item} {parcels}"


def seal(how: object) -> str:
    """Take what has no schema."""
    return str(how)


TOOLS = (get_greeting, current_time, is_admin, get_counter, add_numbers)


def tool_agent(*more: Callable[..., Any], **options: Any) -> Agent:
    """An agent with the five open tools and these, of a real MCP server; what deletes needs a permission."""
    server = MCPServer("tools", version="1.0.0", instructions="Five tools and more.", log_level="ERROR")
    for function in (*TOOLS, *more):
        server.add_tool(function)
    return Agent.from_mcp(server, permissions={"delete_*": "admin"}, **options)


def skills(card: Any) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


def shape(value: Any) -> Any:
    """The keys of JSON, at every depth; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in cast("dict[str, Any]", value).items()}
    return [shape(each) for each in cast("list[Any]", value)[:1]] if isinstance(value, list) else None


def link(card: Any) -> Any:
    """What the card says under the extension for schemas."""
    return next(each for each in card["capabilities"]["extensions"] if each["uri"] == SKILL_SCHEMAS)


@pytest.fixture
def door(tmp_path: Path) -> dict[str, Any]:
    """The settings of a store with Vera, who is an admin, and Bob, who is not; their cookies are in `cookies`."""
    store = f"sqlite:///{tmp_path / 't.db'}"
    environ = {name: None for name in os.environ if name.startswith("DRAGOMAN_")} | {"DRAGOMAN_SECRET": SECRET}

    def users(*args: str) -> str:
        result = CliRunner().invoke(group, ["users", *args, "--store", store], env=environ)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    users("add", "vera", "--no-password", "--permission", "admin")
    users("add", "bob", "--no-password")
    cookies = {name: {"Cookie": f"user={users('cookie', name)}"} for name in ("vera", "bob")}
    return {"settings": {"store": store, "secret": SECRET, **COMPAT}, "cookies": cookies}


@pytest.fixture(scope="module")
def tools(wire: Any) -> Iterator[Any]:
    """A server of tools that nobody needs a name for."""
    with served(tool_agent(corvid_github_star_repo, frobnicate), **COMPAT) as url:
        yield wire.at(url)


# -- the card of today -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-36", "S3-37", "S3-38")
def test_the_card_lists_every_tool_with_a_name_and_tags_for_people(tools: Any) -> None:
    card = tools.request("GET", CARD).json
    assert skills(card) == [*OPEN_TOOLS, "corvid_github_star_repo", "frobnicate"]
    shown = {skill["id"]: skill for skill in card["skills"]}
    assert shown["corvid_github_star_repo"]["name"] == "GitHub Star Repo"
    assert {"github", "git"} <= set(shown["corvid_github_star_repo"]["tags"])
    assert "general" in shown["frobnicate"]["tags"]
    assert shown["get_greeting"]["description"] == "Greet somebody."


def test_the_card_says_where_the_schemas_are(tools: Any) -> None:
    extension = link(tools.request("GET", CARD).json)
    assert extension["params"] == {"url": tools.url + SCHEMAS}
    assert not extension.get("required")
    assert extension["description"]
    schemas = tools.request("GET", SCHEMAS).json
    assert list(schemas) == [*OPEN_TOOLS, "corvid_github_star_repo", "frobnicate"]
    assert schemas["add_numbers"]["inputSchema"]["properties"]["a"]["type"] == "integer"
    assert schemas["add_numbers"]["inputSchema"]["required"] == ["a", "b"]
    assert schemas["add_numbers"]["outputSchema"]["properties"]["result"]["type"] == "integer"
    assert "annotations" not in schemas["add_numbers"]


@pytest.mark.parametrize(("given", "name"), [(None, "Kitchen-Aid"), ("mine", "mine")])
def test_the_name_on_the_card_is_the_one_that_the_server_gives_itself(
    wire: Any, tmp_path: Path, given: str | None, name: str
) -> None:
    script = tmp_path / "serve_it.py"
    script.write_text("from mcp.server import MCPServer\nMCPServer('Kitchen Aid', log_level='ERROR').run()\n")
    agent = Agent.from_mcp([sys.executable, str(script)], name=given)
    with served(agent, **COMPAT) as url:
        cards = [wire.at(url).request("GET", path).json for path in (CARD, OLD_CARD)]
    assert [card["name"] for card in cards] == [name, name]
    # Paths and tasks have a name that does not depend on whether the server could be started.
    assert agent.name == (given or "serve_it")


# -- the card of 0.1 ---------------------------------------------------------------------------------------------------


def test_the_plain_card_is_read_as_one_of_0_1_and_its_address_answers(tools: Any) -> None:
    read = read_card(tools.request("GET", OLD_CARD).json)
    assert [(each.url, each.protocol_version) for each in read.supported_interfaces] == [(f"{tools.url}/a2a", "0.1")]
    assert tools.speaker("0.1-rpc").at("/a2a").send(tool="add_numbers").status == 401  # there, only with the cookie
    speaker = tools.speaker("0.1-rpc")
    answer = speaker.send(tool="add_numbers", arguments={"a": 2, "b": 3})
    assert speaker.state(answer) == "completed"


def test_the_plain_card_has_the_address_the_settings_name(wire: Any) -> None:
    with served(tool_agent(), url="https://localhost", **COMPAT) as url:
        assert wire.at(url).request("GET", OLD_CARD).json["url"] == "https://localhost/a2a"


def test_a_function_beside_the_tools_is_listed_plainly_too(wire: Any) -> None:
    agent = tool_agent()

    @agent.skill(name="Say it loud", tags=["noise"], examples=["hi"])
    def shout(text: Annotated[str, "What to say"], times: int = 1) -> str:
        """Say it in capitals."""
        return text.upper() * times

    agent.skill(pack)
    agent.skill(order)
    agent.skill(seal)
    with served(agent, **COMPAT) as url:
        modern, plain, schemas = (wire.at(url).request("GET", path).json for path in PLACES)
    assert modern["skills"][-4]["name"] == "Say it loud"
    assert plain["skills"][-4] == {
        **{"id": "shout", "name": "shout", "description": "Say it in capitals."},
        **{"tags": [], "examples": []},
    }
    assert list(schemas) == [*OPEN_TOOLS, "shout", "pack", "order"]
    assert schemas["shout"]["inputSchema"] == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say"},
            "times": {"type": "integer", "default": 1},
        },
        "required": ["text"],
    }
    packed = schemas["pack"]["inputSchema"]
    assert packed["properties"]["box"] == {"$ref": "#/$defs/Box"}
    assert packed["$defs"]["Box"]["properties"] == {"size": {"type": "integer"}}
    ordered = schemas["order"]["inputSchema"]
    assert ordered["properties"]["what"]["properties"]["item"]["type"] == "string"
    assert ordered["properties"]["parcels"]["items"]["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert ordered["$defs"]["Address"]["properties"]["city"]["type"] == "string"


def test_the_author_s_words_count_where_the_plain_card_has_a_place_for_them(wire: Any) -> None:
    words = {
        "name": "mine",
        "iconUrl": "https://example.com/i.png",
        "capabilities": {"pushNotifications": True, "extensions": []},
        "authentication": {"schemes": ["cookie"], "credentials": "none"},
        "skills": [{"id": "only", "name": "The only one", "inputModes": ["text"]}, "nonsense"],
    }
    with served(tool_agent(card=words), **COMPAT) as url:
        card = wire.at(url).request("GET", OLD_CARD).json
    assert list(card) == PLAIN_KEYS
    assert card["name"] == "mine"
    assert card["capabilities"] == {"streaming": False, "pushNotifications": True, "stateTransitionHistory": True}
    assert card["authentication"] == {"schemes": ["cookie"]}
    only, nonsense = card["skills"]
    assert only == {"id": "only", "name": "The only one", "description": "", "tags": [], "examples": []}
    assert nonsense == {"id": "", "name": "", "description": "", "tags": [], "examples": []}


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_where_the_settings_pin_a_version_both_places_have_that_card(wire: Any, version: str) -> None:
    with served(tool_agent(), card_version=version) as url:
        modern, old, schemas = (wire.at(url).request("GET", path).json for path in PLACES)
    assert modern == old
    assert ("protocolVersion" in old) == (version == "0.3")
    assert link(old)["params"] == {"url": url + SCHEMAS}
    assert list(schemas) == list(OPEN_TOOLS)


def test_each_agent_of_a_server_has_cards_of_its_own_kind(wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(Server(new_agent("talks"), tool_agent(name="works")), **COMPAT) as url:
        at = wire.at(url)
        talks, works = f"{url}/agents/talks", f"{url}/agents/works"
        assert at.request("GET", CARD).json == at.request("GET", OLD_CARD).json
        plain = at.request("GET", f"/agents/works{OLD_CARD}").json
        extension = link(at.request("GET", f"/agents/works{CARD}").json)
        assert list(at.request("GET", f"/agents/works{SCHEMAS}").json) == list(OPEN_TOOLS)
        own = [at.request("GET", path).json for path in (SCHEMAS, f"/agents/talks{SCHEMAS}")]
        preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
        asked = [at.at(base).request("OPTIONS", SCHEMAS, headers=preflight).status for base in (talks, works)]
    assert (plain["name"], plain["url"], skills(plain)) == ("works", f"{works}/a2a", list(OPEN_TOOLS))
    assert extension["params"] == {"url": works + SCHEMAS}
    assert own[0] == own[1]
    assert "echo" in own[0]
    assert "get_greeting" not in own[0]
    assert asked == [204, 204]


# -- who sees what -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-10")
@pytest.mark.parametrize("path", PLACES)
def test_tools_that_need_a_permission_change_nothing_for_strangers(wire: Any, path: str) -> None:
    def ask(*more: Callable[..., Any]) -> Any:
        with served(tool_agent(delete_all, *more), url=PUBLIC, **COMPAT) as url:
            return wire.at(url).request("GET", path)

    def delete_more() -> str:
        return "more"

    before, after = ask(), ask(delete_more)
    assert "delete" not in before.text
    assert (before.text, before.headers["etag"]) == (after.text, after.headers["etag"])
    shown = before.json
    assert (list(shown) if path == SCHEMAS else skills(shown)) == list(OPEN_TOOLS)


@pytest.mark.requirement("S0-11", "S0-13", "S0-21")
@pytest.mark.parametrize("auth", [None, "cookie"])
def test_a_cookie_shows_the_tools_that_its_user_may_use(wire: Any, door: dict[str, Any], auth: str | None) -> None:
    settings = door["settings"] | ({"auth": auth} if auth else {})
    with served(tool_agent(delete_all), **settings) as url:
        at, cookies = wire.at(url), door["cookies"]
        public, hers, his = (
            [at.request("GET", path, headers=headers).json for path in PLACES]
            for headers in ({}, cookies["vera"], cookies["bob"])
        )
    assert public == his
    for card, more in zip(public[:2], hers[:2], strict=True):
        assert skills(card) == list(OPEN_TOOLS)
        assert skills(more) == [*OPEN_TOOLS, "delete_all"]
        assert shape(card) == shape(more)
    assert (list(public[2]), list(hers[2])) == (list(OPEN_TOOLS), [*OPEN_TOOLS, "delete_all"])
    # Also where strangers are let in beside, and the modern card therefore requires nothing.
    assert ("securityRequirements" in public[0]) == (auth == "cookie")
    assert list(public[1]) == PLAIN_KEYS
    assert public[1]["authentication"] == {"schemes": ["cookie"]}


def test_the_extended_card_has_the_schemas_of_what_the_caller_may_use(wire: Any, door: dict[str, Any]) -> None:
    with served(tool_agent(delete_all), **door["settings"]) as url:
        at = wire.at(url)
        shown = {
            name: link(at.rpc("GetExtendedAgentCard", {}, **headers).result)["params"]
            for name, headers in door["cookies"].items()
        }
        old = at.rest("GET", "/v1/card", **door["cookies"]["vera"]).result
        schemas = at.request("GET", SCHEMAS, headers=door["cookies"]["vera"]).json
    assert list(shown["bob"]["schemas"]) == list(OPEN_TOOLS)
    assert shown["vera"] == link(old)["params"] == {"schemas": schemas}


def test_a_schema_that_cannot_be_signed_is_named_on_a_signed_extended_card(wire: Any, door: dict[str, Any]) -> None:
    def huge(n: Annotated[int, Field(le=2**60)]) -> int:
        """Take a number that no signature can hold."""
        return n

    for more, member in (((), "schemas"), ((huge,), "url")):
        with served(tool_agent(delete_all, *more), sign=True, **door["settings"]) as url:
            at = wire.at(url)
            card = at.rpc("GetExtendedAgentCard", {}, **door["cookies"]["vera"]).result
            assert card["signatures"]
            assert list(link(card)["params"]) == [member]
            assert at.request("GET", CARD).json["signatures"]
            assert "signatures" not in at.request("GET", OLD_CARD).json


# -- caching -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PLACES)
def test_cards_and_schemas_may_be_cached_and_revalidated(tools: Any, path: str) -> None:
    whole, head = tools.request("GET", path), tools.request("HEAD", path)
    assert (head.status, head.text) == (200, "")
    for name in ("content-length", "content-type", "etag", "cache-control"):
        assert head.headers[name] == whole.headers[name]
    assert whole.headers["cache-control"] == "public, max-age=300"
    assert whole.headers["access-control-allow-origin"] == "*"
    again = tools.request("GET", path, headers={"If-None-Match": whole.headers["etag"]})
    assert (again.status, again.text) == (304, "")
    assert len({tools.request("GET", each).headers["etag"] for each in PLACES}) == 3


@pytest.mark.parametrize("path", PLACES)
def test_a_cached_card_is_replaced_when_a_tool_is_added(wire: Any, path: str) -> None:
    agent = tool_agent()
    with served(agent, **COMPAT) as url:
        at = wire.at(url)
        before = at.request("GET", path)
        agent.skill(id="late")(lambda: "late")
        # No date tells when a tool came, so none counts.
        asked = ({"If-None-Match": before.headers["etag"]}, {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})
        after = [at.request("GET", path, headers=headers) for headers in asked]
    assert "last-modified" not in before.headers
    assert [answer.status for answer in after] == [200, 200]
    assert all("late" in answer.text for answer in after)


@pytest.mark.parametrize("path", PLACES)
def test_the_card_of_a_known_caller_is_cached_for_no_other(wire: Any, door: dict[str, Any], path: str) -> None:
    with served(tool_agent(delete_all), **door["settings"]) as url:
        public, hers = (wire.at(url).request("GET", path, headers=who) for who in ({}, door["cookies"]["vera"]))
        known = {"If-None-Match": hers.headers["etag"]}
        stranger = wire.at(url).request("GET", path, headers=known)
    assert hers.headers["cache-control"] == "private, no-cache"
    varies = "authorization, cookie, a2a-version" if path == CARD else "authorization, cookie"
    assert public.headers["vary"] == hers.headers["vary"] == varies
    assert stranger.status == 200
    assert "delete_all" not in stranger.text
