"""The client side of HTTP+JSON: 1.x at the root, 0.3 under /v1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec

from dragoman.dialects.errors import error_from_http
from dragoman.dialects.negotiate import after_probing, after_reading, needs_probe
from dragoman.dialects.table import REST
from dragoman.model.error import BadResponse
from dragoman.model.operation import GetTaskRequest, Operation
from dragoman.net.exchange import HttpRequest, redact_url
from dragoman.transports.binding import SseStreams, as_client_error, decode_json, error_from_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect, Result
    from dragoman.model.event import StreamResponse
    from dragoman.model.operation import Request

_ACCEPT_JSON = "application/a2a+json, application/json"
_ACCEPT_STREAM = "text/event-stream, application/a2a+json, application/json"
_SEND_OPERATIONS = (Operation.SEND, Operation.STREAM)


class RestBinding(SseStreams):
    """An HTTP+JSON interface in one version of A2A."""

    name = REST

    def __init__(self, url: str, dialect: CallingDialect) -> None:
        self.url = url.rstrip("/")
        self.dialect = dialect
        self._row = dialect.row
        self._prefix = "".join(f"/{word}" for word in self._row.prefix)
        # True once SubscribeToTask uses its other HTTP method.
        self._switched = False
        self._probed = False

    def build_request(self, operation: Operation, request: Request, after: int | None = None) -> HttpRequest:
        body: bytes | None = self.dialect.write_params(operation, request)
        verbs, template, method = self._row.paths[operation]
        if self._switched and operation is Operation.SUBSCRIBE:
            method = next(verb for verb in verbs if verb != method)
        path = self._prefix + template
        tenant = getattr(request, "tenant", None)
        url = f"{self.url}/{quote(tenant, safe='')}" if tenant else self.url
        if operation not in _SEND_OPERATIONS:
            params: dict[str, Any] = msgspec.json.decode(body)
            params.pop("tenant", None)
            names = [word.partition("}")[0] for word in path.split("{")[1:]]
            path = path.format(**{name: quote(str(params.pop(name, "")), safe="") for name in names})
            if method == "POST":
                body = msgspec.json.encode(params)
            else:
                body = None
                query = {key: _query(value) for key, value in params.items()}
                path = f"{path}?{urlencode(query)}" if query else path
        headers = {**self._row.headers, "Accept": _ACCEPT_STREAM if operation.streams else _ACCEPT_JSON}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        return HttpRequest(method, url + path, headers, body, operation=operation.value)

    def read_result(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        if status >= 300:
            raise error_from_response(status, headers, decode_json(body, status, headers, self.url), self.url)
        if operation is Operation.DELETE_PUSH and not body.strip():
            return None
        if not body or body[:1] not in b"{[ \n\r\tn" or body.isspace():
            decode_json(body, status, headers, self.url)
        self.dialect = after_reading(self.dialect, body)
        return self.dialect.read_result(operation, body)

    def read_event(self, data: bytes) -> StreamResponse:
        if data.startswith(b'{"error"'):
            body: Any = decode_json(data, 200, {}, self.url)
            error: Any = body.get("error")
            code = error.get("code") if isinstance(error, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            raise as_client_error(error_from_http(code if isinstance(code, int) else 500, body), {}, self.url)
        if not data or data.isspace():
            raise BadResponse(f"an event of {redact_url(self.url)} holds nothing")
        self.dialect = after_reading(self.dialect, data)
        return self.dialect.read_event(data)

    def build_probe(self, operation: Operation, body: bytes, *, received: bool) -> HttpRequest | None:
        """In 0.3, the server's SDK decides how files are encoded: its error for an unknown task shows which it is."""
        if self._probed or not needs_probe(self.dialect, body, received=received):
            return None
        self._probed = True
        return self.build_request(Operation.GET, GetTaskRequest(str(uuid4())))

    def read_probe(self, headers: Mapping[str, str], body: bytes) -> None:
        self.dialect = after_probing(self.dialect, headers, body)

    def switch_method(self, operation: Operation) -> bool:
        """Only SubscribeToTask has two HTTP methods: POST in the specification's tables, GET in its protobuf."""
        if operation is not Operation.SUBSCRIBE:
            return False
        # Set, not toggled: several requests in flight would switch it back and forth.
        self._switched = True
        return True


def _query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
