"""A real port, and one speaker for every dialect and transport.

A speaker has the same methods whatever it speaks, so one test can ask the same of all of them; what the wire shows
stays raw in its answers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx2
import pytest
from contract.bindings.agent import ask_name, boom, count, deny, echo, reply, sign_in, slow, until_message, who
from wire.grpc_exchange import GrpcCaller

from dragoman import Agent
from dragoman.testing import served

# A healthy answer takes milliseconds; these only keep a hanging one from hanging the suite.
TIMEOUT = 10
STREAM_TIMEOUT = 5
# Modules that ask it of gRPC too say so in `SPEAKERS` of their own.
SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")

_MODERN = {
    "send": "SendMessage",
    "stream": "SendStreamingMessage",
    "get": "GetTask",
    "list": "ListTasks",
    "cancel": "CancelTask",
    "subscribe": "SubscribeToTask",
}
METHODS = {
    "1.0": _MODERN,
    "1.1": _MODERN,
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
    "0.1": {
        "send": "tasks/send",
        "stream": "tasks/sendSubscribe",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
}


def same(value: dict[str, Any]) -> dict[str, Any]:
    """Give the object back."""
    return value


async def both() -> AsyncIterator[Any]:
    """Give a text and an object, each an artifact."""
    yield "a text"
    yield {"an": "object"}


def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SKILLS = (echo, count, same, both, ask_name, slow, until_message, sign_in, boom, deny, reply, add_numbers, who)


def make_agent(name: str = "wire", **options: Any) -> Agent:
    """An agent with a skill for everything that can happen; the first is the default."""
    agent = Agent(name, description="Answers what it is asked", version="1.2.3", **options)
    for function in SKILLS:
        agent.skill(function)
    return agent


class Event(NamedTuple):
    """One server-sent event, as it stood on the wire."""

    id: str | None
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Answer:
    """One HTTP response, read to its end."""

    def __init__(self, response: httpx2.Response, asked: str, text: str | None = None) -> None:
        self.asked = asked
        self.status = response.status_code
        self.headers = response.headers
        self.text = text if text is not None else response.text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def result(self) -> Any:
        """What the answer holds; fails the test when it holds an error."""
        answer = self.json
        assert "error" not in answer, answer["error"]
        assert self.status == 200
        return answer["result"] if "jsonrpc" in answer else answer

    @property
    def code(self) -> int:
        """The error's code: JSON-RPC's, or the HTTP status."""
        return self.json["error"]["code"]

    @property
    def details(self) -> list[dict[str, Any]]:
        """The typed details of an error of 1.x, of 0.3 or of any REST binding."""
        error = self.json["error"]
        beside = self.json.get("errorDetails")
        return beside or (error["details"] if "details" in error else error["data"])

    @property
    def reason(self) -> str:
        """Why, in the words of the error's details."""
        data = self.json["error"].get("data")
        return data["reason"] if isinstance(data, dict) else self.details[0]["reason"]

    @property
    def field(self) -> str | None:
        """Which field is wrong, in whatever form the binding says it."""
        data = self.json["error"].get("data")
        if isinstance(data, dict):
            return data.get("field")
        named = [each["fieldViolations"][0]["field"] for each in self.details if "fieldViolations" in each]
        return named[0] if named else None


class Reading:
    """A response that is read while it arrives."""

    def __init__(self, response: httpx2.Response, asked: str) -> None:
        self.asked = asked
        self.response = response
        self.status = response.status_code
        self.headers = response.headers
        self.comments: list[str] = []
        self.lines: list[str] = []
        self._arriving = self._before_the_deadline(response.iter_lines())

    def _before_the_deadline(self, lines: Iterator[str]) -> Iterator[str]:
        # Heartbeats keep a stream that never ends from ever timing out.
        deadline = time.monotonic() + STREAM_TIMEOUT
        for line in lines:
            assert time.monotonic() < deadline, f"the stream goes on after {self.lines[:20]}"
            self.lines.append(line)
            yield line

    def __iter__(self) -> Iterator[Event]:
        number: str | None = None
        for line in self._arriving:
            if line.startswith(":"):
                self.comments.append(line)
            elif line.startswith("id: "):
                number = line.removeprefix("id: ")
            elif line.startswith("data: "):
                yield Event(number, line.removeprefix("data: "))
                number = None

    def next(self) -> Event:
        """Wait for the next event."""
        return next(iter(self))

    def comment(self) -> str:
        """Wait for the next comment, which must come before any event."""
        line = next(line for line in self._arriving if line)
        assert line.startswith(":"), line
        return line

    def refusal(self) -> Answer:
        """The answer, which is none of a stream."""
        answer = self.begin()
        assert isinstance(answer, Answer)
        return answer

    def begin(self) -> Answer | Reading:
        """The refusal, as JSON or where 0.3 wants that as the one event of a stream; else the stream, once begun."""
        if self.headers["content-type"] != "text/event-stream":
            assert self.headers["content-type"] in ("application/json", "application/a2a+json")
            self.response.read()
            return Answer(self.response, self.asked)
        first = self.next()
        if "error" not in first.json:
            return self
        assert not list(self)
        return Answer(self.response, self.asked, first.data)


