"""Lines of JSON logs say which request or run they are about."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from support.otlp_collector import SpanMemory

from dragoman import Agent, Context, User
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.telemetry.logs import configure

mine = logging.getLogger("mine")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FIELDS = ("trace_id", "span_id", "agent", "skill", "task", "context", "user", "address")


class Log:
    """The JSON lines of a test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        configure("json", "debug")

    def lines(self, logger: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._capsys.readouterr().err.splitlines()]
        return [line for line in lines if line["logger"] == logger]


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Log:
    return Log(capsys)


async def by_name(request: Any) -> User | None:
    """Whoever says a name is that user."""
    mine.info("who is it?")
    name = request.headers.get("x-name")
    return User(name) if name else None


def new_app(**settings: Any) -> Any:
    agent = Agent("desk")

    @agent.skill
    async def work(ctx: Context, text: str) -> str:
        mine.info("%s", text)
        await asyncio.sleep(0)
        mine.info("%s again", text)
        return text

    return agent.app(store="memory:", auth=by_name, **settings)


async def call(app: Any, user: str, method: str = "SendMessage", trace: str = "", **params: Any) -> Any:
    """Call a server as a user; in a task of its own, as HTTP servers do."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "X-Name": user}
    if trace:
        headers["traceparent"] = trace
    response = await AsgiClient(app).send(HttpRequest("POST", "http://127.0.0.1/", headers, body))
    return json.loads(await response.read())


def message(text: str, context: str = "") -> dict[str, Any]:
    ids = {"messageId": f"m-{text}"} | ({"contextId": context} if context else {})
    return {**ids, "role": "ROLE_USER", "parts": [{"text": text}]}


async def test_lines_of_runs_at_the_same_time_are_of_their_own_callers(log: Log) -> None:
    app = new_app()
    names = [f"user{number}" for number in range(5)]
    answers = await asyncio.gather(*(call(app, name, message=message(name, f"c-{name}")) for name in names))
    tasks = {name: answer["result"]["task"]["id"] for name, answer in zip(names, answers, strict=True)}
    lines = [line for line in log.lines("mine") if line["message"] != "who is it?"]
    assert len(lines) == 2 * len(names)
    for line in lines:
        name = line["message"].partition(" ")[0]
        about = {"agent": "desk", "skill": "work", "task": tasks[name], "context": f"c-{name}", "user": name}
        assert {field: line[field] for field in FIELDS if field in line} == about
    await app.stop()


async def test_runs_that_waited_for_another_are_of_their_own_traces(log: Log) -> None:
    app = new_app()
    names = [f"m{number}" for number in range(3)]
    traces = {name: f"00-{number:032x}-{SPAN}-01" for number, name in enumerate(names, 1)}
    await asyncio.gather(*(call(app, "ada", trace=traces[name], message=message(name, "c")) for name in names))
    await app.stop()
    lines = log.lines("dragoman.task")
    assert len(lines) == len(names)
    assert {line["trace_id"] for line in lines} == {f"{number:032x}" for number in (1, 2, 3)}
    assert all("user" in line and line["context"] == "c" for line in lines)


async def test_lines_of_a_request_name_the_task_it_is_for(log: Log) -> None:
    app = new_app()
    task = (await call(app, "ada", message=message("hi")))["result"]["task"]["id"]
    await call(app, "eve", "GetTask", id=task, trace=f"00-{TRACE}-{SPAN}-01")
    (denied,) = log.lines("dragoman.audit")
    about = {"trace_id": TRACE, "span_id": SPAN, "agent": "desk", "task": task, "user": "eve"}
    assert {field: denied[field] for field in FIELDS if field in denied} == about
    await app.stop()


@pytest.mark.parametrize("header", ["nonsense", f"00-{TRACE}-{SPAN}", f"00-{TRACE.upper()}-{SPAN}-01", ""])
async def test_a_header_that_is_no_trace_context_is_not_in_the_log(log: Log, header: str) -> None:
    app = new_app()
    await call(app, "ada", trace=header, message=message("hi"))
    assert all("trace_id" not in line for line in log.lines("mine"))
    await app.stop()


async def test_with_opentelemetry_a_line_has_the_span_in_which_it_was_written(log: Log, spans: SpanMemory) -> None:
    app = new_app()
    await call(app, "ada", trace=f"00-{TRACE}-{SPAN}-01", message=message("hi"))
    await app.stop()
    lines = [line for line in log.lines("mine") if "task" in line]
    (run,) = (span for span in spans.spans if span.name.startswith("invoke_agent"))
    assert {(line["trace_id"], line["span_id"]) for line in lines} == {(TRACE, run.span_id)}


async def test_a_line_outside_of_requests_has_no_context_fields(log: Log) -> None:
    app = new_app()
    await call(app, "ada", message=message("hi"))
    mine.info("outside")
    assert not set(FIELDS) & set(log.lines("mine")[-1])
    await app.stop()
