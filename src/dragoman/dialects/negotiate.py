"""Which dialect answers: the version header, the method name and the path decide, nothing else."""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from dragoman.dialects.reading.invalid import quoted
from dragoman.dialects.v01.dialect import LEGACY
from dragoman.dialects.v03.dialect import V03
from dragoman.dialects.v03_proto.dialect import V03Proto
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.error import MethodNotFound, VersionNotSupported
from dragoman.model.operation import Operation

if TYPE_CHECKING:
    from dragoman.dialects.dialect import CallingDialect

KNOWN_VERSIONS = ("0.1", "0.2", "0.3", "1.0", "1.1")


class Family(Enum):
    """How a method's dialect is chosen."""

    V1 = "1.1 if asked for, else 1.0"
    V03 = "0.3"
    V01 = "0.1"
    ORIGIN = "that of the task's creation, unless a version is asked for"


class Method(NamedTuple):
    """What a method name means."""

    operation: Operation
    family: Family


class Choice(NamedTuple):
    """The operation a method names and the dialect that reads its parameters.

    With `by_origin` the answer may be in another: see `Dialects.answering`.
    """

    operation: Operation
    dialect: CallingDialect
    by_origin: bool = False


METHODS: dict[str, Method] = {operation.value: Method(operation, Family.V1) for operation in Operation} | {
    "message/send": Method(Operation.SEND, Family.V03),
    "message/stream": Method(Operation.STREAM, Family.V03),
    "tasks/get": Method(Operation.GET, Family.ORIGIN),
    "tasks/cancel": Method(Operation.CANCEL, Family.ORIGIN),
    "tasks/resubscribe": Method(Operation.SUBSCRIBE, Family.ORIGIN),
    "tasks/pushNotificationConfig/set": Method(Operation.CREATE_PUSH, Family.V03),
    "tasks/pushNotificationConfig/get": Method(Operation.GET_PUSH, Family.V03),
    "tasks/pushNotificationConfig/list": Method(Operation.LIST_PUSH, Family.V03),
    "tasks/pushNotificationConfig/delete": Method(Operation.DELETE_PUSH, Family.V03),
    "agent/getAuthenticatedExtendedCard": Method(Operation.EXTENDED_CARD, Family.V03),
    "agent/authenticatedExtendedCard": Method(Operation.EXTENDED_CARD, Family.V03),
    "tasks/send": Method(Operation.SEND, Family.V01),
    "tasks/sendSubscribe": Method(Operation.STREAM, Family.V01),
    "tasks/pushNotification/set": Method(Operation.CREATE_PUSH, Family.V01),
    "tasks/pushNotification/get": Method(Operation.GET_PUSH, Family.V01),
}
_LONGEST = 2 * max(map(len, METHODS))
# Names the likeness of letters would not lead to.
_MEANT = {"tasks/list": "ListTasks", "tasks/subscribe": "tasks/resubscribe"}


def _names(*families: Family) -> dict[Operation, str]:
    # Where a version has two names for an operation, the first is the official one.
    found: dict[Operation, str] = {}
    for name, (operation, family) in METHODS.items():
        if family in families:
            found.setdefault(operation, name)
    return found


_NAMES = {
    "0.1": _names(Family.V01, Family.ORIGIN),
    "0.3": _names(Family.V03, Family.ORIGIN),
    "1.0": _names(Family.V1),
    "1.1": _names(Family.V1),
}


def method_of(operation: Operation, version: str) -> str:
    """What a version calls an operation.

    Raises:
        MethodNotFound: it has no such operation.
    """
    name = _NAMES[version].get(operation)
    if name is None:
        raise MethodNotFound(f"A2A {version} has no {operation}: ask for it in A2A 1.0")
    return name


def asked_version(header: str | None, query: str | None) -> str | None:
    """The `Major.Minor` a caller asks for; the header goes before the query parameter, empty is none.

    Raises:
        VersionNotSupported: nobody here speaks it; the error's metadata lists what is spoken.
    """
    asked = (header or "").strip() or (query or "").strip()
    if not asked:
        return None
    version = ".".join([*asked.split("."), "0"][:2])
    if version not in KNOWN_VERSIONS:
        supported = ", ".join(KNOWN_VERSIONS)
        raise VersionNotSupported(
            f"A2A version {quoted(asked)} is not spoken here; these are: {supported}", asked=asked, supported=supported
        )
    return version


class Dialects:
    """The dialects of one server. `blocking_by_default` is what a 0.3 request without `blocking` means.

    `legacy` is the 0.1 that is spoken here, where that is not the plain one.
    """

    def __init__(self, *, blocking_by_default: bool = True, legacy: CallingDialect = LEGACY) -> None:
        self.legacy = legacy
        self.v03 = V03(blocking_by_default=blocking_by_default)
        self.v03_proto = V03Proto(blocking_by_default=blocking_by_default)

    def for_method(self, method: str, asked: str | None) -> Choice:
        """Who reads a JSON-RPC method.

        Raises:
            MethodNotFound: there is no such method; the text names the nearest one.
        """
        found = METHODS.get(method)
        if found is None:
            raise MethodNotFound(f"Method not found: {quoted(method)}{_hint(method)}")
        operation, family = found
        if family is Family.V1:
            return Choice(operation, V1_1 if asked == "1.1" else V1_0)
        if family is Family.V01 or (family is Family.ORIGIN and asked == "0.1"):
            return Choice(operation, self.legacy)
        return Choice(operation, self.v03, family is Family.ORIGIN and asked is None)

    def for_rest(self, path_is_v1: bool, asked: str | None) -> CallingDialect:
        """Who reads and answers a REST request: a path under `/v1/` is 0.3's."""
        if path_is_v1:
            return self.v03_proto
        return V1_1 if asked == "1.1" else V1_0

    def answering(self, choice: Choice, origin: str) -> CallingDialect:
        """Who answers, once the tag of the task is known."""
        if not choice.by_origin or origin.partition("/")[0] != LEGACY.version:
            return choice.dialect
        return self.legacy if origin == self.legacy.origin else LEGACY

    def is_oldest(self, method: str, asked: str | None) -> bool:
        """True for a method of 0.1 that is called in no other version."""
        found = METHODS.get(method)
        return found is not None and found.family in (Family.V01, Family.ORIGIN) and asked in (None, LEGACY.version)


def _hint(method: str) -> str:
    spelled = {name.lower(): name for name in METHODS}
    # Comparing costs the square of the length, and no method is that long.
    near = get_close_matches(method.lower(), spelled, n=1) if len(method) <= _LONGEST else []
    meant = _MEANT.get(method) or (spelled[near[0]] if near else None)
    return f". Did you mean {meant!r}?" if meant else ""


DEFAULT = Dialects()
for_method = DEFAULT.for_method
for_rest = DEFAULT.for_rest
answering = DEFAULT.answering
