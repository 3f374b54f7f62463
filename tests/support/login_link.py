"""The link of a login: as an agent makes it of the handle, and as whoever reads the task finds the handle in it."""

from __future__ import annotations

from typing import Any

PAGE = "https://login.example.com/?state="


def link(handle: str) -> str:
    """The link for a handle, as `url=` of `ask_auth`."""
    return f"{PAGE}{handle}"


def handle_of(task: Any) -> str:
    """The handle in the link of a task that waits for a login."""
    urls = [part.url for part in task.status.message.parts if part.url]
    assert len(urls) == 1
    assert urls[0].startswith(PAGE)
    return urls[0].removeprefix(PAGE)
