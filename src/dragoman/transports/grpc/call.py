"""The client side of gRPC, in the packages of 1.x and of 0.3."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from dragoman.dialects.errors import error_from_grpc, names_error
from dragoman.dialects.negotiate import after_grpc_probing, after_reading, needs_file_probe
from dragoman.dialects.table import GRPC, no_operation, row_of
from dragoman.dialects.v03_proto.names import named_request
from dragoman.model.error import BadResponse, CannotConnect, DragomanError, InvalidParams, InvalidRequest, as_received
from dragoman.model.operation import GetTaskRequest, Operation
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.net.grpc.frames import MEDIA_TYPE, FrameReader, message_of, read_frames, write_message
from dragoman.net.grpc.status import http_status, status_name
from dragoman.transports.binding import as_client_error
from dragoman.transports.grpc.codec import MalformedMessage, codec_of
from dragoman.transports.grpc.method import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Request
    from dragoman.transports.binding import StreamReader
    from dragoman.transports.grpc.method import GrpcMethod

# Response metadata of a stream of ours: the id of its first event. Each event after it is one more.
FIRST_EVENT_ID = "first-event-id"
_DETAILS = "grpc-status-details-bin"
_GATEWAY_ERRORS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class GrpcBinding:
    """A gRPC interface in one version of A2A. `url` is a `grpc://` or `grpcs://` URL."""

    name = GRPC

    def __init__(self, url: str, dialect: CallingDialect) -> None:
        self.url = url
        self.dialect = dialect
        self._row = row_of(dialect.version, GRPC)
        self._is_probed = False

    def build_request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        path, method = self._method(operation)
        values: dict[str, Any] = msgspec.json.decode(self.dialect.write_params(operation, request))
        if not self._row.tenants:  # before tenants, tasks had the names of resources
            values = named_request(operation, values)
        try:
            body = method.codec.encode(method.request, values)
        except ValueError as error:
            raise InvalidParams(f"this cannot be sent over gRPC: {error}") from None
        headers = {**self._row.headers, "Content-Type": MEDIA_TYPE}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        return HttpRequest("POST", self.url + path, headers, write_message(body), operation=operation.value)

    def switch_method(self, operation: Operation) -> bool:
        return False

    def build_probe(self, operation: Operation, body: bytes, *, received: bool) -> HttpRequest | None:
        """In 0.3, the server's SDK decides how files are encoded: its error for an unknown task shows which it is."""
        if self._row.tenants or self._is_probed:
            return None
        method = self._method(operation)[1]
        message = body if received and operation.streams else next((each.data for each in read_frames(body)), b"")
        try:
            values = method.codec.decode(method.response if received else method.request, message)
        except MalformedMessage:  # whoever reads it will say so
            return None
        if not needs_file_probe(self.dialect, msgspec.json.encode(values), received=received):
            return None
        self._is_probed = True
        return self.build_request(Operation.GET, GetTaskRequest(str(uuid4())))

    def read_probe(self, headers: Mapping[str, str], body: bytes) -> None:
        detailed = _DETAILS in headers
        self.dialect = after_grpc_probing(self.dialect, message_of(headers), detailed=detailed)

    def is_answer(self, headers: Mapping[str, str]) -> bool:
        """True for gRPC, which is all that its client returns."""
        return headers.get("Content-Type", "").startswith("application/grpc")

    def is_stream(self, status: int, headers: Mapping[str, str]) -> bool:
        """True unless the call has failed before its first message."""
        return status == 200

    def open_reader(self, headers: Mapping[str, str], limit: int) -> StreamReader:
        return GrpcStreamReader(self, headers, limit)

    def read_result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        if status >= 300:
            raise self.read_error(headers)
        messages = [frame.data for frame in read_frames(body) if not frame.is_trailers]
        if not messages:
            raise BadResponse(f"{redact_url(self.url)} answered with neither a message nor an error")
        answer = self._decode(self._method(operation)[1], messages[0])
        self.dialect = after_reading(self.dialect, answer)
        return self.dialect.read_result(operation, answer)

    def read_event(self, data: bytes) -> StreamResponse:
        event = self._decode(self._method(Operation.SUBSCRIBE)[1], data)
        self.dialect = after_reading(self.dialect, event)
        return self.dialect.read_event(event)

    def read_error(self, trailers: Mapping[str, str]) -> DragomanError:
        """Build the error for the status of a call, from its trailers."""
        name, message = status_name(trailers.get("grpc-status", "")), message_of(trailers)
        details = _read_details(trailers.get(_DETAILS, ""))
        where = redact_url(self.url)
        if name == "RESOURCE_EXHAUSTED" and "larger than max" in message:
            # What grpcio and grpc-go say of it; neither names the error.
            return as_received(InvalidRequest(f"{where} takes no message as large as this one: {message}"))
        error = error_from_grpc(name, message, details)
        error.status = http_status(name)
        if name in _GATEWAY_ERRORS and not names_error(message, details):
            text = f"{where} is not available: {name}: {message}"
            return CannotConnect(text, reason="UNAVAILABLE", status=error.status)
        return as_client_error(error, trailers, self.url)

    def _method(self, operation: Operation) -> tuple[str, GrpcMethod]:
        name = self._row.methods.get(operation)
        if name is None:
            raise no_operation(operation, self.dialect.version)
        path = f"/{self._row.service}/{name}"
        return path, METHODS[path]

    def _decode(self, method: GrpcMethod, data: bytes) -> bytes:
        try:
            return msgspec.json.encode(method.codec.decode(method.response, data))
        except MalformedMessage as error:
            raise BadResponse(f"{redact_url(self.url)} does not answer in A2A: {error}") from None


class GrpcStreamReader:
    """Reads the messages of a stream. Where the server says the id of the first, each later one has the next."""

    def __init__(self, binding: GrpcBinding, headers: Mapping[str, str], limit: int) -> None:
        self._binding = binding
        self._frames = FrameReader(limit)
        first = headers.get(FIRST_EVENT_ID, "")
        self._next = int(first) if first.isdecimal() else 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, int]]:
        """Take a chunk and yield the events that are complete now. Raises the error that the stream ends with."""
        for frame in self._frames.feed(chunk):
            if frame.is_trailers:
                trailers = frame.trailers()
                if trailers.get("grpc-status") != "0":
                    raise self._binding.read_error(trailers)
                continue
            yield frame.data, self._next
            if self._next:
                self._next += 1

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of a message."""
        return self._frames.pending


def _read_details(text: str) -> list[Any]:
    """Return the details of a google.rpc.Status in Base64; none if they cannot be read."""
    try:
        data = b64decode(text + "=" * (-len(text) % 4))
        return codec_of("google.rpc").decode("Status", data).get("details", [])
    except (binascii.Error, MalformedMessage):
        return []
