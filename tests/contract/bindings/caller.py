"""A caller that speaks one binding in one version, with canonical values on its near side.

All callers have the same methods. What they return are values of the model, and what they raise is `Refused`, so that
one test can have the same conversation over every binding.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple, TypedDict, Unpack

import httpx2
from contract.bindings.codes import check_code
from contract.bindings.spelling import Event, Json, Proto03, Spelling, Version01, Version03, Version1
from contract.bindings.transports import Answer, Failed, Grpc, JsonRpc, Rest, Stream, Transport

from dragoman import Message, Task
from dragoman.model.event import StatusUpdate
from dragoman.model.operation import ListTasksResponse, Operation, TaskPushNotificationConfig
from dragoman.model.state import State


class Refused(Exception):
    """An error of the protocol, as every binding tells it."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed))
        refusal = failed.refusal
        self.message = refusal.message
        self.headers = refusal.headers
        plain = refusal.details if isinstance(refusal.details, dict) else None
        info = plain or next((each for each in refusal.details if "reason" in each), {})
        self.reason: str = info.get("reason", "")
        self.metadata: Json = plain or info.get("metadata", {})
        violations = [] if plain else [each for each in refusal.details if "fieldViolations" in each]
        self.field: str | None = violations[0]["fieldViolations"][0]["field"] if violations else None
        self.details = refusal.details

    @property
    def retry_after(self) -> int | None:
        """Seconds after which to come back."""
        value = self.headers.get("retry-after")
        return None if value is None else int(value)


class NumberedEvent(NamedTuple):
    """An event of a stream, and its number where it has one."""

    number: int | None
    value: Event

    @property
    def state(self) -> State | None:
        """The state that the event tells."""
        return self.value.status.state if isinstance(self.value, (Task, StatusUpdate)) else None


class Events:
    """The events of a stream, read while they arrive."""

    def __init__(self, stream: Stream, spelling: Spelling) -> None:
        self.headers = stream.headers
        self._arriving = stream.events
        self._spelling = spelling
        self._first: NumberedEvent | None = self._read()
        assert self._first is not None

    def _read(self) -> NumberedEvent | None:
        arrived = next(self._arriving, None)
        return None if arrived is None else NumberedEvent(arrived[0], self._spelling.event(arrived[1]))

    def __iter__(self) -> Iterator[NumberedEvent]:
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        while (event := self._read()) is not None:
            yield event

    def next(self) -> NumberedEvent:
        """Wait for the next event."""
        return next(iter(self))


class MessageOptions(TypedDict, total=False):
    """What may stand beside the parts of a message."""

    tool: str
    arguments: dict[str, object]
    task: Task | str
    context: str
    message_id: str
    metadata: Json
    message_metadata: Json
    parts: list[Json]
    wait: bool
    history_length: int
    webhook: Json
    output_modes: list[str]
    if_generation: int | str
    extensions: list[str]
    references: list[str]
    new_id: str
    headers: dict[str, str]


class Sent(NamedTuple):
    """The result of a message, and whether the server recognized a repeat."""

    value: Task | Message
    replayed: bool


def id_of(task: Task | str) -> str:
    """The id of a task."""
    return task if isinstance(task, str) else task.id


