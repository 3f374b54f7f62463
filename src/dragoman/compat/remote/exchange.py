"""Helpers for requests to remote agents: build URLs, choose a guard, read responses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from dragoman.model.error import CannotConnect
from dragoman.model.json import decode_any
from dragoman.net.exchange import redact_url
from dragoman.net.guard import AddressGuard

_EXCERPT = 200
_PUBLIC = AddressGuard(setting="the guard's allow")


def guard_of(guard: AddressGuard | bool | None) -> AddressGuard | None:
    """Return the guard for the option `guard`: True stands for one that allows the public internet only."""
    if isinstance(guard, AddressGuard):
        return guard
    return _PUBLIC if guard else None


def join_url(base_url: str, path: str) -> str:
    """Return the URL of a path under a base URL; a trailing slash of the base is ignored.

    Raises:
        CannotConnect: the base URL is invalid.
    """
    if not _is_base_url(base_url):
        text = f"{redact_url(base_url)!r} is not a base URL: write it like https://agent.example.com"
        raise CannotConnect(text, reason="BAD_ADDRESS", arrived=False)
    return base_url.rstrip("/") + path


def _is_base_url(base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return is_valid and not parts.query and not parts.fragment


def json_object(body: bytes) -> dict[str, Any] | None:
    """Parse a body as a JSON object; None when it is anything else."""
    try:
        value = decode_any(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def is_success(status: int) -> bool:
    """True for a 2xx status."""
    return 200 <= status < 300


def status_line(status: int) -> str:
    """Format a status with its standard phrase: `HTTP 503 Service Unavailable`."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def describe_refusal(status: int, body: bytes) -> str:
    """Format an error response with the beginning of its body: `HTTP 503 — try later`. If empty: `status_line`."""
    text = " ".join(body[: 4 * _EXCERPT].decode(errors="replace").split())
    if not text:
        return status_line(status)
    return f"HTTP {status} — {text if len(text) <= _EXCERPT else text[:_EXCERPT] + '…'}"