class Wire:
    """A base URL and the requests a test makes of it."""

    def __init__(self, client: httpx2.Client, url: str) -> None:
        self.client = client
        self.url = url
        self._callers: dict[str, GrpcCaller] = {}

    def grpc(self, version: str) -> GrpcCaller:
        """Whoever calls this server over gRPC in that version."""
        if version not in self._callers:
            self._callers[version] = GrpcCaller(self.client, self.url, version)
        return self._callers[version]

    def at(self, url: str) -> Wire:
        """The same for another server."""
        return Wire(self.client, url)

    def request(self, method: str, path: str, **options: Any) -> Answer:
        """Any request, as it is."""
        response = self.client.request(method, self.url + path, **options)
        return Answer(response, f"{method} {path}")

    @contextmanager
    def reading(self, method: str, path: str, **options: Any) -> Iterator[Reading]:
        """Any request whose answer is read while it arrives; leaving closes the connection."""
        with self.client.stream(method, self.url + path, **options) as response:
            yield Reading(response, f"{method} {path}")

    def rpc(self, method: str, params: Any = None, *, id: Any = 1, path: str = "/", **options: Any) -> Answer:
        """One JSON-RPC request."""
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.request("POST", path, content=_json(body), headers=_headers("application/json", **options))

    def rest(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """One HTTP+JSON request."""
        content = None if body is None else _json(body)
        headers = _headers("application/a2a+json" if content else None, **options)
        return self.request(method, path, content=content, headers=headers)

    def speaker(self, name: str) -> Speaker:
        """Whoever speaks that dialect over that transport."""
        return Speaker(self, name)

    def healthy(self) -> None:
        """Fail the test unless the server still answers an ordinary request."""
        answer = self.rpc("SendMessage", {"message": self.speaker("1.0-rpc").message("still there")})
        assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "still there"}]


