"""Which path and method is which operation."""

from __future__ import annotations

from typing import NamedTuple

from dragoman.model.error import MethodNotFound
from dragoman.model.operation import Operation

# Words that stand at the beginning of other paths can never be tenants.
NOT_TENANTS = frozenset(
    {"a2a", "v1", "agents", "api", ".well-known", "tasks", "extendedAgentCard", "healthz", "readyz"}
)
_PUSH = "pushNotificationConfigs"


class Route(NamedTuple):
    """An operation with what its path says."""

    operation: Operation
    params: dict[str, str]
    tenant: str = ""


class NotAllowed(MethodNotFound):
    """The path exists, but not with this method; `allow` are those it has."""

    def __init__(self, allow: str) -> None:
        super().__init__(f"use {allow} here")
        self.allow = allow


def find(method: str, segments: list[str], *, v03: bool) -> Route:
    """Find the operation for the words of a path, relative to its binding's root.

    Raises:
        MethodNotFound: there is no such path.
        NotAllowed: there is, with another method.
    """
    tenant = ""
    if not v03 and len(segments) > 1 and segments[0] not in NOT_TENANTS:
        tenant, segments = segments[0], segments[1:]
    choices = _choices(segments, v03=v03)
    if not choices:
        raise MethodNotFound("there is nothing at this path")
    if method not in choices:
        raise NotAllowed(", ".join(choices))
    operation, params = choices[method]
    return Route(operation, params, tenant)


def _choices(segments: list[str], *, v03: bool) -> dict[str, tuple[Operation, dict[str, str]]]:
    match segments:
        case ["message:send"]:
            return {"POST": (Operation.SEND, {})}
        case ["message:stream"]:
            return {"POST": (Operation.STREAM, {})}
        case ["card"] if v03:
            return {"GET": (Operation.EXTENDED_CARD, {})}
        case ["extendedAgentCard"] if not v03:
            return {"GET": (Operation.EXTENDED_CARD, {})}
        case ["tasks"] if not v03:
            return {"GET": (Operation.LIST, {})}
        case ["tasks", task]:
            return _task(task)
        case ["tasks", task, "pushNotificationConfigs"]:
            return {
                "POST": (Operation.CREATE_PUSH, {"taskId": task}),
                "GET": (Operation.LIST_PUSH, {"taskId": task}),
            }
        case ["tasks", task, "pushNotificationConfigs", config]:
            return {
                "GET": (Operation.GET_PUSH, {"taskId": task, "id": config}),
                "DELETE": (Operation.DELETE_PUSH, {"taskId": task, "id": config}),
            }
        case _:
            return {}


def _task(text: str) -> dict[str, tuple[Operation, dict[str, str]]]:
    task, _, verb = text.rpartition(":")
    if verb == "cancel" and task:
        return {"POST": (Operation.CANCEL, {"id": task})}
    if verb == "subscribe" and task:
        # The specification's table says POST and its protobuf says GET.
        return {"POST": (Operation.SUBSCRIBE, {"id": task}), "GET": (Operation.SUBSCRIBE, {"id": task})}
    return {"GET": (Operation.GET, {"id": text})}
