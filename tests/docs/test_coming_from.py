"""Each page for those who come from elsewhere says what is different on purpose, and what they all say is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import dragoman.compat.executor as a2a
from dragoman import Agent
from dragoman.testing import served

PAGES = sorted((Path(__file__).parents[2] / "docs/coming-from").glob("*.md"))
TOPICS = ("`Origin`", "403", "`Content-Type", "errorDetails", "xtra fields")
MESSAGE = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_what_is_different_on_purpose(page: Path) -> None:
    _, heading, rest = page.read_text(encoding="utf-8").partition("\n## Different on purpose\n")
    assert heading
    section = rest.partition("\n## ")[0]
    assert [topic for topic in TOPICS if topic not in section] == []


class Echo(a2a.AgentExecutor):
    async def execute(self, context: a2a.RequestContext, task_id: str) -> None:
        await context.queue.enqueue(a2a.Message(a2a.Role.AGENT, (a2a.TextPart(context.message.text),)))

    async def cancel(self, context: a2a.RequestContext, task_id: str) -> None: ...


def echo(text: str) -> str:
    return text


@pytest.fixture(params=["executor", "function"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    agent = Agent("echo")
    agent.skill(echo)
    target = a2a.RequestHandler(Echo).app() if request.param == "executor" else agent
    with served(target) as url:
        yield url


def send(url: str, *, more: Any = None, **headers: str) -> httpx2.Response:
    params = {"message": MESSAGE | (more or {}), **(more or {})}
    body = {"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": params, **(more or {})}
    return httpx2.post(url, json=body, headers=headers, timeout=10)


def test_a_page_of_another_site_is_refused(url: str) -> None:
    refused = send(url, Origin="https://elsewhere.example")
    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (403, -31403, None)
    assert "result" in send(url, Referer="https://elsewhere.example/page").json()


def test_extra_fields_are_ignored(url: str) -> None:
    assert send(url, more={"shoeSize": 44}).json()["result"]["status"]["state"] == "completed"
