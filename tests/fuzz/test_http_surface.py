"""Whatever arrives over HTTP gets an answer: never a 500, never an exception, never a hang, never our insides."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import Agent, Context
from dragoman.server.build import build
from dragoman.server.config.settings import Limits, Settings

SECONDS = 5
STREAM_WRITES = 3  # then the reader leaves: some streams never end
INSIDES = re.compile(r'Traceback|File \\?"|site-packages|/src/dragoman|\.py\b')
# What uvicorn refuses to send.
BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
DONE, WAITING, UNKNOWN = "task-done", "task-waiting", "no-such-task"


def make_agent() -> Agent:
    agent = Agent("fuzzed", description="Takes everything", extensions=["https://example.com/ext"])

    @agent.skill
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @agent.skill
    async def same(value: dict[str, Any]) -> dict[str, Any]:
        """Give the object back."""
        return value

    @agent.skill
    async def ask_name(ctx: Context, number: int) -> str:
        """Ask, and ask again: this one is to be there for every example."""
        for _ in range(5000):
            await ctx.ask("What is your name?")
        return "enough"

    return agent


# -- good requests -----------------------------------------------------------------------------------------------------


def messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """A message in every dialect, by the version whose it is."""
    call = {"tool": "same", "arguments": {"value": {"n": 1, "deep": [{"x": None}]}}}
    file = {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}
    new = {"messageId": "m1", "role": "ROLE_USER", "metadata": {"k": 1}, "extensions": ["https://example.com/ext"]}
    yield (
        "1.0",
        {**new, "parts": [{"text": "hi"}, {"data": call}, {"raw": "aGk=", "filename": "a", "mediaType": "a/b"}]},
    )
    yield "1.0", {**new, "parts": [{"text": "hi"}], "taskId": WAITING, "contextId": "c"}
    old = {"kind": "message", "messageId": "m1", "role": "user", "metadata": {"k": 1}}
    yield "0.3", {**old, "parts": [{"kind": "text", "text": "hi"}, {"kind": "data", "data": call}]}
    yield "0.3", {**old, "parts": [{"kind": "file", "file": file}], "taskId": WAITING}
    yield "0.1", {"role": "user", "parts": [{"type": "text", "text": "hi"}, {"type": "file", "file": file}]}
    yield "0.3-rest", {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "hi"}, {"data": {"data": call}}]}


def rpc_requests() -> Iterator[dict[str, Any]]:
    methods = {
        "1.0": ("SendMessage", "SendStreamingMessage"),
        "0.3": ("message/send", "message/stream"),
        "0.1": ("tasks/send", "tasks/sendSubscribe"),
    }
    configuration = {"acceptedOutputModes": ["text"], "historyLength": 2, "returnImmediately": False, "blocking": True}
    push = {"url": "https://example.com/hook", "token": "t", "authentication": {"schemes": ["Bearer"]}}
    for version, message in messages():
        for method in methods.get(version, ()):
            named = {"id": "own-id", "sessionId": "s"} if version == "0.1" else {"configuration": configuration}
            yield _rpc(method, {"message": message, "metadata": {"m": 1}, "tenant": "t", **named})
    for task in (DONE, WAITING, UNKNOWN):
        for method in ("GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"):
            # The waiting task is to be there for the next example.
            if (task, method.lower()[-6:]) != (WAITING, "cancel") and method != "CancelTask":
                yield _rpc(method, {"id": task, "historyLength": 1, "currentGeneration": "1"})
        for method in ("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set"):
            yield _rpc(method, {"taskId": task, "pushNotificationConfig": push, "id": "p", "url": "https://x.example"})
        for method in (
            "ListTaskPushNotificationConfigs",
            "GetTaskPushNotificationConfig",
            "tasks/pushNotification/get",
        ):
            yield _rpc(method, {"taskId": task, "id": "p", "pageSize": 3})
    query = {"contextId": "c", "status": "TASK_STATE_COMPLETED", "pageSize": 5, "pageToken": "WzEsMiwieCJd"}
    yield _rpc("ListTasks", {**query, "statusTimestampAfter": "2026-01-01T00:00:00Z", "includeArtifacts": True})
    yield _rpc("GetExtendedAgentCard", {})
    yield _rpc("agent/getAuthenticatedExtendedCard", {})


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


RPC = list(rpc_requests())
REST = [
    *({"message": message, "configuration": {"historyLength": 1}, "metadata": {}} for _, message in messages()),
    *({"request": message, "configuration": {"blocking": True}} for _, message in messages()),
    {"taskId": DONE, "id": "p", "url": "https://x.example"},
    {"metadata": {"a": 1}, "tenant": "t"},
]

# -- what is done to them ----------------------------------------------------------------------------------------------

texts = st.text(max_size=12) | st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1e999",
        "null",
        "TASK_STATE_WORKING",
        "ROLE_AGENT",
        "\x00",
        "\ud800",
        "1.0",
        "2026-13-01T00:00:00Z",
    ]
)
numbers = st.sampled_from([0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**40, 1.5, 1e308]) | st.integers()
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
KEYS = ("id", "taskId", "contextId", "parts", "content", "kind", "type", "text", "data", "raw", "url", "file", "role")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, corpus: list[dict[str, Any]]) -> Any:
    """A good request with up to three mistakes; of JSON-RPC, mostly within its parameters."""
    request: Any = copy.deepcopy(draw(st.sampled_from(corpus)))
    if "params" in request and draw(st.integers(0, 7)) != 7:
        return {**request, "params": draw(mutated([request["params"]]))}
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(places(request))))
        if not path:
            continue
        target = request
        for key in path[:-1]:
            target = target[key]
        change = draw(st.sampled_from(["replace", "replace", "delete", "add", "double"]))
        if change == "replace":
            target[path[-1]] = draw(values)
        elif change == "delete":
            del target[path[-1]]
        elif change == "add" and isinstance(target, dict):
            target[draw(st.sampled_from(KEYS) | texts)] = draw(values)
        elif isinstance(target, list):
            target.append(copy.deepcopy(target[path[-1]]))
    return request


@st.composite
def bodies(draw: st.DrawFn, corpus: list[dict[str, Any]]) -> bytes:
    """Mostly JSON, sometimes cut off, damaged, or nothing of the kind."""
    kind = draw(st.integers(0, 24))
    if kind == 24:
        return draw(st.binary(max_size=60))
    if kind == 23:
        opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"params":', b"}"), (b'{"message":', b"}")]))
        depth = draw(st.sampled_from([10, 500, 5000]))
        return opening * depth + b"1" + closing * depth
    body = json.dumps(draw(mutated(corpus))).encode()
    if kind == 22:
        return body[: draw(st.integers(0, len(body)))]
    if kind == 21 and body:
        where = draw(st.integers(0, len(body) - 1))
        return body[:where] + draw(st.binary(max_size=3)) + body[where + 1 :]
    return body


SEGMENTS = (
    "", "a2a", "v1", "agents", "fuzzed", "message:send", "message:stream", "tasks", DONE, WAITING, UNKNOWN,
    f"{DONE}:cancel", f"{WAITING}:subscribe", f"{DONE}:subscribe", "pushNotificationConfigs", "p", "card",
    "extendedAgentCard", ".well-known", "agent-card.json", "agent.json", "healthz", "readyz", "tenant", "..", "%2e%2e",
    "%", "%ff", "%00", "a%2Fb", ":", ":cancel", "tasks:x",
)  # fmt: skip
HEADER_VALUES = {
    "a2a-version": ["1.0", "1.1", "0.3", "0.2", "0.1", "9.9", "", "1", "x", "1.0, 1.1"],
    "a2a-extensions": ["https://example.com/ext", ",,", "x"],
    "content-type": ["application/json", "application/a2a+json", "text/plain", "", "application/json; charset=latin-1"],
    "last-event-id": ["0", "1", "3", "-1", "99999999999999999999", "²", "x"],
    "host": ["localhost", "127.0.0.1:80", "evil.example", "", "[::1", "a:b:c", "localhost:99999"],
    "origin": ["http://localhost", "https://evil.example", "null", "", "//", "http://[", "*"],
    "if-none-match": ['"x"', "*", 'W/"', ""],
    "if-modified-since": ["Sun, 06 Nov 1994 08:49:37 GMT", "x", "Sun, 06 Nov 99999 08:49:37 GMT", ""],
    "content-length": ["0", "5", "-1", "99999999999", "x"],
    "x-forwarded-proto": ["https", "x"],
    "x-forwarded-host": ["a.example", "["],
    "x-forwarded-for": ["1.2.3.4", "x"],
    "access-control-request-method": ["POST", ""],
    "access-control-request-headers": ["content-type, x", ""],
    "authorization": ["Bearer x", "Basic x", ""],
    "accept": ["text/event-stream", "*/*", ""],
}
ENDINGS = {"host", "origin", "content-type", "content-length", "a2a-version"}
QUERY = ("A2A-Version", "historyLength", "pageSize", "pageToken", "status", "contextId", "includeArtifacts", "tenant",
         "statusTimestampAfter", "currentGeneration", "id", "name", "metadata", "x")  # fmt: skip
latin = st.text(st.characters(min_codepoint=32, max_codepoint=255, blacklist_characters="\x7f"), max_size=12)


class Asked(NamedTuple):
    """A request as it arrives."""

    method: str
    raw_path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes


@st.composite
def headers_(draw: st.DrawFn) -> list[tuple[str, str]]:
    found = [] if draw(st.booleans()) else [("content-type", "application/json")]
    # Where most requests would end, few shall.
    names = sorted(HEADER_VALUES) if draw(st.integers(0, 9)) == 9 else sorted(HEADER_VALUES.keys() - ENDINGS)
    chosen = draw(st.lists(st.sampled_from(names), max_size=3))
    return found + [(name, draw(st.sampled_from(HEADER_VALUES[name]) | latin)) for name in chosen]


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    headers = draw(headers_())
    query = draw(st.dictionaries(st.sampled_from(QUERY), texts | st.integers().map(str), max_size=3))
    text = urlencode({key: value.encode(errors="surrogatepass") for key, value in query.items()})
    kind = draw(st.integers(0, 9))
    if kind < 4:
        path = draw(st.sampled_from(["/", "/a2a", "/agents/fuzzed", "/agents/fuzzed/a2a"]))
        return Asked("POST", path, text, headers, draw(bodies(RPC)))
    if kind < 7:
        at = draw(st.sampled_from(["", "/v1", "/tenant", "/agents/fuzzed", "/agents/fuzzed/v1"]))
        path = f"{at}/message:{draw(st.sampled_from(['send', 'stream']))}"
        return Asked("POST", path, text, headers, draw(bodies(REST)))
    words = draw(st.lists(st.sampled_from(SEGMENTS) | texts.map(_quoted), max_size=5))
    method = draw(st.sampled_from(["GET", "GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "BREW"]))
    return Asked(method, "/" + "/".join(words), text, headers, draw(bodies(REST)) if method != "GET" else b"")


def _quoted(text: str) -> str:
    return quote(text.encode(errors="surrogatepass"))


# -- asking ------------------------------------------------------------------------------------------------------------


class Answer:
    """What came back."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False

    @property
    def streams(self) -> bool:
        return any(value == b"text/event-stream" for _, value in self.headers)


