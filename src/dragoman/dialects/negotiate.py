"""Version negotiation: the version header, the method name and the path choose the dialect, nothing else.

How files are encoded in 0.3 over REST depends on the SDK of the peer, so there is a variant for each kind.
Also recognizes the one client that reads a stream in a way of its own.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.dialects import table
from dragoman.dialects.reading.invalid import quoted
from dragoman.dialects.table import ADK_EXTENSION, EXTENSIONS_HEADERS, GRPC, JSONRPC, REST, V0_1, V0_2, V0_3, VERSIONS
from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v03.dialect import V03, V03_RPC
from dragoman.dialects.v03_proto.dialect import (
    TWICE_ORIGIN,
    V03_PROTO,
    V03_PROTO_BARE,
    V03_PROTO_TWICE,
    V03Proto,
    takes_bare_webhooks,
)
from dragoman.dialects.v03_proto.file_bytes import (
    ONCE,
    PeerFormat,
    caller_format,
    grpc_server_format,
    has_files,
    server_format,
    shows_twice,
)
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.error import MethodNotFound, VersionNotSupported
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.dialects.dialect import CallingDialect
    from dragoman.model.message import Message

_DIALECTS: dict[tuple[str, str], CallingDialect] = {
    (V0_1, JSONRPC): V01_RPC,
    (V0_2, JSONRPC): V03_RPC,
    (V0_3, JSONRPC): V03_RPC,
    (V0_2, REST): V03_PROTO,
    (V0_3, REST): V03_PROTO,
    (V1_0.version, JSONRPC): V1_0,
    (V1_0.version, REST): V1_0,
    (V1_1.version, JSONRPC): V1_1,
    (V1_1.version, REST): V1_1,
    (V0_2, GRPC): V03_PROTO,
    (V0_3, GRPC): V03_PROTO,
    (V1_0.version, GRPC): V1_0,
    (V1_1.version, GRPC): V1_1,
}


# In the JSON of a request that creates a webhook.
_WEBHOOK = b'"pushNotificationConfig"'


class MethodMatch(NamedTuple):
    """The operation of a request and the dialect that reads its parameters.

    With `by_origin`, the origin of the task decides the dialect of the response: `Dialects.response_dialect`.
    """

    operation: Operation
    dialect: CallingDialect
    by_origin: bool = False


def _build_methods(version: str) -> dict[str, Operation]:
    row = table.row_of(version)
    return {name: operation for operation, name in row.methods.items()} | row.method_aliases


_METHODS_1, _METHODS_03, _METHODS_01 = map(_build_methods, (table.V1_0, V0_3, V0_1))
METHODS: dict[str, Operation] = _METHODS_1 | _METHODS_03 | _METHODS_01
SENDING_METHODS = frozenset(name for name, each in METHODS.items() if each in (Operation.SEND, Operation.STREAM))
_MAX_COMPARED = 2 * max(map(len, METHODS))
# Suggestions that a comparison of letters would not find.
_SUGGESTIONS = {"tasks/list": "ListTasks", "tasks/subscribe": "tasks/resubscribe"}

# On a task, it tells ADK's clients that the answer is in its artifacts, chunk by chunk. Then progress, too, has to say
# that it is not the answer. Tasks that are not streamed are read well without it.
ADK_MARK: dict[str, Any] = {ADK_EXTENSION: {"adk_agent_executor_v2": True}}
ADK_PROGRESS: dict[str, Any] = {"adk_thought": True}
_USER_INPUT, _PREFIX = "is_user_input", "adk_"


def dialect_of(version: str, binding: str) -> CallingDialect | None:
    """Return the dialect of a version and binding; None when there is none."""
    return _DIALECTS.get((version, binding))


def is_from_adk(message: Message, headers: Mapping[str, str]) -> bool:
    """True for a message of ADK's client, which takes the update that closes a streamed text for the whole of it.

    It marks the parts of its messages. Only some of its versions request an extension, and none does by default.
    `headers` are those of the request, in lower case.
    """
    for part in message.parts:
        if part.metadata and any(key == _USER_INPUT or key.startswith(_PREFIX) for key in part.metadata):
            return True
    for name in EXTENSIONS_HEADERS:
        requested = headers.get(name)
        if requested and ADK_EXTENSION in (uri.strip() for uri in requested.split(",")):
            return True
    return False


def webhook_dialect(version: str) -> CallingDialect:
    """Return the dialect of a webhook, by the version in which it was registered."""
    return _DIALECTS[table.row_of(version).version, JSONRPC]


def requested_version(header: str | None, query: str | None) -> str | None:
    """Return the requested version as `Major.Minor`, or None. The header takes precedence over the query parameter.

    Raises:
        VersionNotSupported: it is not supported; the error's metadata lists those that are.
    """
    text = (header or "").strip() or (query or "").strip()
    if not text:
        return None
    version = table.major_minor(text)
    if version not in VERSIONS:
        supported = ", ".join(VERSIONS)
        raise VersionNotSupported(
            f"A2A version {quoted(text)} is not spoken here; these are: {supported}", asked=text, supported=supported
        )
    return version


class Dialects:
    """The dialects of one server. `blocking_by_default` says whether a 0.3 request without `blocking` blocks.

    `legacy` is the dialect of 0.1, where a plug-in replaces the standard one. With `strict_files`, the files of 0.3
    over REST are as the protocol says, whatever the caller's SDK does.
    """

    def __init__(
        self, *, blocking_by_default: bool = True, legacy: CallingDialect = V01_RPC, strict_files: bool = False
    ) -> None:
        self.legacy = legacy
        self.v03 = V03(blocking_by_default=blocking_by_default)
        self._blocking = blocking_by_default
        self._strict_files = strict_files
        self._v03_proto: dict[PeerFormat, V03Proto] = {}
        requested = (None, *VERSIONS)
        self._matches = {(name, version): self._match(name, version) for name in METHODS for version in requested}

    def _match(self, method: str, version: str | None) -> MethodMatch:
        operation = METHODS[method]
        if method in _METHODS_1:
            return MethodMatch(operation, _v1_dialect(version))
        is_shared = method in _METHODS_03 and method in _METHODS_01
        if method not in _METHODS_03 or (is_shared and version == V0_1):
            return MethodMatch(operation, self.legacy)
        return MethodMatch(operation, self.v03, is_shared and version is None)

    def match_request(self, method: str, header: str | None, query: str | None) -> MethodMatch:
        """Find the operation and dialect of a JSON-RPC method, by the requested version.

        Raises:
            VersionNotSupported: that version is not supported.
            MethodNotFound: there is no such method; the text names the nearest one.
        """
        match = self._matches.get((method, header or query or None))
        return self.for_method(method, requested_version(header, query)) if match is None else match

    def for_method(self, method: str, version: str | None) -> MethodMatch:
        """Find the operation and dialect of a JSON-RPC method in a supported version.

        Raises:
            MethodNotFound: there is no such method; the text names the nearest one.
        """
        match = self._matches.get((method, version))
        if match is None:
            raise MethodNotFound(f"Method not found: {quoted(method)}{_suggest(method)}")
        return match

    def match_row(
        self, operation: Operation, row: table.Row, version: str | None, user_agent: str = "", body: bytes | None = None
    ) -> MethodMatch:
        """Find the dialect of a request whose REST path, or gRPC service, belongs to that row.

        In 0.3, the caller's SDK decides how files are encoded: its User-Agent and its body show which it is.
        """
        if row.version == table.V1_0:
            return MethodMatch(operation, _v1_dialect(version))
        files = ONCE if self._strict_files else caller_format(user_agent, body)
        return MethodMatch(operation, self._with_files(files), by_origin=files.guessed)

    def _with_files(self, files: PeerFormat) -> V03Proto:
        dialect = self._v03_proto.get(files)
        if dialect is None:
            dialect = self._v03_proto[files] = V03Proto(blocking_by_default=self._blocking, files=files)
        return dialect

    def response_dialect(self, match: MethodMatch, origin: str) -> CallingDialect:
        """Return the dialect of the response, once the origin of the task is known."""
        dialect = match.dialect
        if not match.by_origin:
            return dialect
        if isinstance(dialect, V03Proto):
            return self._with_files(dialect.files._replace(twice=True)) if origin == TWICE_ORIGIN else dialect
        if origin.partition("/")[0] != V01_RPC.version:
            return dialect
        return self.legacy if origin == self.legacy.origin else V01_RPC


def after_reading(dialect: CallingDialect, body: bytes) -> CallingDialect:
    """Return the dialect in which to read this body of a server, and to go on with it."""
    return V03_PROTO_TWICE if dialect is V03_PROTO and shows_twice(body) else dialect


def needs_probe(dialect: CallingDialect, body: bytes, *, received: bool) -> bool:
    """True when it is not known how a server has encoded the files in this body, or reads what it is to get."""
    if dialect is not V03_PROTO:
        return False
    return needs_file_probe(dialect, body, received=received) or (not received and _WEBHOOK in body)


def needs_file_probe(dialect: CallingDialect, body: bytes, *, received: bool) -> bool:
    """True when it is not known how a server over gRPC encodes the files in this body: only they are open there."""
    return dialect is V03_PROTO and has_files(body) and not (received and shows_twice(body) is not None)


def after_probing(dialect: CallingDialect, headers: Mapping[str, str], body: bytes) -> CallingDialect:
    """Return the dialect in which to go on with a server that answers a request for an unknown task with this."""
    if dialect is not V03_PROTO:
        return dialect
    if server_format(headers, body).twice:
        return V03_PROTO_TWICE
    return V03_PROTO_BARE if takes_bare_webhooks(body) else dialect


def after_grpc_probing(dialect: CallingDialect, message: str, *, detailed: bool) -> CallingDialect:
    """Return the dialect in which to go on with a server whose error for an unknown task has this text over gRPC.

    `detailed`: the error had details, too.
    """
    is_twice = dialect is V03_PROTO and grpc_server_format(message, detailed=detailed).twice
    return V03_PROTO_TWICE if is_twice else dialect


def _v1_dialect(version: str | None) -> CallingDialect:
    return V1_1 if version == V1_1.version else V1_0


def _suggest(method: str) -> str:
    names = {name.lower(): name for name in METHODS}
    # Comparing takes quadratic time, and no method is that long.
    near = get_close_matches(method.lower(), names, n=1) if len(method) <= _MAX_COMPARED else []
    suggestion = _SUGGESTIONS.get(method) or (names[near[0]] if near else None)
    return f". Did you mean {suggestion!r}?" if suggestion else ""
