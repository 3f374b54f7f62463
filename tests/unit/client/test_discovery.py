"""Finding an agent's card from whatever a user has, and remembering it for a while."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.clocks import SettableClock
from support.stub_server import AgentStub, Stub, card, html, reply, result, task

from dragoman import Agent, Client
from dragoman.client import cards
from dragoman.client.cards import CardCache, ResolvedCard, is_card_url
from dragoman.client.connect import SHARED_CARDS, connect
from dragoman.client.options import ClientOptions
from dragoman.dialects.cards.card import read_card
from dragoman.errors import AuthError, BadCard, BadResponse, ConfigError, Overloaded
from dragoman.testing import Clock, served

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def site(pages: dict[str, Any]) -> Any:
    """A stub with these pages and nothing else; `{url}` in them is its address."""

    def answer(got: Any) -> bytes:
        page = pages.get(got.path)
        if page is None:
            return html(404)
        if isinstance(page, bytes):
            return page
        return reply(page(stub.url) if callable(page) else page)

    stub = Stub(answer)
    return stub


def named(name: str, path: str = "/") -> Any:
    return lambda url: card((url + path, "jsonrpc"), name=name)


async def found(target: Any, **options: Any) -> str:
    async with Client(target, **options) as client:
        return (await client.card()).name


# -- what a user may give --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["{}", "{}/", " {} ", "{}?x=1", "{}/#part", "{}" + NEW, "{}/custom/card.json?v=2"])
async def test_an_address_may_be_the_base_or_the_card(spelling: str) -> None:
    async with site({NEW: named("found"), "/custom/card.json?v=2": named("found")}) as stub:
        assert await found(spelling.format(stub.url)) == "found"
        assert len(stub.got) == 1


@pytest.mark.parametrize("spelling", ["HTTP://127.0.0.1:{}", "Http://127.0.0.1:{}/"])
async def test_the_scheme_may_be_in_any_case(spelling: str) -> None:
    async with site({NEW: named("found")}) as stub:
        assert await found(spelling.format(stub.port)) == "found"


async def test_a_card_may_be_given_as_an_object_or_as_json() -> None:
    async with Stub(lambda _: html(404)) as stub:
        for given in (card((stub.url, "jsonrpc")), read_card(card((stub.url, "jsonrpc")))):
            assert await found(given) == "stub"
        assert stub.got == []
    with pytest.raises(BadCard, match="name is required"):
        Client({"url": "http://x"})
    with pytest.raises(BadCard, match="version is required"):
        Client({"name": "n", "url": "http://x"})


async def test_the_path_of_an_agent_belongs_to_its_base() -> None:
    async with site({"/agents/a" + NEW: named("a"), "/agents/b" + OLD: named("b"), NEW: named("root")}) as stub:
        assert await found(f"{stub.url}/agents/a") == "a"
        assert await found(f"{stub.url}/agents/b/") == "b"
        assert await found(stub.url) == "root"


async def test_the_older_place_is_tried_second() -> None:
    for first in (html(404), html(405), html(410), html(200), html(500), reply({"detail": "no"}, 400)):
        async with site({NEW: first, OLD: named("older")}) as stub:
            assert await found(stub.url) == "older"
            assert stub.paths() == [NEW, OLD]
    async with site({NEW: named("newer"), OLD: named("older")}) as stub:
        assert await found(stub.url) == "newer"


async def test_a_pasted_endpoint_is_found_by_the_card_at_the_root() -> None:
    async with site({NEW: named("root", "/a2a/rpc")}) as stub:
        assert await found(f"{stub.url}/a2a/rpc") == "root"
        assert await found(f"{stub.url}/a2a/rpc/") == "root"
        with pytest.raises(BadCard, match=r"there is no agent card at .*/other"):
            await found(f"{stub.url}/other")


async def test_a_card_with_a_byte_order_mark_is_read() -> None:
    async with site({NEW: reply(b'\xef\xbb\xbf {"name": "n", "version": "1", "url": "http://x"}')}) as stub:
        assert await found(stub.url) == "n"


@pytest.mark.parametrize("url", ["http://x/.well-known/agent.json", "https://x/cards/a.json?b", "http://x/a.json#b"])
def test_what_names_a_card(url: str) -> None:
    assert is_card_url(url)
    assert not is_card_url("http://x/agents/a")


@pytest.mark.parametrize(
    "target",
    [
        *("", " ", "example.org", "127.0.0.1:8080", "http://", "https://", "http:///x", "ftp://x", "http://a b", "x y"),
        *("http://[::1", "http://x:99999", "http://x:port", "http://x\\@y", "http://x\ny"),
    ],
)
def test_what_is_no_address_is_refused_at_once(target: str) -> None:
    with pytest.raises(ConfigError, match="not the address of an agent"):
        Client(target)


def test_an_address_without_a_scheme_is_corrected() -> None:
    with pytest.raises(ConfigError, match=r"write http://127\.0\.0\.1:8080"):
        Client("127.0.0.1:8080")


@pytest.mark.parametrize(
    ("shape", "binding", "version"),
    [
        (
            {"url": "http://x/", "authentication": {"schemes": ["Bearer"]}, "defaultInputModes": ["text"]},
            "JSONRPC",
            "0.1",
        ),
        ({"url": "http://x/", "protocolVersion": "0.2.5", "defaultInputModes": ["text/plain"]}, "JSONRPC", "0.2"),
        ({"url": "http://x/", "protocolVersion": "0.3.0", "preferredTransport": "HTTP+JSON"}, "HTTP+JSON", "0.3"),
        (
            {"supportedInterfaces": [{"url": "http://x/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
            "JSONRPC",
            "1.0",
        ),
    ],
)
async def test_cards_of_every_version_are_read(shape: dict[str, Any], binding: str, version: str) -> None:
    page = {"name": "any", "version": "1", "description": "", "skills": [], **shape}
    async with site({NEW: page}) as stub, Client(stub.url) as client:
        (interface,) = (await client.card()).supported_interfaces
    assert (interface.url, interface.protocol_binding, interface.protocol_version) == ("http://x/", binding, version)


# -- remembering -----------------------------------------------------------------------------------------------------


class Timed:
    """A card on a server that says how long it may be kept, asked for at times of the test's own."""

    def __init__(self, **headers: str) -> None:
        self.clock = Clock()
        self.headers = headers
        self.stub = Stub(self._answer)
        self.name = "first"

    async def __aenter__(self) -> Timed:
        await self.stub.__aenter__()
        self.connection = connect(ClientOptions(self.stub.url), self.clock)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.connection.close()
        await self.stub.__aexit__(*error)

    def _answer(self, got: Any) -> bytes:
        etag = self.headers.get("ETag")
        if etag and got.headers.get("if-none-match") == etag:
            return reply(b"", 304, "", **self.headers)
        return reply(card((self.stub.url, "jsonrpc"), name=self.name), **self.headers)

    async def at(self, seconds: float) -> str:
        """The name on the card so much later."""
        await self.clock.advance(seconds)
        return (await self.connection.card()).name

    @property
    def asked(self) -> int:
        return len(self.stub.got)


