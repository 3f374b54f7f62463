"""`dragoman card`: a summary for people, the card for programs, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dragoman import Agent
from dragoman.testing import served

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def calculator() -> Agent:
    agent = Agent("calculator", description="Adds numbers", version="2.0")

    @agent.skill(tags=("maths",), examples=("3 and 4",))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(calculator()) as url:
        yield url


def site(pages: dict[str, tuple[str, bytes]]) -> Any:
    """An app with these pages: their content type and their body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            kind, body = pages.get(scope["path"], ("text/plain", b"nothing here"))
            status = 200 if scope["path"] in pages else 404
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
            await send({"type": "http.response.body", "body": body})

    return app


def with_card(card: Any) -> Any:
    return site({"/.well-known/agent-card.json": ("application/json", json.dumps(card).encode())})


def test_the_summary_says_who_where_what_and_how(url: str, run: Run):
    done = run("card", url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["calculator 2.0", "Adds numbers"]
    assert f"  * JSONRPC 1.0  {url}/a2a" in lines
    assert f"    HTTP+JSON 1.0  {url}" in lines
    assert "  streaming: yes" in lines
    assert lines[lines.index("security") + 1] == "  none"
    assert "  add: Add two numbers." in lines
    assert "      e.g. 3 and 4" in lines


def test_the_interface_that_would_be_used_is_marked_as_the_options_want_it(url: str, run: Run):
    done = run("card", url, "--protocol", "0.3", "--transport", "rest")
    assert [line for line in done.stdout.splitlines() if line.startswith("  * ") and "http" in line] == [
        f"  * HTTP+JSON 0.3  {url}"
    ]


def test_what_a_card_demands_is_shown(run: Run):
    card = {
        "name": "old", "description": "x", "version": "1", "url": "http://127.0.0.1:1/", "capabilities": {},
        "protocolVersion": "0.3.0", "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [], "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        "security": [{"key": []}], "provider": {"organization": "Example", "url": "https://example.com"},
    }  # fmt: skip
    with served(with_card(card)) as url:
        lines = run("card", url).stdout.splitlines()
    assert "  `key` (apiKey)" in lines
    assert "by Example, https://example.com" in lines
    assert "  streaming: not said" in lines
    assert lines[lines.index("skills") + 1] == "  none"


def test_a_card_of_any_version_is_printed_as_1_0_spells_it(run: Run):
    card = {
        "name": "old", "description": "x", "version": "1", "url": "http://127.0.0.1:1/", "capabilities": {},
        "authentication": {"schemes": ["bearer"]}, "skills": [],
    }  # fmt: skip
    with served(site({"/.well-known/agent.json": ("application/json", json.dumps(card).encode())})) as url:
        done = run("card", url, "--json")
    shown = json.loads(done.stdout)
    assert shown["supportedInterfaces"][0]["protocolBinding"] == "JSONRPC"
    assert "authentication" not in shown


def test_a_card_that_is_right_passes(url: str, run: Run):
    done = run("card", url, "--validate")
    assert done.returncode == 0
    assert "error" not in done.stdout
    assert done.stderr.startswith(f"{url}/.well-known/agent-card.json: no errors, ")


def test_every_problem_is_listed_with_its_field_and_rule(run: Run):
    card = {"name": "", "supportedInterfaces": [{"url": "nowhere", "protocolBinding": "JSONRPC"}], "skills": {}}
    with served(with_card(card)) as url:
        done = run("card", url, "--validate")
        listed = json.loads(run("card", url, "--validate", "--json").stdout)
    assert done.returncode == 1
    for field in ("version", "supportedInterfaces[0].url", "supportedInterfaces[0].protocolVersion", "skills"):
        assert any(line.startswith(f"error    {field}: ") and "A2A 1.0, " in line for line in done.stdout.splitlines())
    assert listed["url"] == f"{url}/.well-known/agent-card.json"
    assert {problem["level"] for problem in listed["problems"]} >= {"error"}
    assert f"{len(done.stdout.splitlines())}" == f"{len(listed['problems'])}"


def test_a_page_in_the_place_of_a_card_is_told_as_such(run: Run):
    with served(site({"/.well-known/agent-card.json": ("text/html", b"<html>")})) as url:
        done = run("card", url, "--validate")
    assert done.returncode == 1
    assert done.stdout.startswith("error    (card): HTML or XML. ")


def test_where_there_is_no_card_there_is_nothing_to_check(run: Run):
    with served(site({})) as url:
        done = run("card", url, "--validate")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"dragoman: there is no agent card at {url}: HTTP 404 at ")
