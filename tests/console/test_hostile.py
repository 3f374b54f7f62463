"""Words, names, cards, schemas and files of an agent are data: nothing of them runs, leaves the page or breaks out.

What a page must not do fails each of these tests at its end (`watching.py`); a text that is carried out would call
`pwned`, or connect to a host under `.example`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from console.browser import DESKTOP, PHONE, View
from console.driving import sideways
from console.hostile import CARDS, DATA, FILES, LARGE, NAMES, SCHEMAS, TEXTS
from console.serving import ServedConsole
from playwright.async_api import Page, Route, expect

from dragoman import Client

pytestmark = pytest.mark.console

VIEWS = [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")]


async def go(page: Page, place: str) -> None:
    """Go to a place of the console, and wait until something is there."""
    await page.evaluate("(place) => { location.hash = place }", place)
    await expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()


async def check(page: Page) -> None:
    """Nothing sticks out, nothing covers the page, the shell still works, and no prototype was changed."""
    assert await sideways(page) == []
    assert await page.evaluate("() => ({}).polluted") is None
    await expect(page.get_by_role("link", name="Dragoman").first).to_be_visible()
    brand = page.get_by_role("link", name="Dragoman").first
    assert await brand.evaluate(
        """(node) => {
          const { x, y, width, height } = node.getBoundingClientRect();
          return node.contains(document.elementFromPoint(x + width / 2, y + height / 2));
        }"""
    ), "something covers the page"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("view", VIEWS)
async def test_cards_are_data(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View):
    assert len(TEXTS) + len(NAMES) + len(CARDS) + len(FILES) >= 60
    page = await visit(hostile.console, view=view)
    for key in CARDS:
        for place in ("", "/card"):
            with subtests.test(key, place=place):
                await go(page, f"#/agents/card-{key}{place}")
                await check(page)


@pytest.mark.parametrize("view", VIEWS)
async def test_names_of_skills_are_data(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View):
    page = await visit(hostile.console, view=view)
    await go(page, "#/agents/names")
    await check(page)
    for key, name in NAMES.items():
        with subtests.test(key):
            await page.evaluate(
                "(name) => { location.hash = `#/agents/names/skills/${encodeURIComponent(name)}` }", name
            )
            await check(page)


@pytest.mark.timeout(240)
async def test_schemas_make_forms_or_none_and_never_hang_the_page(
    visit: Any, hostile: ServedConsole, subtests: pytest.Subtests
):
    for key, schema in SCHEMAS.items():
        with subtests.test(key):
            page = await visit("about:blank", also=(hostile.url,))
            await page.route("**/.well-known/skill-schemas.json", responder({"say": {"inputSchema": schema}}))
            await page.goto(hostile.address("#/agents/hostile/skills/say"))
            await expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
            await check(page)
            await page.context.close()


def responder(value: Any) -> Callable[[Route], Awaitable[None]]:
    """Respond to requests with JSON."""

    async def respond(route: Route) -> None:
        await route.fulfill(content_type="application/json", body=json.dumps(value))

    return respond


# -- tasks: the words of an agent, seen in its task --------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def client(hostile: ServedConsole) -> AsyncIterator[Client]:
    async with Client(f"{hostile.url}/agents/hostile") as client:
        yield client


async def sent(client: Client, tool: str, **arguments: str) -> str:
    """The id of a task of the hostile agent, once it has ended or asks something."""
    return (await client.send(tool=tool, arguments=arguments)).id


async def look(page: Page, task: str) -> None:
    await go(page, f"#/tasks/{task}")
    await check(page)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("view", VIEWS)
async def test_texts_in_a_task_are_data(
    visit: Any, hostile: ServedConsole, client: Client, subtests: pytest.Subtests, view: View
):
    page = await visit(hostile.console, view=view)
    for key in TEXTS if view is DESKTOP else TEXTS.keys() - LARGE:
        with subtests.test(key):
            await look(page, await sent(client, "say", text=key))


@pytest.mark.timeout(300)
async def test_questions_and_errors_are_data(
    visit: Any, hostile: ServedConsole, client: Client, subtests: pytest.Subtests
):
    page = await visit(hostile.console)
    for tool in ("ask", "fail"):
        for key in TEXTS.keys() - LARGE:
            with subtests.test(key, tool=tool):
                await look(page, await sent(client, tool, text=key))
    for url in (
        "javascript:pwned(1)",
        "data:text/html,<script>pwned(1)</script>",
        "//evil.example/",
        "\x01javascript:1",
    ):
        with subtests.test("sign_in", url=url):
            await look(page, await sent(client, "sign_in", url=url))
            for link in await page.get_by_role("main").get_by_role("link").all():
                assert (await link.get_attribute("href") or "").startswith(("#", "http:", "https:", "blob:"))


@pytest.mark.timeout(300)
async def test_files_names_and_data_in_a_task_are_data(
    visit: Any, hostile: ServedConsole, client: Client, subtests: pytest.Subtests
):
    page = await visit(hostile.console)
    for tool, keys in (("file", FILES), ("data", DATA), ("artifact", NAMES)):
        for key in keys:
            with subtests.test(key, tool=tool):
                await look(page, await sent(client, tool, name=key))
