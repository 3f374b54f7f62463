"""The four functions over HTTPS with a certificate nobody has vouched for: a stub, and Dragoman itself."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dragoman import Agent, Context
from dragoman.compat.client import cancel_task, discover, get_task, send_task


def calculator() -> Agent:
    agent = Agent("calculator", description="Adds")

    @agent.skill
    def add_numbers(a: int, b: int) -> int:
        return a + b

    @agent.skill
    async def book(ctx: Context) -> str:
        return await ctx.ask("From where?")

    return agent


@contextmanager
def served_by_https(app: Any, certificate: Path) -> Iterator[str]:
    """Serve an app on a free port with TLS, in a thread with an event loop of its own."""
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
        ws="none",
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert ready.wait(30)
        yield f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(15)
    assert not thread.is_alive()


@pytest.fixture
def base(certificate: Path) -> Iterator[str]:
    with served_by_https(calculator().app(store="memory:", drain=1), certificate) as url:
        yield url


@pytest.mark.requirement("S1-2", "S1-3", "S1-4", "S1-5")
async def test_the_whole_sequence_over_a_self_signed_certificate(stub: Any, certificate: Path) -> None:
    states = {"tasks/send": "completed", "tasks/get": "completed", "tasks/cancel": "canceled"}

    def answer(request: Any) -> Any:
        if request.method == "GET":
            return {"name": "elixir-mcp-agent", "skills": []}
        return {"result": {"id": "7", "status": {"state": states[request.json["method"]]}}}

    server = await stub(answer, certificate)
    assert server.url.startswith("https://")
    assert (await discover(server.url))[0] == "ok"
    assert await send_task(server.url, "hi", cookie="k") == ("ok", {"id": "7", "status": {"state": "completed"}})
    assert await get_task(server.url, "7", cookie="k") == ("ok", {"id": "7", "status": {"state": "completed"}})
    assert await cancel_task(server.url, "7", cookie="k") == ("ok", {"id": "7", "status": {"state": "canceled"}})
    assert server.paths == ["GET /.well-known/agent.json", *["POST /a2a"] * 3]


@pytest.mark.requirement("S1-3")
async def test_with_verify_a_self_signed_certificate_is_refused_before_anything_is_sent(
    stub: Any, certificate: Path
) -> None:
    server = await stub(lambda _: {}, certificate)
    for outcome, reason in [
        await discover(server.url, verify=True),
        await send_task(server.url, "hi", cookie="k", verify=True),
        await get_task(server.url, "t", cookie="k", verify=True),
        await cancel_task(server.url, "t", cookie="k", verify=True),
    ]:
        assert outcome == "error"
        assert "certificate" in reason
        assert "not trusted" in reason
    assert server.seen == []


@pytest.mark.requirement("S1-2", "S1-3", "S1-9", "S1-17", "S1-19", "S1-20", "S1-21", "S1-24")
async def test_dragoman_answers_the_whole_sequence(base: str) -> None:
    _, card = await discover(base)
    assert card["name"] == "calculator"
    assert {skill["id"] for skill in card["skills"]} == {"add_numbers", "book"}

    outcome, task = await send_task(base, "Add", cookie="k", tool="add_numbers", arguments={"a": 5, "b": 12})
    assert outcome == "ok"
    assert task["status"]["state"] == "completed"
    assert task["artifacts"][0]["parts"][0]["text"] == "17"

    assert await get_task(base, task["id"], cookie="k") == ("ok", task)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["status"]["timestamp"])

    _, asking = await send_task(base, "Book", cookie="k", tool="book")
    assert asking["status"]["state"] == "input-required"
    outcome, canceled = await cancel_task(base, asking["id"], cookie="k")
    assert (outcome, canceled["status"]["state"]) == ("ok", "canceled")
    _, later = await get_task(base, asking["id"], cookie="k")
    assert later["status"]["state"] == "canceled"


@pytest.mark.requirement("S1-25")
async def test_an_unknown_task_is_dragomans_error_as_a_map(base: str) -> None:
    for outcome, error in [
        await get_task(base, "no-such-task", cookie="k"),
        await cancel_task(base, "no-such-task", cookie="k"),
    ]:
        assert outcome == "error"
        assert error["code"] == -32001
        assert error["message"]
