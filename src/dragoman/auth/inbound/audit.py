"""The audit log: who was refused and what was administered, without secrets."""

from __future__ import annotations

import json
import logging
import re

# What would begin another line, or hide one.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[^\s=\"]+")
_LONGEST = 200


def _quoted(value: str) -> str:
    """A value that cannot be taken for two: an issuer's users have any name."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


class Audit:
    """Writes to the logger `dragoman.audit`; each record also has its words as fields of their own.

    Only names of users who exist are given to it: what a stranger types as a name may be a password.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("dragoman.audit")

    def record_denial(self, *, scheme: str, reason: str, user: str = "", address: str = "") -> None:
        """Somebody presented something that is wrong, or lacks a permission."""
        self._write(logging.WARNING, "denied", user, scheme, reason, address)

    def record_challenge(self, *, schemes: str, address: str = "") -> None:
        """Somebody presented nothing and was asked to. That happens to honest callers too."""
        self._write(logging.INFO, "asked", "", schemes, "nothing-presented", address)

    def record_sign_in(self, *, user: str, address: str = "") -> None:
        """Somebody signed in with a password in a browser."""
        self._write(logging.INFO, "signed-in", user, "login", "", address)

    def record_change(self, event: str, *, user: str) -> None:
        """A user was made or changed."""
        self._write(logging.INFO, event, user, "", "", "")

    def _write(self, level: int, event: str, user: str, scheme: str, reason: str, address: str) -> None:
        if not self._logger.isEnabledFor(level):
            return
        fields = {"event": event, "user": user, "scheme": scheme, "reason": reason, "address": address}
        clean = {name: _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)[:_LONGEST] for name, value in fields.items()}
        line = " ".join(f"{name}={_quoted(value)}" for name, value in clean.items() if value)
        self._logger.log(level, "%s", line, extra=clean)
