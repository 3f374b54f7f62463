"""The version table: one row for each version and binding of A2A.

Nothing outside `dialects/` contains a version or compares with one: it takes a row and reads its fields, or takes a
name from here. `negotiate.dialect_of` returns the dialect of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.error import MethodNotFound
from dragoman.model.operation import Operation

V0_1: Final = "0.1"
V0_2: Final = "0.2"
V0_3: Final = "0.3"
V1_0: Final = "1.0"
V1_1: Final = "1.1"
VERSIONS = (V0_1, V0_2, V0_3, V1_0, V1_1)
JSONRPC: Final = "JSONRPC"
REST: Final = "HTTP+JSON"
GRPC: Final = "GRPC"

VERSION_HEADER = "A2A-Version"
# Headers arrive in lower case.
VERSION_HEADER_RECEIVED = VERSION_HEADER.lower()
EXTENSIONS_HEADERS = ("a2a-extensions", "x-a2a-extensions")
ADK_EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"


class ErrorEncoding(Struct, frozen=True):
    """The error format of a version.

    `typed`: the `data` of JSON-RPC errors is a list of typed details, and the specification prescribes the errors.
    Before, the typed details are not in the JSON-RPC error but beside it: one a2a-go reads `data` only as an object,
    its successor only as a list, and a2a-sdk 1.x knows no other member of an error; neither reads an error otherwise.
    REST bodies also hold what the SDKs of 0.3 read. `last_code` is the last A2A code that the version defines
    (`errors.py` maps later ones). `one_card_error`: an agent without the capability and one without the extended card
    get the same error.
    """

    typed: bool = False
    last_code: int = -32007
    one_card_error: bool = False


class WebhookFormat(Struct, frozen=True):
    """The payload of a webhook: single events (`events`), or the whole task at each status.

    `single`: a task has one webhook of this version, without an id; setting another replaces it.
    """

    media_type: str = "application/json"
    events: bool = False
    single: bool = False


class RestPath(NamedTuple):
    """The path of an operation over REST: the HTTP methods it is served with, and the one our client tries first."""

    verbs: tuple[str, ...]
    template: str
    client_verb: str


class CardFormat(NamedTuple):
    """Which keys a card has: those of 1.0 (`modern`), those only in 0.3 (`older`), or both."""

    modern: bool
    older: bool


CardVersion = Literal["both", "1.0", "0.3"]
CARD_FORMATS: dict[CardVersion, CardFormat] = {
    "both": CardFormat(modern=True, older=True),
    V1_0: CardFormat(modern=True, older=False),
    V0_3: CardFormat(modern=False, older=True),
}
_CARD_VERSIONS: dict[str, CardVersion] = {V1_0: V1_0, V1_1: V1_0, V0_3: V0_3}
# The `protocolVersion` of our 0.3 cards.
CARD_PROTOCOL_VERSION = "0.3.0"


class Row(Struct, frozen=True):
    """One version over one binding.

    `methods` are the JSON-RPC or gRPC methods of operations, `method_aliases` other names for them, `service` is the
    gRPC service they belong to; `paths` are those of REST, under `prefix`, after a tenant where `tenants` is set.
    `headers` are sent with every request, `extensions_header` is the response header of activated extensions, in lower
    case. `card_path` is the path of the interface on our cards.

    `asks`: callers can be asked for missing arguments. `returns_at_once`: a caller can get a result before the task
    has ended. `chooses_ids`: callers choose the id of a new task, and messages have none. `subscribes_again`: a
    further subscription is harmless; servers on a2a-sdk 0.3 store every event once per stream. `generations`: tasks
    and events are numbered. `counts_artifacts`: artifacts are identified by index, so a resumed stream needs the
    ids of the earlier ones. `errors_as_events`: the operations whose error, instead of a stream, is the one event
    of a stream. `alternative`: the version to try if a card's is wrong.
    """

    version: str
    binding: str
    methods: dict[Operation, str]
    paths: dict[Operation, RestPath]
    method_aliases: dict[str, Operation] = {}
    service: str = ""
    prefix: tuple[str, ...] = ()
    tenants: bool = True
    headers: dict[str, str] = {}
    extensions_header: str = ""
    errors: ErrorEncoding = ErrorEncoding()
    webhook: WebhookFormat = WebhookFormat()
    card_path: str = ""
    asks: bool = True
    returns_at_once: bool = True
    chooses_ids: bool = False
    subscribes_again: bool = True
    generations: bool = False
    counts_artifacts: bool = False
    errors_as_events: frozenset[Operation] = frozenset()
    alternative: str | None = None


def _path(template: str, *verbs: str, client_verb: str = "") -> RestPath:
    return RestPath(verbs, template, client_verb or verbs[0])


_WEBHOOK, _WEBHOOKS = "/tasks/{taskId}/pushNotificationConfigs/{id}", "/tasks/{taskId}/pushNotificationConfigs"
_PATHS_1 = {
    Operation.SEND: _path("/message:send", "POST"),
    Operation.STREAM: _path("/message:stream", "POST"),
    Operation.CANCEL: _path("/tasks/{id}:cancel", "POST"),
    # The specification's tables say POST, its protobuf says GET; servers implement either.
    Operation.SUBSCRIBE: _path("/tasks/{id}:subscribe", "POST", "GET"),
    Operation.GET: _path("/tasks/{id}", "GET"),
    Operation.LIST: _path("/tasks", "GET"),
    Operation.CREATE_PUSH: _path(_WEBHOOKS, "POST"),
    Operation.LIST_PUSH: _path(_WEBHOOKS, "GET"),
    Operation.GET_PUSH: _path(_WEBHOOK, "GET"),
    Operation.DELETE_PUSH: _path(_WEBHOOK, "DELETE"),
    Operation.EXTENDED_CARD: _path("/extendedAgentCard", "GET"),
}
_PATHS_03 = {operation: path for operation, path in _PATHS_1.items() if operation is not Operation.LIST} | {
    Operation.SUBSCRIBE: _path("/tasks/{id}:subscribe", "POST", "GET", client_verb="GET"),
    Operation.EXTENDED_CARD: _path("/card", "GET"),
}
_SHARED_METHODS = {
    Operation.GET: "tasks/get",
    Operation.CANCEL: "tasks/cancel",
    Operation.SUBSCRIBE: "tasks/resubscribe",
}

_RPC_1_0 = Row(
    V1_0,
    JSONRPC,
    methods={operation: operation.value for operation in Operation},
    paths=_PATHS_1,
    headers={VERSION_HEADER: V1_0},
    extensions_header=EXTENSIONS_HEADERS[0],
    errors=ErrorEncoding(typed=True),
    webhook=WebhookFormat("application/a2a+json", events=True),
    card_path="/a2a",
)
_RPC_1_1 = replace(_RPC_1_0, version=V1_1, headers={VERSION_HEADER: V1_1}, generations=True)
_RPC_0_3 = Row(
    V0_3,
    JSONRPC,
    methods={
        Operation.SEND: "message/send",
        Operation.STREAM: "message/stream",
        **_SHARED_METHODS,
        Operation.CREATE_PUSH: "tasks/pushNotificationConfig/set",
        Operation.GET_PUSH: "tasks/pushNotificationConfig/get",
        Operation.LIST_PUSH: "tasks/pushNotificationConfig/list",
        Operation.DELETE_PUSH: "tasks/pushNotificationConfig/delete",
        Operation.EXTENDED_CARD: "agent/getAuthenticatedExtendedCard",
    },
    paths=_PATHS_03,
    method_aliases={"agent/authenticatedExtendedCard": Operation.EXTENDED_CARD},
    prefix=("v1",),
    tenants=False,
    extensions_header=EXTENSIONS_HEADERS[1],
    errors=ErrorEncoding(one_card_error=True),
    card_path="/a2a",
    subscribes_again=False,
    # Over JSON-RPC only. The servers of the official SDKs do so, and some clients read nothing else.
    errors_as_events=frozenset({Operation.SUBSCRIBE}),
    alternative=V0_1,
)
_RPC_0_2 = replace(_RPC_0_3, version=V0_2, errors=ErrorEncoding(last_code=-32006))
_RPC_0_1 = Row(
    V0_1,
    JSONRPC,
    methods={
        Operation.SEND: "tasks/send",
        Operation.STREAM: "tasks/sendSubscribe",
        **_SHARED_METHODS,
        Operation.CREATE_PUSH: "tasks/pushNotification/set",
        Operation.GET_PUSH: "tasks/pushNotification/get",
    },
    paths={},
    tenants=False,
    errors=ErrorEncoding(last_code=-32004),
    webhook=WebhookFormat(single=True),
    card_path="/a2a",
    asks=False,
    returns_at_once=False,
    chooses_ids=True,
    counts_artifacts=True,
    alternative=V0_3,
)
_RPC = (_RPC_0_1, _RPC_0_2, _RPC_0_3, _RPC_1_0, _RPC_1_1)
ROWS: dict[tuple[str, str], Row] = {(row.version, JSONRPC): row for row in _RPC} | {
    (row.version, REST): replace(row, binding=REST, card_path="", alternative=None, errors_as_events=frozenset())
    for row in _RPC
    if row.paths
}
_GRPC_1_0 = replace(_RPC_1_0, binding=GRPC, paths={}, service="lf.a2a.v1.A2AService", card_path="")
_GRPC_0_3 = replace(
    _RPC_0_3,
    binding=GRPC,
    methods={
        **{operation: operation.value for operation in _RPC_0_3.methods},
        Operation.SUBSCRIBE: "TaskSubscription",
        Operation.LIST_PUSH: "ListTaskPushNotificationConfig",
        Operation.EXTENDED_CARD: "GetAgentCard",
    },
    method_aliases={},
    paths={},
    prefix=(),
    service="a2a.v1.A2AService",
    card_path="",
    alternative=None,
    errors_as_events=frozenset(),
)
_GRPC = (
    replace(_GRPC_0_3, version=V0_2, errors=_RPC_0_2.errors),
    _GRPC_0_3,
    _GRPC_1_0,
    replace(_GRPC_1_0, version=V1_1, headers=_RPC_1_1.headers, generations=True),
)
ROWS.update({(row.version, GRPC): row for row in _GRPC})
# The gRPC services, in the newest version of each package.
GRPC_ROWS = (_GRPC_1_0, _GRPC_0_3)
# The interfaces on our cards, best first; those of gRPC follow where it is served.
CARD_ROWS = tuple(ROWS[version, binding] for version in (V1_0, V1_1, V0_3) for binding in (JSONRPC, REST))
GRPC_CARD_ROWS = tuple(ROWS[version, GRPC] for version in (V1_0, V1_1, V0_3))
_NEAREST = {"0": V0_3, "1": V1_1}
# langgraph-api declares 1.0 and sends the events of 0.3, and of files it takes only those of 0.3, which it speaks well.
_FIRST_CHOICES = {"https://langchain.com/a2a/extensions/history-scope/v1": V0_3}
_OLDEST_METHODS, _METHODS_0_3 = frozenset(_RPC_0_1.methods.values()), frozenset(_RPC_0_3.methods.values())
_REST_PREFIXES = {row.prefix: row for row in (ROWS[V0_3, REST], ROWS[V1_0, REST])}


def row_of(version: str, binding: str = JSONRPC) -> Row:
    """Return the row of a version that is stored with a task or a webhook; an empty one means 1.0."""
    return ROWS[version or V1_0, binding]


def method_of(operation: Operation, version: str) -> str:
    """Return the JSON-RPC method of an operation.

    Raises:
        MethodNotFound: this version has no such operation.
    """
    name = ROWS[version, JSONRPC].methods.get(operation)
    if name is None:
        raise no_operation(operation, version)
    return name


def no_operation(operation: Operation, version: str) -> MethodNotFound:
    """Build the error for an operation that a version does not have."""
    return MethodNotFound(f"A2A {version} has no {operation}: ask for it in A2A {V1_0}")


def rest_row(segments: Sequence[str]) -> Row:
    """Return the row that a REST path belongs to: that of 0.3 under its prefix, else that of 1.0."""
    return _REST_PREFIXES.get(tuple(segments[:1]), ROWS[V1_0, REST])


def version_of_method(method: object, requested: str | None = None) -> str:
    """Return the version in which to send errors to the caller of a JSON-RPC method, by its name.

    Where 0.1 and 0.3 share a name, it is 0.3 unless the caller requested 0.1.
    """
    if not isinstance(method, str) or "/" not in method:
        return V1_0
    in_older = method in _OLDEST_METHODS and (method not in _METHODS_0_3 or major_minor(requested or "") == V0_1)
    return V0_1 if in_older else V0_3


def is_error_event(method: object, version: str) -> bool:
    """True when the error of a JSON-RPC method, instead of a stream, is the one event of a stream."""
    row = ROWS[version, JSONRPC]
    return any(row.methods[operation] == method for operation in row.errors_as_events)


def major_minor(text: str) -> str:
    """Return a version without its patch number."""
    return ".".join([*text.split("."), "0"][:2])


def card_version_of(requested: str) -> CardVersion:
    """Return which card a caller gets who names this version: exactly that of its version, else the one of both."""
    return _CARD_VERSIONS.get(major_minor(requested), "both") if "." in requested else "both"


def is_supported_major(text: str) -> bool:
    """True for a version such as `1.7` whose major number is supported; a bare `1` is not a version."""
    return text.partition(".")[0] in _NEAREST and "." in text


def nearest_version(text: str) -> str:
    """Return the version to use with an agent that declares this one: the same, or the nearest of its major number."""
    version = major_minor(text.lstrip("v"))
    return version if version in VERSIONS else _NEAREST.get(version.partition(".")[0], V1_0)


def first_choice_of(extensions: Iterable[str]) -> str | None:
    """Return the version to try before the declared one with an agent that declares these extensions, or None.

    They tell implementations apart, and some speak another version better than the one that they declare.
    """
    return next((_FIRST_CHOICES[uri] for uri in extensions if uri in _FIRST_CHOICES), None)
