"""One exchange over gRPC, told as HTTP+JSON tells it: so that the same tests can ask the same of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx2

from dragoman.dialects.table import GRPC, ROWS
from dragoman.model.operation import Operation
from dragoman.net.grpc.status import CODES
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.method import METHODS

OPERATIONS = {
    "send": Operation.SEND,
    "stream": Operation.STREAM,
    "get": Operation.GET,
    "list": Operation.LIST,
    "cancel": Operation.CANCEL,
    "subscribe": Operation.SUBSCRIBE,
}
_STATUSES = dict(CODES.values())
# Protobuf does not tell an empty value from one that is absent.
_EMPTY_PAGE = {"tasks": [], "nextPageToken": "", "totalSize": 0}


class GrpcResponse:
    """The outcome of a call, as an HTTP response whose text is JSON, or whose lines are server-sent events."""

    def __init__(self, status: int, metadata: Any, kind: str, lines: Iterator[str], name: str = "OK") -> None:
        self.status_code = status
        fields = [(key, value) for key, value in metadata if isinstance(value, str)]
        self.headers = httpx2.Headers([*fields, ("content-type", kind), ("grpc-status", name)])
        self._lines = lines

    def iter_lines(self) -> Iterator[str]:
        return self._lines

    def iter_text(self) -> Iterator[str]:
        return (f"{line}\n" for line in self._lines)

    def read(self) -> None:
        """The text is read when it is asked for."""

    @property
    def text(self) -> str:
        return "".join(self._lines)


class GrpcCaller:
    """Calls a server over gRPC in one version of A2A."""

    def __init__(self, http: httpx2.Client, url: str, version: str) -> None:
        card = http.get(f"{url}/.well-known/agent-card.json").json()
        address = next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")
        self._row = ROWS[version, GRPC]
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])

    def close(self) -> None:
        self._channel.close()

    def describe(self, operation: str, params: dict[str, Any], headers: dict[str, str]) -> str:
        """The call as people write it down."""
        lines = [f"{name}: {value}" for name, value in headers.items()]
        text = json.dumps(params, separators=(",", ":"), ensure_ascii=False)
        return "\n".join([f"{self._row.service}/{self._row.methods[OPERATIONS[operation]]}", *lines, text])

    @contextmanager
    def call(self, operation: str, params: dict[str, Any], headers: dict[str, str]) -> Iterator[GrpcResponse]:
        """Make a call; leaving ends it."""
        path = f"/{self._row.service}/{self._row.methods[OPERATIONS[operation]]}"
        method = METHODS[path]
        request = method.codec.encode(method.request, params)
        metadata = [(name.lower(), value) for name, value in headers.items()]
        call = self._channel.unary_stream(path)(request, metadata=metadata, timeout=10)
        try:
            yield self._respond(call, method)
        finally:
            call.cancel()

    def _respond(self, call: Any, method: Any) -> GrpcResponse:
        try:
            first = next(call)
        except grpc.RpcError:
            return _error(call, method)
        except StopIteration:
            first = None
        metadata = list(call.initial_metadata())
        if method.operation.streams:
            return GrpcResponse(200, metadata, "text/event-stream", _events(first, call, method))
        value = {} if first is None else method.codec.decode(method.response, first)
        if method.operation is Operation.LIST:
            value = _EMPTY_PAGE | value
        list(call)
        return GrpcResponse(200, [*metadata, *call.trailing_metadata()], "application/json", iter([_json(value)]))


def _events(first: bytes | None, call: Any, method: Any) -> Iterator[str]:
    number = int(dict(call.initial_metadata()).get("first-event-id", 0))
    message = first
    try:
        while message is not None:
            yield from (f"id: {number}",) if number else ()
            yield f"data: {_json(method.codec.decode(method.response, message))}"
            yield ""
            number += bool(number)
            message = next(call, None)
    except grpc.RpcError:
        yield f"data: {_error(call, method).text}"


def _error(call: Any, method: Any) -> GrpcResponse:
    metadata = call.trailing_metadata()
    number, name = call.code().value[0], call.code().name
    details = dict(metadata).get("grpc-status-details-bin")
    status = {} if details is None else codec_of("google.rpc").decode("Status", details)
    assert status.get("code", number) == number
    code, text = _STATUSES[number], call.details()
    if not method.row.errors.typed:
        # In 0.3 the text begins with the name that the SDKs give the error: their clients read no details.
        name_of_error, _, text = text.partition(": ")
        assert name_of_error.endswith("Error"), call.details()
    error = {"code": code, "status": name, "message": text, "details": status.get("details", [])}
    return GrpcResponse(code, metadata, "application/json", iter([_json({"error": error})]), name)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
