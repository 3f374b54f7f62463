"""Handles of logins: what `app.resume` takes to continue a task that waits for one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import NamedTuple

from dragoman.model.error import InvalidParams

_RANDOM_BYTES = 24
_SEPARATOR = "\n"
_UNUSABLE = (
    "this handle continues no task: resume takes the handle that ask_auth gives to url=, once, while the task waits "
    "for that login; a task id is not one"
)


class NamedTask(NamedTuple):
    """The task that a handle names. Anybody can write such a handle: only its digest tells whether it is genuine."""

    agent: str
    task_id: str


def new_handle(agent: str, task_id: str) -> str:
    """Make the handle of one pause: random, and with the task in it, so that it can be found."""
    name = base64.urlsafe_b64encode(f"{agent}{_SEPARATOR}{task_id}".encode()).decode().rstrip("=")
    return f"{secrets.token_urlsafe(_RANDOM_BYTES)}.{name}"


def digest_of(handle: str) -> str:
    """Return what is stored of a handle. It has enough random bits that a plain digest does not reveal it."""
    return hashlib.sha256(handle.encode(errors="replace")).hexdigest()


def is_genuine(handle: str, digest: str) -> bool:
    """Tell whether a handle has this digest, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(digest_of(handle), digest) if digest else False


def read_handle(handle: str) -> NamedTask:
    """Return the task that a handle names.

    Raises:
        InvalidParams: it is no handle.
    """
    # Callers of `app.resume` pass on what came in a query, or a mistake of their own.
    if not isinstance(handle, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unusable_handle()
    _, dot, name = handle.partition(".")
    try:
        decoded = base64.b64decode(name + "=" * (-len(name) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise unusable_handle() from None
    agent, separator, task_id = decoded.partition(_SEPARATOR)
    if not dot or not separator:
        raise unusable_handle()
    return NamedTask(agent, task_id)


def unusable_handle() -> InvalidParams:
    """Build the error for whatever continues no task. It does not say why: the handle may have been guessed."""
    return InvalidParams(_UNUSABLE, field="handle")
