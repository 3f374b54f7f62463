"""The audit log: who was refused, signed in, canceled a task or changed users and the store; without secrets."""

from __future__ import annotations

import json
import logging
import re

# Characters that would start another line, or hide one.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[^\s=\"]+")
_MAX_VALUE = 200


def _quoted(value: str) -> str:
    """Quote a value that has spaces, quotes or equals signs: the users of an issuer may have any name."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


class Audit:
    """Writes to the logger `dragoman.audit`. Each record also carries its words as separate fields.

    Callers pass only names of users who exist: what somebody types as an unknown name may be a password.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("dragoman.audit")

    def record_denial(
        self, *, scheme: str, reason: str, user: str = "", address: str = "", agent: str = "", task: str = ""
    ) -> None:
        """Record a caller whose credential is wrong, who lacks a permission, or who names the task of another."""
        fields = {"user": user, "scheme": scheme, "reason": reason, "address": address, "agent": agent, "task": task}
        self._write(logging.WARNING, "denied", fields)

    def record_challenge(self, *, schemes: str, address: str = "") -> None:
        """Record a caller who sent no credential and was challenged. Honest callers do that too."""
        self._write(logging.INFO, "asked", {"scheme": schemes, "reason": "nothing-presented", "address": address})

    def record_sign_in(self, *, user: str = "", scheme: str = "login", address: str = "") -> None:
        """Record a sign-in in a browser, with a password, or with the token of the console, which has no user."""
        self._write(logging.INFO, "signed-in", {"user": user, "scheme": scheme, "address": address})

    def record_sign_out(self, *, user: str = "", scheme: str = "login", address: str = "") -> None:
        """Record that a user, or who had the token of the console, has signed out in a browser."""
        self._write(logging.INFO, "signed-out", {"user": user, "scheme": scheme, "address": address})

    def record_cancel(self, *, user: str, agent: str, task: str, by: str = "") -> None:
        """Record that a caller has canceled a task, or `by` has for them; `user` is empty for an anonymous one."""
        self._write(logging.INFO, "canceled", {"user": user, "agent": agent, "task": task, "by": by})

    def record_change(self, event: str, *, by: str, **fields: str) -> None:
        """Record what an administrator has done, of that name on their machine; `user` is whose account it was."""
        self._write(logging.INFO, event, {**fields, "by": by})

    def _write(self, level: int, event: str, fields: dict[str, str]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        clean = {
            name: _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)[:_MAX_VALUE]
            for name, value in {"event": event, **fields}.items()
            if value
        }
        line = " ".join(f"{name}={_quoted(value)}" for name, value in clean.items())
        self._logger.log(level, "%s", line, extra=clean)