class Caller:
    """Speaks one binding in one version."""

    def __init__(self, name: str, transport: Transport, spelling: Spelling) -> None:
        self.name = name
        self.version, self.binding = name.split("-")
        self._transport = transport
        self._spelling = spelling
        self._headers: dict[str, str] = {}
        self._tenant = ""

    def as_user(self, name: str) -> Caller:
        """The same, for a user of that name."""
        return self.with_headers({"X-Name": name})

    def with_headers(self, headers: dict[str, str]) -> Caller:
        """The same, with headers, or metadata of gRPC, on every request."""
        other = copy(self)
        other._headers = {**self._headers, **headers}
        return other

    def in_its_own_version(self) -> Caller:
        """The same, who reads tasks of other versions in its own: 0.1 and 0.3 share methods, so they say which."""
        return self if self.version.startswith("1.") else self.with_headers({"A2A-Version": self.version})

    def in_tenant(self, tenant: str) -> Caller:
        """The same, in a tenant."""
        other = copy(self)
        other._tenant = tenant
        return other

    # -- operations --------------------------------------------------------------------------------------------------

    def deliver(self, *values: object, **options: Unpack[MessageOptions]) -> Sent:
        """Send a message."""
        answer = self._call(Operation.SEND, self.message(*values, **options), options.get("headers"))
        return Sent(self._spelling.sent(answer.result), answer.headers.get("idempotent-replayed") == "true")

    def send(self, *values: object, **options: Unpack[MessageOptions]) -> Task:
        """Send a message that is answered with a task."""
        value = self.deliver(*values, **options).value
        assert isinstance(value, Task)
        return value

    @contextmanager
    def stream(self, *values: object, **options: Unpack[MessageOptions]) -> Generator[Events]:
        """Send a message and follow its task; leaving hangs up."""
        with self._streaming(Operation.STREAM, self.message(*values, **options), options.get("headers")) as events:
            yield events

    def begin(self, *values: object, **options: Unpack[MessageOptions]) -> str:
        """Send a message, do not wait for its end, and return the id of the task."""
        if self.version != "0.1":
            return self.send(*values, wait=False, **options).id
        with self.stream(*values, **options) as events:
            return task_id(events.next())

    def get(self, task: Task | str, **params: Any) -> Task:
        """Read a task; `params` are the others of 1.0."""
        return self._spelling.task(self._call(Operation.GET, {"id": id_of(task), **params}).result)

    def list(self, **params: Any) -> ListTasksResponse:
        """Read a page of tasks."""
        return self._spelling.page(self._call(Operation.LIST, params).result)

    def cancel(self, task: Task | str, **params: Any) -> Task:
        """Cancel a task."""
        return self._spelling.task(self._call(Operation.CANCEL, {"id": id_of(task), **params}).result)

    @contextmanager
    def subscribe(self, task: Task | str, *, after: object = None) -> Generator[Events]:
        """Follow a task that exists; leaving hangs up."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        with self._streaming(Operation.SUBSCRIBE, {"id": id_of(task)}, headers) as events:
            yield events

    def create_webhook(self, task: Task | str, **members: Any) -> TaskPushNotificationConfig:
        """Add a webhook to a task, or replace it."""
        answer = self._call(Operation.CREATE_PUSH, {"taskId": id_of(task), **members})
        return self._spelling.webhook(answer.result)

    def webhook(self, task: Task | str, id: str) -> TaskPushNotificationConfig:
        """Read a webhook."""
        answer = self._call(Operation.GET_PUSH, {"taskId": id_of(task), "id": id})
        return self._spelling.webhook(answer.result)

    def webhooks(self, task: Task | str) -> list[TaskPushNotificationConfig]:
        """Read the webhooks of a task."""
        return self._spelling.webhooks(self._call(Operation.LIST_PUSH, {"taskId": id_of(task)}).result)

    def delete_webhook(self, task: Task | str, id: str) -> None:
        """Delete a webhook."""
        self._call(Operation.DELETE_PUSH, {"taskId": id_of(task), "id": id})

    def extended_card(self) -> Json:
        """Read the card for callers that are known."""
        return self._call(Operation.EXTENDED_CARD, {}).result

    # -- how they travel ---------------------------------------------------------------------------------------------

    def message(self, *values: object, **options: Unpack[MessageOptions]) -> Json:
        """The parameters of a message, as in 1.0. A part is text from text, data from anything else."""
        parts: list[Json] = [{"text": value} if isinstance(value, str) else {"data": value} for value in values]
        if "tool" in options:
            parts.append({"data": {"tool": options["tool"], "arguments": options.get("arguments", {})}})
        message: Json = {
            "messageId": options.get("message_id", "m1"),
            "role": "ROLE_USER",
            "parts": options.get("parts", parts),
        }
        if "task" in options:
            message["taskId"] = id_of(options["task"])
        if "new_id" in options and self.version == "0.1":
            message["taskId"] = options["new_id"]
        named = {
            "context": "contextId",
            "message_metadata": "metadata",
            "extensions": "extensions",
            "references": "referenceTaskIds",
        }
        message |= {named[name]: options[name] for name in named if name in options}
        named = {
            "history_length": "historyLength",
            "webhook": "taskPushNotificationConfig",
            "output_modes": "acceptedOutputModes",
            "if_generation": "ifGenerationMatch",
        }
        configuration = {named[name]: options[name] for name in named if name in options}
        if not options.get("wait", True):
            configuration["returnImmediately"] = True
        beside: Json = {"configuration": configuration} if configuration else {}
        return {"message": message, **beside, **({"metadata": options["metadata"]} if "metadata" in options else {})}

    def exchange(self, operation: Operation, params: Json) -> Any:
        """Make a request with parameters as in 1.0, and return its result as the binding has it."""
        return self._call(operation, params).result

    def _call(self, operation: Operation, params: Json, headers: dict[str, str] | None = None) -> Answer:
        spelled = self._spelling.params(operation, params)
        try:
            return self._transport.call(operation, spelled, {**self._headers, **(headers or {})}, self._tenant)
        except Failed as failed:
            raise self._refused(failed) from None

    @contextmanager
    def _streaming(self, operation: Operation, params: Json, headers: dict[str, str] | None) -> Generator[Events]:
        spelled = self._spelling.params(operation, params)
        given = {**self._headers, **(headers or {})}
        try:
            with self._transport.stream(operation, spelled, given, self._tenant) as stream:
                yield Events(stream, self._spelling)
        except Failed as failed:
            raise self._refused(failed) from None

    def _refused(self, failed: Failed) -> Refused:
        refused = Refused(failed)
        check_code(self.version, self.binding, refused.reason, failed.refusal)
        return refused


def task_id(event: NumberedEvent) -> str:
    """The id of the task that an event belongs to."""
    value = event.value
    assert not isinstance(value, Message)
    return value.id if isinstance(value, Task) else value.task_id


CALLERS = (
    *("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "1.1-grpc"),
    *("0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc"),
)
_SPELLINGS: dict[str, Spelling] = {
    "0.3-rpc": Version03(),
    "0.3-rest": Proto03(named=False),
    "0.3-grpc": Proto03(named=True),
    "0.1-rpc": Version01(),
}


class Site:
    """A server, and the callers that speak to it."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self.http = http
        self.url = url
        self._channels: list[Grpc] = []

    def caller(self, name: str) -> Caller:
        """The caller of that name; see CALLERS."""
        version, binding = name.split("-")
        return Caller(name, self._transport(version, binding), _SPELLINGS.get(name) or Version1())

    def _transport(self, version: str, binding: str) -> Transport:
        if binding == "rpc":
            return JsonRpc(self.http, self.url, version)
        if binding == "rest":
            return Rest(self.http, self.url, version)
        card = self.http.get(f"{self.url}/.well-known/agent-card.json").json()
        address = next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")
        self._channels.append(Grpc(address, version))
        return self._channels[-1]

    def close(self) -> None:
        """Close the connections of gRPC."""
        for channel in self._channels:
            channel.close()
