"""The status codes of gRPC."""

from __future__ import annotations

# The statuses of google.rpc.Code by name, each with its number and the HTTP status it stands for.
CODES: dict[str, tuple[int, int]] = {
    "OK": (0, 200),
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "DATA_LOSS": (15, 500),
    "UNAUTHENTICATED": (16, 401),
}
_NAMES = {str(number): name for name, (number, _) in CODES.items()}


def status_name(number: str) -> str:
    """Return the name of a status; one that gRPC does not define is `UNKNOWN`."""
    return _NAMES.get(number, "UNKNOWN")


def http_status(name: str) -> int:
    """Return the HTTP status that a status stands for."""
    return CODES[name][1]
