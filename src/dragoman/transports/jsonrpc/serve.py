"""JSON-RPC 2.0 over HTTP POST, for every version of A2A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.dialects.errors import rpc_error
from dragoman.dialects.negotiate import asked_version
from dragoman.dialects.table import VERSION_HEADER, VERSION_HEADER_RECEIVED, version_of_method
from dragoman.engine.journal.follow import Stream
from dragoman.model.error import A2AError, InvalidParams, InvalidRequest, ParseError
from dragoman.transports.http import REQUEST, Disconnected, failure_of, refusal_headers, respond, status_of
from dragoman.transports.limits import LARGE
from dragoman.transports.sse import EventWriter, last_event_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.transports.endpoint import Endpoint
    from dragoman.transports.http import AsgiScope, Receive, Request, Send


class Envelope(msgspec.Struct):
    """A JSON-RPC request. Its parts are checked by hand, so that each mistake is named."""

    jsonrpc: Any = None
    method: Any = None
    id: Any = None
    params: msgspec.Raw = msgspec.Raw(b"")


_NONE = msgspec.Raw(b"")
_decode = msgspec.json.Decoder(Envelope).decode
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


def read_envelope(body: bytes) -> Envelope:
    """Read a request.

    Raises:
        ParseError: the body is not JSON.
        InvalidRequest: it is JSON, but not a request.
    """
    try:
        envelope = _decode(body)
    except msgspec.ValidationError:
        what = "batches are not supported" if body.lstrip().startswith(b"[") else "the request must be an object"
        raise InvalidRequest(what) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError("malformed JSON") from None
    except RecursionError:
        raise ParseError("the JSON is nested too deeply") from None
    if not isinstance(envelope.id, (str, int, float, type(None))) or isinstance(envelope.id, bool):
        envelope.id = None
        raise InvalidRequest("invalid request id: it must be a string, a number or null")
    return envelope


def _params(envelope: Envelope) -> bytes:
    """The parameters, once the envelope is right; it holds them no more. Raises InvalidRequest or InvalidParams."""
    if envelope.jsonrpc != "2.0":
        raise InvalidRequest('invalid jsonrpc version: "jsonrpc" must be "2.0"')
    if not isinstance(envelope.method, str) or not envelope.method:
        raise InvalidRequest('missing or invalid method: "method" must be a non-empty string')
    params = bytes(envelope.params).lstrip()
    if params and params != b"null" and not params.startswith(b"{"):
        raise InvalidParams("params must be an object", field="params")
    envelope.params = _NONE
    return params or b"{}"


class JsonRpc:
    """Answers JSON-RPC requests for one agent."""

    def __init__(self, endpoint: Endpoint, stranger: Callable[[], A2AError] | None = None) -> None:
        self._endpoint = endpoint
        self._stranger = stranger

    def for_strangers(self, error: Callable[[], A2AError]) -> JsonRpc:
        """The same, where callers without a name get that error from the oldest methods."""
        return JsonRpc(self._endpoint, error)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request that is let in; every error becomes a JSON-RPC error."""
        request: Request = scope[REQUEST]
        request_id: Any = None
        method: Any = None
        try:
            body = await request.json_body(self._endpoint.body_limit)
            if len(body) > LARGE:
                await request.turn()
            envelope = read_envelope(body)
            del body
            request_id = envelope.id
            method = envelope.method
            await self._answer(request, send, envelope)
        except A2AError as error:
            self._endpoint.denied(request, error)
            await _refuse(send, error, request_id, version_of_method(method))
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await _refuse(send, failure_of(error), request_id, version_of_method(method))

    async def refuse(self, request: Request, send: Send, error: A2AError, *, challenged: bool = False) -> None:
        """Answer a request that is not let in, and whose body nobody has read."""
        await _refuse(send, error, None, version_of_method(None))

    async def _answer(self, request: Request, send: Send, envelope: Envelope) -> None:
        endpoint = self._endpoint
        # Nobody else holds the text of a request: it is gone once it is decoded.
        raw = _params(envelope)
        is_large = len(raw) > LARGE
        if is_large:
            await request.turn()
        request.charge(raw, endpoint.limits.check(raw, "params"))
        asked = request.headers.get(VERSION_HEADER_RECEIVED), request.query.get(VERSION_HEADER)
        choice = endpoint.dialects.choose(envelope.method, *asked)
        if (
            self._stranger is not None
            and request.user is None
            and endpoint.dialects.is_oldest(envelope.method, asked_version(*asked))
        ):
            raise self._stranger()
        if is_large:
            await request.turn()
        params = choice.dialect.request(choice.operation, raw)
        del raw
        if is_large:
            await request.turn()
        call = endpoint.call(request, choice.dialect, params.tenant or "")
        answers, headers = endpoint.answers, request.headers
        after = last_event_id(headers) if "last-event-id" in headers else None
        if answers is None or not (choice.by_origin or choice.dialect is answers.dialect):
            outcome = await endpoint.perform(choice.operation, call, params, after, request)
        else:
            outcome = await answers.perform(endpoint, choice, call, params, after, request)
        dialect = endpoint.dialects.answering(choice, outcome.origin) if choice.by_origin else choice.dialect
        more = endpoint.headers(call, dialect, outcome) if call.extensions or outcome.repeat else ()
        prefix = b'{"jsonrpc":"2.0","id":%b,"result":' % msgspec.json.encode(envelope.id)
        if not isinstance(outcome.result, Stream):
            result = outcome.result
            if is_large:
                await request.turn()
            body = b"%b%b}" % (prefix, dialect.result(choice.operation, result))
            del outcome, result
            if len(body) <= LARGE:
                await respond(send, 200, body, headers=more)
                return
            with request.covering(len(body), anyway=not choice.operation.reads):
                await respond(send, 200, body, headers=more)
            return

        def error(problem: A2AError) -> bytes:
            failure = {"jsonrpc": "2.0", "id": envelope.id, "error": rpc_error(problem, dialect.version)}
            return msgspec.json.encode(failure)

        stream = outcome.result
        artifacts: tuple[str, ...] = ()
        if dialect.row.counts_artifacts and stream.artifacts is not None:
            artifacts = await stream.artifacts()
        writer = EventWriter(dialect, error, more, before=prefix, after=b"}", artifacts=artifacts)
        await writer.write(stream.batches, request, send)


async def _refuse(send: Send, error: A2AError, request_id: Any, version: str) -> None:
    body = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error(error, version)}
    await respond(send, status_of(error), msgspec.json.encode(body), headers=refusal_headers(error))
