"""How a request of each binding travels: as JSON-RPC, as REST, as a gRPC call. What it holds is `spelling.py`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import grpc
import httpx2
from contract.bindings.spelling import Json

from dragoman.model.operation import Operation
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.method import METHODS

SECONDS = 10
Headers = Mapping[str, str]
NumberedJson = tuple[int | None, Json]


class Refusal(NamedTuple):
    """An error as its binding tells it."""

    code: int | str
    """The code of JSON-RPC, the HTTP status of REST, the name of the status of gRPC."""
    status: int | None
    """The HTTP status, where there is one."""
    message: str
    details: list[Json]
    headers: Headers


class Failed(Exception):
    """The server has refused a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.code} {refusal.message}")
        self.refusal = refusal


class Answer(NamedTuple):
    """What the server answered: the result, and headers or metadata."""

    result: Any
    headers: Headers


class Stream(NamedTuple):
    """A stream that has begun."""

    events: Iterator[NumberedJson]
    headers: Headers


class Transport(ABC):
    """One binding in one version."""

    @abstractmethod
    def call(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Answer:
        """Make a request. Raises Failed."""

    @abstractmethod
    def stream(
        self, operation: Operation, params: Json, headers: Headers, tenant: str
    ) -> AbstractContextManager[Stream]:
        """Make a request whose answer is a stream; leaving hangs up. Raises Failed before the first event."""


class _Request(NamedTuple):
    method: str
    path: str
    body: Json | None


class HttpTransport(Transport):
    """What JSON-RPC and REST have in common."""

    def __init__(self, http: httpx2.Client, url: str, version: str) -> None:
        self.http = http
        self.url = url
        self.version = version

    @abstractmethod
    def request(self, operation: Operation, params: Json, tenant: str) -> _Request:
        """Where a request goes, and its body."""

    @abstractmethod
    def result(self, value: Any, status: int, headers: Headers) -> Any:
        """The result in the JSON of a response, or of an event. Raises Failed."""

    def call(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Answer:
        method, path, body = self.request(operation, params, tenant)
        response = self.http.request(method, self.url + path, **self._content(body, headers))
        value = json.loads(response.text) if response.text else {}
        return Answer(self.result(value, response.status_code, response.headers), response.headers)

    @contextmanager
    def stream(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Generator[Stream]:
        method, path, body = self.request(operation, params, tenant)
        with self.http.stream(method, self.url + path, **self._content(body, headers)) as response:
            if response.headers["content-type"] != "text/event-stream":
                response.read()
                self.result(json.loads(response.text), response.status_code, response.headers)
                raise AssertionError(f"neither a stream nor an error: {response.text}")
            assert response.status_code == 200
            yield Stream(self._events(response), response.headers)

    def _events(self, response: httpx2.Response) -> Iterator[NumberedJson]:
        number: int | None = None
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif line.startswith("data: "):
                value = json.loads(line.removeprefix("data: "))
                yield number, self.result(value, response.status_code, response.headers)
                number = None

    def _content(self, body: Json | None, headers: Headers) -> dict[str, Any]:
        version = {"A2A-Version": self.version} if self.version.startswith("1.") else {}
        if body is None:
            return {"headers": {**version, **headers}}
        content = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        return {"content": content, "headers": {"Content-Type": "application/json", **version, **headers}}


RPC_METHODS = {
    "0.3": {
        Operation.SEND: "message/send",
        Operation.STREAM: "message/stream",
        Operation.GET: "tasks/get",
        Operation.LIST: "tasks/list",
        Operation.CANCEL: "tasks/cancel",
        Operation.SUBSCRIBE: "tasks/resubscribe",
        Operation.CREATE_PUSH: "tasks/pushNotificationConfig/set",
        Operation.GET_PUSH: "tasks/pushNotificationConfig/get",
        Operation.LIST_PUSH: "tasks/pushNotificationConfig/list",
        Operation.DELETE_PUSH: "tasks/pushNotificationConfig/delete",
        Operation.EXTENDED_CARD: "agent/getAuthenticatedExtendedCard",
    },
    "0.1": {
        Operation.SEND: "tasks/send",
        Operation.STREAM: "tasks/sendSubscribe",
        Operation.GET: "tasks/get",
        Operation.CANCEL: "tasks/cancel",
        Operation.SUBSCRIBE: "tasks/resubscribe",
        Operation.CREATE_PUSH: "tasks/pushNotification/set",
        Operation.GET_PUSH: "tasks/pushNotification/get",
    },
}


class JsonRpc(HttpTransport):
    """JSON-RPC 2.0 over HTTP."""

    def request(self, operation: Operation, params: Json, tenant: str) -> _Request:
        method = RPC_METHODS[self.version][operation] if self.version in RPC_METHODS else operation.value
        named = {**params, "tenant": tenant} if tenant else params
        return _Request("POST", "/a2a", {"jsonrpc": "2.0", "id": 1, "method": method, "params": named})

    def result(self, value: Any, status: int, headers: Headers) -> Any:
        assert value["jsonrpc"] == "2.0"
        if "error" not in value:
            assert (status, value["id"]) == (200, 1)
            return value["result"]
        error = value["error"]
        details = value.get("errorDetails", error.get("data", []))
        raise Failed(Refusal(error["code"], status, error["message"], details, headers))


class Rest(HttpTransport):
    """HTTP+JSON."""

    def request(self, operation: Operation, params: Json, tenant: str) -> _Request:
        root = f"/{quote(tenant, safe='')}" if tenant else ""
        root += "" if self.version.startswith("1.") else "/v1"
        rest = dict(params)
        if operation is Operation.SEND:
            return _Request("POST", f"{root}/message:send", rest)
        if operation is Operation.STREAM:
            return _Request("POST", f"{root}/message:stream", rest)
        if operation is Operation.EXTENDED_CARD:
            path = "/extendedAgentCard" if self.version.startswith("1.") else "/card"
            return _Request("GET", root + path, None)
        if operation is Operation.LIST:
            return _Request("GET", f"{root}/tasks{_query(rest)}", None)
        if operation in (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE):
            path = f"{root}/tasks/{quote(rest.pop('id'), safe='')}"
            if operation is Operation.GET:
                return _Request("GET", path + _query(rest), None)
            verb = "cancel" if operation is Operation.CANCEL else "subscribe"
            return _Request("POST", f"{path}:{verb}", rest or None)
        path = f"{root}/tasks/{quote(rest.pop('taskId'), safe='')}/pushNotificationConfigs"
        if operation is Operation.CREATE_PUSH:
            return _Request("POST", path, rest)
        if operation is Operation.LIST_PUSH:
            return _Request("GET", path, None)
        method = "GET" if operation is Operation.GET_PUSH else "DELETE"
        return _Request(method, f"{path}/{quote(rest['id'], safe='')}", None)

    def result(self, value: Any, status: int, headers: Headers) -> Any:
        if status == 200 and "error" not in value:
            return value
        error = value["error"]
        assert error["code"] == status
        raise Failed(Refusal(error["code"], status, error["message"], error.get("details", []), headers))


def _query(params: Json) -> str:
    spelled = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
    return f"?{urlencode(spelled)}" if spelled else ""


GRPC_SERVICES = {"0.3": "a2a.v1.A2AService", "1.0": "lf.a2a.v1.A2AService", "1.1": "lf.a2a.v1.A2AService"}
GRPC_METHODS_0_3 = {
    Operation.SUBSCRIBE: "TaskSubscription",
    Operation.LIST_PUSH: "ListTaskPushNotificationConfig",
    Operation.EXTENDED_CARD: "GetAgentCard",
}
# Protobuf does not tell an empty value from one that is absent.
_EMPTY_PAGE = {"tasks": [], "nextPageToken": "", "totalSize": 0}


class Grpc(Transport):
    """gRPC, with messages as the JSON that the proto gives them."""

    def __init__(self, address: str, version: str) -> None:
        self.version = version
        # A connection of its own, so that no other caller's state shows.
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def call(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Answer:
        with self._calling(operation, params, headers, tenant) as (call, method):
            try:
                data = next(call)
                metadata = _texts([*call.initial_metadata(), *call.trailing_metadata()])
                assert next(call, None) is None
            except grpc.RpcError:
                raise self._failure(call) from None
            value = method.codec.decode(method.response, data)
            return Answer(_EMPTY_PAGE | value if operation is Operation.LIST else value, metadata)

    @contextmanager
    def stream(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Generator[Stream]:
        with self._calling(operation, params, headers, tenant) as (call, method):
            try:
                first = next(call)
            except grpc.RpcError:
                raise self._failure(call) from None
            metadata = _texts(call.initial_metadata())
            yield Stream(self._events(first, call, method, int(metadata.get("first-event-id", 0))), metadata)

    @contextmanager
    def _calling(self, operation: Operation, params: Json, headers: Headers, tenant: str) -> Generator[tuple[Any, Any]]:
        name = GRPC_METHODS_0_3.get(operation, operation.value) if self.version == "0.3" else operation.value
        path = f"/{GRPC_SERVICES[self.version]}/{name}"
        method = METHODS[path]
        request = method.codec.encode(method.request, {**params, "tenant": tenant} if tenant else params)
        version = [("a2a-version", self.version)] if self.version.startswith("1.") else []
        metadata = [*version, *((name.lower(), value) for name, value in headers.items())]
        call = self._channel.unary_stream(path)(request, metadata=metadata, timeout=SECONDS)
        try:
            yield call, method
        finally:
            call.cancel()

    def _events(self, first: bytes, call: Any, method: Any, number: int) -> Iterator[NumberedJson]:
        message: bytes | None = first
        try:
            while message is not None:
                yield number or None, method.codec.decode(method.response, message)
                number += bool(number)
                message = next(call, None)
        except grpc.RpcError:
            raise self._failure(call) from None

    def _failure(self, call: Any) -> Failed:
        metadata = call.trailing_metadata()
        encoded = dict(metadata).get("grpc-status-details-bin")
        status = {} if encoded is None else codec_of("google.rpc").decode("Status", encoded)
        text = call.details()
        if self.version == "0.3" and status:
            # Its SDKs know an error by the name before the text.
            name, _, text = text.partition(": ")
            assert name.endswith("Error"), call.details()
        return Failed(Refusal(call.code().name, None, text, status.get("details", []), _texts(metadata)))


def _texts(metadata: Any) -> dict[str, str]:
    return {name: value for name, value in metadata if isinstance(value, str)}
