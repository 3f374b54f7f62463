"""The console in a real browser: one for each process of the test run, a fresh profile for each page, and a watch."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from console.browser import DESKTOP, NO_BROWSER, View, find_browser, launch, new_profile
from console.serving import AGENTS, HOSTILE, ServedConsole
from console.watching import Outside, Watch, origin_of
from playwright.async_api import Browser, Page, async_playwright

from dragoman import Client

HERE = Path(__file__).parent
Visit = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The browser belongs to one event loop, so the tests that use it run in that one. It does not run between them,
    # so other tests have theirs.
    for item in items:
        if item.path.is_relative_to(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            # The first of them starts the browser and a server, all at once with other processes of the run.
            if item.get_closest_marker("timeout") is None and item.get_closest_marker("console") is None:
                item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    """Where everything ends up that leaves the page's own origin."""
    world = Outside()
    yield world
    world.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(outside: Outside) -> AsyncIterator[Browser]:
    """A Chromium without a window, for all tests of this process."""
    program = find_browser()
    if program is None:
        if "PROVE_ALL_REQUIREMENTS" in os.environ:
            pytest.fail(NO_BROWSER)
        pytest.skip(NO_BROWSER)
    async with async_playwright() as playwright:
        browser = await launch(playwright, program, outside=outside.port)
        yield browser
        await browser.close()


@pytest.fixture
def watch(outside: Outside) -> Iterator[Watch]:
    """What the pages of this test must not do; fails the test at its end. `watch.allow(pattern)` what is meant."""
    outside.taken()
    watched = Watch(outside)
    yield watched
    watched.verdict()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, watch: Watch, serve: object) -> AsyncIterator[Visit]:
    """Open an address in a fresh profile: `page = await visit(server.address("#/tasks"), view=PHONE, dark=True)`.

    Takes the keywords of Playwright's `new_context`, too. `also` are more origins that the page may use. Pages are
    closed before the servers of the test are stopped: whatever they ask until then is answered.
    """
    contexts: list[Any] = []

    async def visit(
        address: str, *, view: View = DESKTOP, dark: bool = False, also: tuple[str, ...] = (), **options: Any
    ) -> Page:
        context = await new_profile(browser, view=view, dark=dark, **options)
        contexts.append(context)
        await watch.add(context, origin_of(address), *also)
        page = await context.new_page()
        await page.goto(address)
        return page

    yield visit
    for context in contexts:
        await context.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServedConsole]]:
    """Start a server for one test: `server = serve(AGENTS, "--auth", "cookie")`."""
    servers: list[ServedConsole] = []

    def serve(*words: str | Path, **variables: str) -> ServedConsole:
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        servers.append(ServedConsole(folder, *words, **variables))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """The agents of `agents.py`, shared by the tests of this process: do not stop it, and expect tasks of others."""
    server = ServedConsole(tmp_path_factory.mktemp("studio"), AGENTS)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """The agents of `hostile_agents.py`, shared as `studio` is."""
    server = ServedConsole(tmp_path_factory.mktemp("hostile"), HOSTILE)
    yield server
    server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def client(studio: ServedConsole) -> AsyncIterator[Client]:
    """A client of the agent `studio`."""
    async with Client(f"{studio.url}/agents/studio") as client:
        yield client
