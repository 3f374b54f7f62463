"""Tasks that tests send to the agents of the studio, and what a page shows of one."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Locator, Page

from dragoman import Client
from dragoman.model.task import Task


async def send(client: Client, text: str | None = None, **options: Any) -> Task:
    """Send a message that becomes a task."""
    sent = await client.send(text, **options)
    assert isinstance(sent, Task)
    return sent


def state_of(page: Page) -> Locator:
    """The state of the task that is open, beside its title."""
    return page.get_by_role("main").locator("header .badge").first