async def test_a_card_is_remembered_for_five_minutes() -> None:
    async with Timed() as site:
        assert [await site.at(0), await site.at(299), site.asked] == ["first", "first", 1]
        site.name = "second"
        assert [await site.at(1), site.asked] == ["second", 2]


async def test_a_card_with_a_tag_is_asked_after_and_not_sent_again() -> None:
    async with Timed(ETag='"1"') as site:
        assert await site.at(0) == "first"
        assert await site.at(301) == "first"
        assert site.stub.got[1].headers["if-none-match"] == '"1"'
        # That answer is good for another five minutes.
        assert [await site.at(299), site.asked] == ["first", 2]
        site.headers, site.name = {"ETag": '"2"'}, "second"
        assert [await site.at(2), site.asked] == ["second", 3]


async def test_an_answer_that_nothing_has_changed_may_leave_out_the_tag() -> None:
    def answer(got: Any) -> bytes:
        if got.headers.get("if-none-match") == '"1"':
            return reply(b"", 304, "")
        return reply(card((stub.url, "jsonrpc"), name="first"), ETag='"1"')

    clock = Clock()
    async with Stub(answer) as stub:
        connection = connect(ClientOptions(stub.url), clock)
        for _ in range(3):
            assert (await connection.card()).name == "first"
            clock.move(301)
        assert [got.headers.get("if-none-match") for got in stub.got] == [None, '"1"', '"1"']
        await connection.close()


