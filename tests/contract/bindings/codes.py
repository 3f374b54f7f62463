"""The code of every error in every binding: one table, which each refusal of the contract is compared with."""

from __future__ import annotations

from typing import NamedTuple

from contract.bindings.transports import Refusal


class Codes(NamedTuple):
    """The code of JSON-RPC and the HTTP status it comes with, the HTTP status of REST, the status of gRPC."""

    rpc: int
    rpc_status: int
    rest: int
    grpc: str


CODES = {
    "INVALID_PARAMS": Codes(-32602, 200, 400, "INVALID_ARGUMENT"),
    "TASK_NOT_FOUND": Codes(-32001, 200, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": Codes(-32002, 200, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": Codes(-32003, 200, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": Codes(-32004, 200, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": Codes(-32005, 200, 415, "INVALID_ARGUMENT"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": Codes(-32007, 200, 400, "FAILED_PRECONDITION"),
    "EXTENSION_SUPPORT_REQUIRED": Codes(-32008, 200, 400, "FAILED_PRECONDITION"),
    "VERSION_NOT_SUPPORTED": Codes(-32009, 200, 400, "FAILED_PRECONDITION"),
    "TASK_GENERATION_MISMATCH": Codes(-32010, 200, 409, "ABORTED"),
    "METHOD_NOT_FOUND": Codes(-32601, 200, 404, "UNIMPLEMENTED"),
    "UNAUTHENTICATED": Codes(-31401, 401, 401, "UNAUTHENTICATED"),
    "PERMISSION_DENIED": Codes(-31403, 403, 403, "PERMISSION_DENIED"),
    "RESOURCE_EXHAUSTED": Codes(-32000, 429, 429, "RESOURCE_EXHAUSTED"),
    "INVALID_REQUEST": Codes(-32600, 413, 413, "INVALID_ARGUMENT"),
    "QUOTA_USED_UP": Codes(-32050, 200, 500, "INTERNAL"),  # the agent's own
}
# JSON-RPC of versions that do not know an error: another code, with the same text and reason.
OLDER_CODES = {
    ("0.3", "EXTENSION_SUPPORT_REQUIRED"): -32603,
    ("0.1", "EXTENSION_SUPPORT_REQUIRED"): -32603,
    ("0.3", "QUOTA_USED_UP"): -32603,
    ("0.1", "QUOTA_USED_UP"): -32603,
}


# What the library of gRPC refuses before anybody reads it: it has no details.
TOO_LARGE_FOR_GRPC = "RESOURCE_EXHAUSTED"
# 1.0 distinguishes an agent without the capability from one without the card; 0.3 has one error for both.
NO_EXTENDED_CARD_0_3 = -32007


def check_code(version: str, binding: str, reason: str, refusal: Refusal) -> None:
    """Fail the test unless a refusal has the code that its reason has in that binding."""
    if binding == "grpc":
        assert refusal.code == CODES[reason].grpc if reason else refusal.code == TOO_LARGE_FOR_GRPC
        return
    codes = CODES[reason]
    if binding == "rest":
        assert refusal.code == codes.rest
        return
    expected = OLDER_CODES.get((version, reason), codes.rpc)
    if version == "0.3" and "extendedAgentCard" in str(refusal.details):
        expected = NO_EXTENDED_CARD_0_3
    assert (refusal.code, refusal.status) == (expected, codes.rpc_status)
