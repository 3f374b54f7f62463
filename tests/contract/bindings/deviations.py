"""Where a binding or a version cannot have the conversation of the others: what it lacks or says instead, and why.

A test asks for what it needs with `@pytest.mark.needs("list")`; it runs for every caller that does not lack it.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.model.state import State

OLDER = ("0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")
BEFORE_1_1 = ("1.0-rpc", "1.0-rest", "1.0-grpc", *OLDER)
GRPC = ("1.0-grpc", "1.1-grpc", "0.3-grpc")
REST = ("1.0-rest", "1.1-rest", "0.3-rest")


class Lacks(NamedTuple):
    """Which callers lack something, and why."""

    callers: tuple[str, ...]
    reason: str


LACKS = {
    "list": Lacks(OLDER, "tasks are listed since 1.0"),
    "generations": Lacks(BEFORE_1_1, "tasks are numbered since 1.1"),
    "tenants": Lacks(OLDER, "there are tenants since 1.0"),
    "extended card": Lacks(("0.1-rpc",), "0.1 has one card"),
    "own extended card": Lacks(("0.1-rpc", "0.3-grpc"), "GetAgentCard of 0.3 is the card, whoever asks"),
    "bodies of JSON": Lacks(GRPC, "what is too large or too deep is refused by the library of gRPC and the decoder"),
    "ids with a slash": Lacks(("0.3-grpc",), "the proto of 0.3 names a task `tasks/ID`"),
    "message ids": Lacks(("0.1-rpc",), "messages of 0.1 have no id, so no repeat is recognized"),
    "messages": Lacks(("0.1-rpc",), "0.1 has no results but tasks"),
    "return immediately": Lacks(("0.1-rpc",), "a message of 0.1 always waits"),
    "tasks by id": Lacks(("0.1-rpc",), "an unknown id of 0.1 is that of a new task"),
    "contexts of messages": Lacks(("0.1-rpc",), "a message of 0.1 names its session beside it, not in it"),
    "webhooks by id": Lacks(("0.1-rpc",), "a task of 0.1 has one webhook, without an id"),
    "tasks in streams": Lacks(("0.1-rpc",), "a stream of 0.1 begins with a status, and no event has a context"),
    "references": Lacks(("0.1-rpc", "0.3-rest", "0.3-grpc"), "the proto of 0.3 and 0.1 have no references to tasks"),
    "empty history": Lacks(("0.3-rest", "0.3-grpc"), "proto3 cannot tell 0 from nothing, and nothing is unlimited"),
    "content types": Lacks(GRPC, "gRPC has one content type"),
    "exact numbers": Lacks(GRPC, "numbers of protobuf's Struct are doubles"),
}
# The word that a version has for a state which it does not know.
STATES = {
    ("0.1", State.REJECTED): State.FAILED,
    ("0.1", State.AUTH_REQUIRED): State.INPUT_REQUIRED,
}


def state_in(version: str, state: State) -> State:
    """The state as that version can tell it."""
    return STATES.get((version, state), state)