@pytest.mark.parametrize(
    ("control", "kept"),
    [
        ("max-age=10", 10),
        ("public, MAX-AGE=10", 10),
        ('max-age="10"', 10),
        ("max-age=86400", 300),
        ("s-maxage=10", 300),
        ("private", 300),
        ("max-age=nonsense", 300),
    ],
)
async def test_a_server_says_how_long_a_card_is_kept_up_to_five_minutes(control: str, kept: int) -> None:
    async with Timed(Cache_Control=control) as site:
        await site.at(0)
        await site.at(kept - 1)
        assert site.asked == 1
        await site.at(1)
        assert site.asked == 2


@pytest.mark.parametrize("control", ["no-store", "no-cache", "max-age=0", "No-Store, max-age=60"])
async def test_a_card_that_may_not_be_kept_is_asked_for_every_time(control: str) -> None:
    async with Timed(Cache_Control=control) as site:
        assert [await site.at(0), await site.at(0), site.asked] == ["first", "first", 2]


async def test_no_cache_with_a_tag_asks_after_it_and_no_store_forgets_it() -> None:
    async with Timed(ETag='"1"', Cache_Control="no-cache") as site:
        assert [await site.at(0), await site.at(0)] == ["first", "first"]
        assert "if-none-match" in site.stub.got[1].headers
    async with Timed(ETag='"1"', Cache_Control="no-store") as site:
        assert [await site.at(0), await site.at(0)] == ["first", "first"]
        assert "if-none-match" not in site.stub.got[1].headers


async def test_an_agent_that_is_called_does_not_ask_for_its_card_again() -> None:
    async with Timed(Cache_Control="no-store") as site:
        for _ in range(3):
            with pytest.raises(BadResponse):
                await site.connection.perform(*getting())
        assert site.stub.paths("GET") == [NEW]


def getting() -> Any:
    from dragoman.model.operation import GetTaskRequest, Operation

    return Operation.GET, GetTaskRequest("t1")


def entry(name: str, url: str = "") -> ResolvedCard:
    return ResolvedCard(read_card({"name": name, "version": "1", "url": "http://x"}), b"", url or f"http://{name}")


def test_cards_that_ran_out_are_forgotten_and_there_are_never_too_many() -> None:
    clock = Clock()
    cache = CardCache(clock)
    for number in range(300):
        cache.store(str(number), entry(str(number)), "", "")
    assert len(cache) == 256
    assert cache.fresh("0") is None
    assert cache.fresh("299") is not None
    clock.move(300)
    assert cache.fresh("299") is None
    cache.store("new", entry("new"), "", "")
    assert len(cache) == 1


def test_a_tag_is_kept_for_an_hour_after_its_card_ran_out() -> None:
    clock = Clock()
    cache = CardCache(clock)
    cache.store("a", entry("a"), '"1"', "")
    clock.move(300 + 3599)
    cache._prune()  # pyright: ignore[reportPrivateUsage]
    assert cache.stale("http://a") is not None
    clock.move(1)
    cache._prune()  # pyright: ignore[reportPrivateUsage]
    assert (cache.stale("http://a"), len(cache)) == (None, 0)


def test_a_clock_that_is_set_back_makes_no_card_young() -> None:
    clock = SettableClock()
    cache = CardCache(clock)
    cache.store("a", entry("a"), "", "")
    clock.jump(-3600)
    assert cache.fresh("a") is None


def test_threads_may_share_a_cache() -> None:
    clock = Clock()
    cache = CardCache(clock)
    problems: list[Exception] = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 400):
                cache.store(str(number), entry(str(number)), '"1"', "")
                cache.stale(f"http://{number - 50}")
                cache.fresh(str(number - 1))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must see it
            problems.append(error)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert len(cache) == 256


# -- sharing ---------------------------------------------------------------------------------------------------------


async def test_clients_of_one_process_share_the_cards_that_may_be_kept() -> None:
    async with AgentStub(lambda _: html()) as stub:
        stub.card_headers = {"Cache_Control": "max-age=60"}
        assert [await found(stub.url), await found(stub.url)] == ["stub", "stub"]
        assert len(stub.got) == 1


async def test_a_card_with_nothing_but_a_tag_is_asked_after_by_the_next_client() -> None:
    async with AgentStub(lambda _: html()) as stub:
        stub.card_headers = {"ETag": '"1"'}
        async with Client(stub.url) as client:
            assert [(await client.card()).name, (await client.card()).name] == ["stub", "stub"]
        assert len(stub.got) == 1
        stub.more, stub.card_headers = {"name": "changed"}, {"ETag": '"2"'}
        assert await found(stub.url) == "changed"
        assert stub.got[1].headers["if-none-match"] == '"1"'