class Errors(logging.Handler):
    """What was logged as an error: an exception that somebody caught is still a mistake of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(logging.Formatter().format(record))


class Surface:
    """The app on a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        chosen = Settings(store="memory:", long_poll=0.02, heartbeat=5, drain=0, limits=Limits(body=200_000))
        self.app = build((make_agent(),), chosen)
        self.errors = Errors()
        self._asked = 0

    def __enter__(self) -> Surface:
        logging.getLogger("dragoman").addHandler(self.errors)
        self._runner.run(self._prepare())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.app.stop())
        self._runner.close()
        logging.getLogger("dragoman").removeHandler(self.errors)

    async def _prepare(self) -> None:
        for task, part in (
            (DONE, {"text": "hi"}),
            (WAITING, {"data": {"tool": "ask_name", "arguments": {"number": 1}}}),
        ):
            kind = {"type": next(iter(part)), **part}
            body = _rpc("tasks/send", {"id": task, "message": {"role": "user", "parts": [kind]}})
            answer = await self._ask(Asked("POST", "/", "", [("content-type", "application/json")], _json(body)))
            assert b'"error"' not in answer.body, answer.body

    def ask(self, asked: Asked) -> Answer:
        answer = self._runner.run(self._ask(asked))
        self._asked += 1
        if self._asked % 10 == 0:
            self.check_healthy()
        return answer

    def check_healthy(self) -> None:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "still there"}]}
        asked = Asked("POST", "/message:send", "", [("content-type", "application/json")], _json({"message": message}))
        answer = self._runner.run(self._ask(asked))
        assert json.loads(answer.body)["task"]["artifacts"][0]["parts"] == [{"text": "still there"}]

    async def _ask(self, asked: Asked) -> Answer:
        answer = Answer()
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[dict[str, Any]] = loop.create_future()
        pieces = [asked.body[: len(asked.body) // 2], asked.body[len(asked.body) // 2 :]]
        writes = 0

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            return await asyncio.shield(gone)

        async def send(message: Any) -> None:
            nonlocal writes
            if message["type"] == "http.response.start":
                assert not answer.status
                answer.status, answer.headers = message["status"], list(message["headers"])
                return
            assert answer.status
            assert not answer.complete
            answer.body += message["body"]
            answer.complete = not message.get("more_body", False)
            writes += 1
            if answer.streams and writes >= STREAM_WRITES and not gone.done():
                gone.set_result({"type": "http.disconnect"})

        # A stream of a task that waits says nothing: its reader leaves soon.
        timer = loop.call_later(0.02, lambda: gone.done() or gone.set_result({"type": "http.disconnect"}))
        scope = {
            "type": "http",
            "method": asked.method,
            "path": unquote(asked.raw_path),
            "raw_path": asked.raw_path.encode(),
            "query_string": asked.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in asked.headers],
            "server": ("127.0.0.1", 8080),
            "client": ("127.0.0.1", 50000),
            "scheme": "http",
        }
        async with asyncio.timeout(SECONDS):
            await self.app(scope, receive, send)
        timer.cancel()
        return answer


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def check(asked: Asked, answer: Answer) -> None:
    """Fail unless this is an answer a caller can work with."""
    assert answer.status, "no answer"
    assert answer.status < 500 or answer.status in (501, 503), answer.body
    assert answer.complete or answer.streams
    for name, value in answer.headers:
        assert not BAD_NAME.search(name), name
        assert not BAD_VALUE.search(value), value
    if answer.streams:
        for line in answer.body.split(b"\n"):
            if line.startswith(b"data: "):
                json.loads(line.removeprefix(b"data: "))
        return
    if not answer.body:
        assert answer.status in (204, 304) or asked.method == "HEAD"
        return
    body = json.loads(answer.body)
    error = body.get("error") if isinstance(body, dict) else None
    if error is not None:
        assert not INSIDES.search(json.dumps(error, ensure_ascii=False)), error


@pytest.fixture(scope="module")
def surface() -> Iterator[Surface]:
    with Surface() as surface:
        yield surface
        surface.check_healthy()


def examine(surface: Surface, asked: Asked) -> None:
    surface.errors.records.clear()
    answer = surface.ask(asked)
    check(asked, answer)
    assert surface.errors.records == []


_usual = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
_long = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@_usual
@given(asked=requests())
def test_any_request_gets_a_proper_answer(surface: Surface, asked: Asked) -> None:
    examine(surface, asked)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@_long
@given(asked=requests())
def test_any_of_very_many_requests_gets_a_proper_answer(surface: Surface, asked: Asked) -> None:
    examine(surface, asked)


def test_the_corpus_itself_is_understood(surface: Surface, subtests: pytest.Subtests) -> None:
    for request in RPC:
        with subtests.test(request=request):
            asked = Asked("POST", "/", "", [("content-type", "application/json")], _json(request))
            answer = surface.ask(asked)
            check(asked, answer)
            if not answer.streams:
                # Right in its form, whatever it asks for: neither unreadable nor unknown.
                code = json.loads(answer.body).get("error", {}).get("code")
                assert code not in (-32700, -32600, -32601), answer.body