class Speaker:
    """One dialect over one transport, with the same methods for all."""

    def __init__(self, wire: Wire, name: str, path: str = "") -> None:
        self.wire = wire
        self.name = name
        self.version, self.binding = name.split("-")
        self.is_grpc = self.binding == "grpc"
        # gRPC says what HTTP+JSON says: its calls are told as such exchanges.
        self.binding = "rest" if self.is_grpc else self.binding
        self.form = f"{self.version}-{self.binding}"
        self.is_rest = self.binding == "rest"
        self.is_modern = self.version.startswith("1.")
        # Where the requests go: a tenant of a REST binding, another path of JSON-RPC.
        self.path = path

    def at(self, path: str) -> Speaker:
        """The same at another path."""
        return Speaker(self.wire, self.name, path)

    # -- what a message looks like ---------------------------------------------------------------------------------

    def part(self, value: Any) -> dict[str, Any]:
        """Text from text, data from anything else."""
        kind = "text" if isinstance(value, str) else "data"
        if self.form == "0.3-rest":
            return {kind: value if kind == "text" else {"data": value}}
        tag = {"0.3": {"kind": kind}, "0.1": {"type": kind}}.get(self.version, {})
        return {**tag, kind: value}

    def message(self, *values: Any, **members: Any) -> dict[str, Any]:
        """The user's message; `members` are its other fields."""
        parts = [self.part(value) for value in values]
        if self.version == "0.1":
            return {"role": "user", "parts": parts, **members}
        named = {"messageId": "m1", **members}
        if self.name == "0.3-rpc":
            return {"kind": "message", "role": "user", "parts": parts, **named}
        return {"role": "ROLE_USER", "content" if self.is_rest and not self.is_modern else "parts": parts, **named}

    def params(self, *values: Any, tool: str = "", task: Any = None, now: bool = False, **more: Any) -> dict[str, Any]:
        """What is sent with a message.

        `tool` and `arguments` call a skill by its name, `task` is one to go on with, `now` asks for an answer at
        once, and `message` holds more fields of the message.
        """
        if tool:
            values = (*values, {"tool": tool, "arguments": more.pop("arguments", {})})
        members = dict(more.pop("message", {}))
        if self.version == "0.1":
            named = {} if task is None else {"id": self.id_of(task)}
            return {**named, "message": self.message(*values, **members), **more}
        if task is not None:
            members["taskId"] = self.id_of(task)
        configuration = dict(more.pop("configuration", {}))
        if now:
            configuration |= {"returnImmediately": True} if self.is_modern else {"blocking": False}
        rest = {"configuration": configuration} if configuration else {}
        return {"message": self.message(*values, **members), **rest, **more}

    # -- operations ------------------------------------------------------------------------------------------------

    def send(self, *values: Any, headers: Any = None, **options: Any) -> Answer:
        """Send a message; see `params`."""
        return self._call("send", self.params(*values, **options), headers)

    @contextmanager
    def stream(self, *values: Any, headers: Any = None, **options: Any) -> Iterator[Reading]:
        """Send a message and follow its task."""
        with self._reading("stream", self.params(*values, **options), headers) as reading:
            yield reading

    def get(self, task: Any, *, headers: Any = None, **params: Any) -> Answer:
        """Read a task, given as an id or as it was answered."""
        return self._call("get", {"id": self.id_of(task), **params}, headers)

    def list(self, *, headers: Any = None, **params: Any) -> Answer:
        """Read a page of tasks."""
        return self._call("list", params, headers)

    def cancel(self, task: Any, *, headers: Any = None, **params: Any) -> Answer:
        """Cancel a task."""
        return self._call("cancel", {"id": self.id_of(task), **params}, headers)

    @contextmanager
    def subscribe(self, task: Any, *, after: Any = None, headers: Any = None) -> Iterator[Reading]:
        """Follow a task that exists."""
        headers = {**(headers or {}), **({} if after is None else {"Last-Event-ID": str(after)})}
        with self._reading("subscribe", {"id": self.id_of(task)}, headers) as reading:
            yield reading

    def begin(self, *values: Any, **options: Any) -> Any:
        """Send a message, do not wait for its end, and give the task."""
        if self.version != "0.1":
            return self.task(self.send(*values, now=True, **options))
        with self.stream(*values, **options) as reading:
            return reading.next().json["result"]

    # -- what an answer holds --------------------------------------------------------------------------------------

    def task(self, answer: Answer) -> Any:
        """The task in the answer to a send, in this dialect."""
        wrapped = self.is_modern or self.is_rest
        return answer.result["task"] if wrapped else answer.result

    def event(self, event: Event) -> Any:
        """What an event carries: of JSON-RPC, its result."""
        return event.json if self.is_rest else event.json["result"]

    def state(self, holder: Any) -> str:
        """The state of a task, of an answer's task or of a status event, as 0.3 words it."""
        if isinstance(holder, Answer):
            holder = holder.result
        for wrapper in ("task", "statusUpdate"):
            holder = holder.get(wrapper, holder)
        word = holder["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
        return "canceled" if word == "cancelled" else word

    def texts(self, holder: Any) -> list[str]:
        """The texts in a task's artifacts."""
        if isinstance(holder, Answer):
            holder = holder.result
        task = holder.get("task", holder)
        return [part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"] if "text" in part]

    @staticmethod
    def id_of(task: Any) -> str:
        """The id of a task, however it is given."""
        if isinstance(task, Answer):
            task = task.result
        return task if isinstance(task, str) else task.get("task", task)["id"]

    # -- how it travels --------------------------------------------------------------------------------------------

    def _call(self, operation: str, params: dict[str, Any], headers: Any) -> Answer:
        if self.is_grpc:
            with self._reading(operation, params, headers) as reading:
                return Answer(reading.response, reading.asked)
        method, path, options = self.spell(operation, params, headers)
        answer = self.wire.request(method, path, **options)
        answer.asked += _shown(options)
        return answer

    @contextmanager
    def _reading(self, operation: str, params: dict[str, Any], headers: Any) -> Iterator[Reading]:
        if self.is_grpc:
            caller, params, headers = self.wire.grpc(self.version), *self._spell_grpc(params, headers)
            with caller.call(operation, params, headers) as response:
                yield Reading(response, caller.describe(operation, params, headers))  # pyright: ignore[reportArgumentType]
            return
        method, path, options = self.spell(operation, params, headers)
        with self.wire.reading(method, path, **options) as reading:
            reading.asked += _shown(options)
            yield reading

    def _spell_grpc(self, params: dict[str, Any], headers: Any) -> tuple[dict[str, Any], dict[str, str]]:
        """The message of a gRPC call and its metadata."""
        asked = {"a2a-version": self.version} if self.is_modern else {}
        if "id" in params and not self.is_modern:
            params = {"name": f"tasks/{params['id']}", **{key: value for key, value in params.items() if key != "id"}}
        tenant = {"tenant": self.path.removeprefix("/agents")[1:]} if self.path else {}
        return {**params, **tenant}, {**asked, **{name.lower(): value for name, value in (headers or {}).items()}}

    def spell(self, operation: str, params: dict[str, Any], headers: Any = None) -> tuple[str, str, dict[str, Any]]:
        """The HTTP method, path and httpx options of a request."""
        asked = {"1.0": {"A2A-Version": "1.0"}, "1.1": {"A2A-Version": "1.1"}}.get(self.version, {})
        given = {**asked, **(headers or {})}
        if not self.is_rest:
            body = {"jsonrpc": "2.0", "id": 1, "method": METHODS[self.version][operation], "params": params}
            return "POST", self.path or "/", {"content": _json(body), "headers": _headers("application/json", **given)}
        root, kind = (self.path, "application/a2a+json") if self.is_modern else (f"{self.path}/v1", "application/json")
        if operation in ("send", "stream"):
            content = _json(params)
            return "POST", f"{root}/message:{operation}", {"content": content, "headers": _headers(kind, **given)}
        if operation == "list":
            return "GET", f"{root}/tasks?{urlencode(params)}", {"content": b"", "headers": _headers(None, **given)}
        path = f"{root}/tasks/{quote(params['id'], safe='')}"
        rest = {name: value for name, value in params.items() if name != "id"}
        if operation == "get":
            query = f"?{urlencode(rest)}" if rest else ""
            return "GET", path + query, {"content": b"", "headers": _headers(None, **given)}
        content = _json(rest) if rest else b""
        return "POST", f"{path}:{operation}", {"content": content, "headers": _headers(kind, **given)}


def _json(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _shown(options: dict[str, Any]) -> str:
    """The rest of a request, as people write it down."""
    lines = [f"{name}: {value}" for name, value in options["headers"].items()]
    return "\n".join(["", *lines, options["content"].decode()]).rstrip("\n")


def _headers(content_type: str | None, **headers: str) -> dict[str, str]:
    return {**({} if content_type is None else {"Content-Type": content_type}), **headers}


class Like:
    """Equal to any text of that form."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._pattern.fullmatch(other) is not None

    def __hash__(self) -> int:
        return hash(self._pattern)

    def __repr__(self) -> str:
        return f"<like {self._pattern.pattern}>"


class Likenesses:
    """The forms of what is new in every answer."""

    uuid = Like(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    time = Like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="session")
def like() -> type[Likenesses]:
    """Stands in expected JSON for an id or a time."""
    return Likenesses


@pytest.fixture(scope="session")
def http() -> Iterator[httpx2.Client]:
    """One client for the whole run; it follows no redirects, so that one would be seen."""
    with httpx2.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def new_agent() -> Callable[..., Agent]:
    """Makes a fresh agent with all skills."""
    return make_agent


@pytest.fixture(scope="module")
def wire(http: httpx2.Client, request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A server of this module's own. Heartbeats are frequent and long polls short, because nobody sleeps here."""
    grpc = 0 if any("grpc" in name for name in getattr(request.module, "SPEAKERS", SPEAKERS)) else None
    with served(make_agent(), heartbeat=0.05, long_poll=5, drain=0, grpc=grpc) as url:
        yield Wire(http, url)


@pytest.fixture(scope="session")
def wire_at(http: httpx2.Client) -> Callable[[str], Wire]:
    """The requests of a test, for a server that the module has started itself."""
    return lambda url: Wire(http, url)


@pytest.fixture
def speaker(wire: Wire, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Speaker:
    """The speaker a test is parametrized with."""
    if "grpc" in request.param:
        # For the other servers that the test may start.
        monkeypatch.setenv("DRAGOMAN_GRPC", "0")
    return wire.speaker(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask every speaker the same, unless a module says `SPEAKERS` or a test is parametrized with `speaker` itself."""
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "speaker" in metafunc.fixturenames and "speaker" not in chosen:
        metafunc.parametrize("speaker", getattr(metafunc.module, "SPEAKERS", SPEAKERS), indirect=True)