async def test_a_card_without_cache_control_is_kept_for_its_client_alone() -> None:
    async with AgentStub(lambda _: html()) as stub:
        async with Client(stub.url) as client:
            assert [(await client.card()).name, (await client.card()).name] == ["stub", "stub"]
        assert len(stub.got) == 1
        stub.more = {"name": "changed"}
        assert await found(stub.url) == "changed"
        assert len(SHARED_CARDS) == 0


@pytest.mark.parametrize(
    "options",
    [{"verify": False}, {"auth": "secret"}, {"headers": {"X-Tenant": "a"}}, {"interceptors": [lambda r, n: n(r)]}],
)
async def test_a_card_that_others_may_not_see_or_trust_is_not_shared(options: Any) -> None:
    async with AgentStub(lambda _: html()) as stub:
        stub.card_headers = {"Cache_Control": "max-age=60"}
        before = len(SHARED_CARDS)
        assert await found(stub.url, **options) == "stub"
        assert len(SHARED_CARDS) == before
        assert await found(stub.url) == "stub"
        assert await found(stub.url, **options) == "stub"
        assert len(stub.got) == 3


async def test_credentials_are_kept_back_from_a_card_that_is_public() -> None:
    async with AgentStub(lambda _: html()) as stub:
        await found(stub.url, auth="secret")
        assert all("authorization" not in got.headers for got in stub.got)


@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_are_shown_to_a_server_that_keeps_its_card_from_others(status: int) -> None:
    def answer(got: Any) -> bytes:
        if got.headers.get("authorization") != "Bearer secret":
            return reply({"detail": "who are you"}, status)
        return reply(card((stub.url, "jsonrpc")))

    async with Stub(answer) as stub:
        assert await found(stub.url, auth="secret") == "stub"
        assert len(stub.got) == 2
        # Without credentials there is nothing to try a second time.
        with pytest.raises(AuthError):
            await found(stub.url)
        assert len(stub.got) == 3


# -- many at once ----------------------------------------------------------------------------------------------------


async def test_a_hundred_clients_at_once_all_find_the_card() -> None:
    agent = Agent("busy")

    @agent.skill
    def echo(text: str) -> str:
        return text

    with served(agent) as url:

        async def one(number: int) -> str:
            async with Client(url) as client:
                return (await client.send(str(number))).text

        async with asyncio.timeout(30):
            assert await asyncio.gather(*(one(number) for number in range(100))) == [str(n) for n in range(100)]


async def test_a_hundred_first_calls_of_one_client_fetch_the_card_once() -> None:
    async with AgentStub(lambda got: result(got, task()), "rest") as stub:
        stub.card_headers = {"Cache_Control": "no-store"}
        async with asyncio.timeout(30), Client(stub.url) as client:
            await asyncio.gather(*(client.get_task("t1") for _ in range(100)))
        assert stub.paths("GET").count(NEW) == 1


async def test_one_caller_who_gives_up_does_not_take_the_card_from_the_others() -> None:
    go_on = asyncio.Event()

    async def answer(got: Any) -> bytes:
        await go_on.wait()
        return reply(card((stub.url + "/", "jsonrpc"))) if got.path == NEW else result(got, task())

    async with asyncio.timeout(10), Stub(answer) as stub, Client(stub.url) as client:
        calls = [asyncio.ensure_future(client.get_task("t1")) for _ in range(3)]
        while not stub.got:  # noqa: ASYNC110
            await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert [found.id for found in await asyncio.gather(*calls[1:])] == ["t1", "t1"]


async def test_a_server_at_its_limit_is_asked_again_when_it_says() -> None:
    answers = [reply({}, 429, Retry_After="7")]
    clock = Clock()
    async with Stub(lambda _: answers.pop() if answers else reply(card((stub.url, "jsonrpc")))) as stub:
        connection = connect(ClientOptions(stub.url), clock)
        waiting = asyncio.ensure_future(connection.card())
        async with asyncio.timeout(10):
            while not clock.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await clock.advance(6.9)
        assert len(stub.got) == 1
        clock.move(0.1)
        async with asyncio.timeout(10):
            assert (await waiting).name == "stub"
        answers.append(reply({}, 429))
        other = connect(ClientOptions(stub.url, retries=0), clock)
        with pytest.raises(Overloaded):
            await other.card()
        await other.close()
        await connection.close()


def test_the_well_known_places_are_those_of_the_specification() -> None:
    assert cards.WELL_KNOWN == (NEW, OLD)
