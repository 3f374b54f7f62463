"""The servers of the contract, and a caller for each binding in each version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx2
import pytest
from contract.bindings.agent import Gates, make_agent
from contract.bindings.caller import CALLERS, Caller, Site
from contract.bindings.deviations import LACKS

from dragoman import Agent, User
from dragoman.auth.inbound.scheme import InboundRequest
from dragoman.errors import Unauthenticated
from dragoman.testing import served

SECONDS = 10


@contextmanager
def site(http: httpx2.Client, agent: Agent, **settings: object) -> Iterator[Site]:
    """A server over every binding. Heartbeats are frequent and long polls short, because nobody sleeps here."""
    given = {"heartbeat": 0.05, "long_poll": 5, "drain": 0, "grpc": 0, **settings}
    with served(agent, **given) as url:  # pyright: ignore[reportArgumentType] - settings by name
        there = Site(http, url)
        yield there
        there.close()


@pytest.fixture(scope="session")
def http() -> Iterator[httpx2.Client]:
    """One client of HTTP for all callers; it follows no redirects, so that one would be seen."""
    with httpx2.Client(timeout=SECONDS, follow_redirects=False, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def gates() -> Gates:
    """The gates of the skill `gated`."""
    return Gates()


@pytest.fixture(scope="package")
def house(http: httpx2.Client, gates: Gates) -> Iterator[Site]:
    """The server that all tests share whose settings do not matter."""
    with site(http, make_agent(gates)) as there:
        yield there


async def by_name(request: InboundRequest) -> User:
    """A caller who says a name is that user; vera may open the vault."""
    name = request.headers.get("x-name")
    if name is None:
        raise Unauthenticated
    return User(name, permissions=frozenset({"vault-key"}) if name == "vera" else frozenset())


@pytest.fixture(scope="package")
def named(http: httpx2.Client) -> Iterator[Site]:
    """A server whose callers say who they are, with a skill that not everybody may use."""
    agent = make_agent(name="named")

    @agent.skill(permission="vault-key")
    def empty_vault() -> str:
        """Take everything out."""
        return "empty"

    with site(http, agent, auth=by_name) as there:
        yield there


@pytest.fixture(scope="package")
def tight(http: httpx2.Client) -> Iterator[Site]:
    """A server of narrow limits, some of them for each user."""
    limits = {"parts": 3, "nesting": 12, "caller_tasks": 1, "caller_streams": 1, "body": 20_000}
    with site(http, make_agent(name="tight"), auth=by_name, limits=limits) as there:
        yield there


@pytest.fixture(scope="package")
def hurried(http: httpx2.Client) -> Iterator[Site]:
    """A server at which each user has three requests."""
    with site(http, make_agent(name="hurried"), auth=by_name, limits={"rate": 0.01, "burst": 3}) as there:
        yield there


@pytest.fixture(scope="package")
def demanding(http: httpx2.Client) -> Iterator[Site]:
    """A server whose agent requires an extension."""
    agent = make_agent(name="demanding", extensions=[{"uri": "https://example.com/x", "required": True}])
    with site(http, agent) as there:
        yield there


@pytest.fixture
def caller(house: Site, request: pytest.FixtureRequest) -> Caller:
    """A caller of the shared server."""
    return house.caller(request.param)


@pytest.fixture
def reader(house: Site) -> Caller:
    """Another caller of the shared server, who sees what a row cannot see by itself."""
    return house.caller("1.1-rpc")


@pytest.fixture
def opened(http: httpx2.Client) -> Iterator[Callable[..., Site]]:
    """Opens servers with settings of their own."""
    with ExitStack() as stack:
        yield lambda agent=None, **settings: stack.enter_context(site(http, agent or make_agent(), **settings))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): what a conversation needs; see LACKS in deviations.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have every conversation over every binding, except those that lack what it needs."""
    if "caller" in metafunc.fixturenames:
        needed = [name for mark in metafunc.definition.iter_markers("needs") for name in mark.args]
        lacking = {name for need in needed for name in LACKS[need].callers}
        metafunc.parametrize("caller", [name for name in CALLERS if name not in lacking], indirect=True)
