"""What a person does in the chat of the console, and what they see there."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from console.browser import DESKTOP, View
from console.serving import ServedConsole
from playwright.async_api import Locator, Page, expect

from dragoman import Client


async def open_chat(
    visit: Any, server: ServedConsole, agent: str = "studio", *, view: View = DESKTOP, dark: bool = False, **query: str
) -> Page:
    """Open the chat with an agent; `skill` and `text` are chosen and written there."""
    fragment = f"#/agents/{quote(agent)}/chat" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    page = await visit(server.address(fragment), view=view, dark=dark)
    await expect(field(page)).to_be_enabled()
    return page


def field(page: Page) -> Locator:
    """Where messages and answers are written."""
    return page.locator("#composer")  # is called Message or Answer, by what it is for


async def say(page: Page, text: str) -> None:
    """Write a message, and send it."""
    await field(page).fill(text)
    await field(page).press("Enter")


async def choose(page: Page, skill: str) -> None:
    """Choose the skill for the next message."""
    await page.get_by_role("combobox", name="Skill").select_option(skill)


def turn(page: Page) -> Locator:
    """The newest turn."""
    return page.get_by_role("article", name="Turn").last


async def see_state(page: Page, state: str = "completed") -> Locator:
    """Wait until the newest turn is in a state; returns the turn."""
    await expect(turn(page).locator("footer").get_by_text(state, exact=True)).to_be_visible()
    return turn(page)


async def task_of(page: Page) -> str:
    """The id of the newest turn's task."""
    href = await turn(page).get_by_role("link", name="Task", exact=True).get_attribute("href")
    assert href is not None
    return href.rpartition("/")[2]


@asynccontextmanager
async def outside_of(page: Page, server: ServedConsole, agent: str) -> AsyncGenerator[Any]:
    """Sends words to the newest turn's task as somebody else would, beside the page: `await whisper("stop")`."""
    task = await task_of(page)
    async with Client(f"{server.url}/agents/{agent}") as client:

        async def whisper(text: str) -> None:
            await client.send(text, task=task, wait=False)

        yield whisper


def conversations(page: Page) -> Locator:
    return page.get_by_role("complementary", name="Conversations")


HAS_CONTEXT = re.compile(r"/chat/[^/?]+$")
