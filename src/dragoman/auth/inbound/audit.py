"""The audit log: refused callers, sign-ins and changes to users, without secrets."""

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

    def record_denial(self, *, scheme: str, reason: str, user: str = "", address: str = "") -> None:
        """Record a caller whose credential is wrong or who lacks a permission."""
        self._write(logging.WARNING, "denied", user, scheme, reason, address)

    def record_challenge(self, *, schemes: str, address: str = "") -> None:
        """Record a caller who sent no credential and was challenged. Honest callers do that too."""
        self._write(logging.INFO, "asked", "", schemes, "nothing-presented", address)

    def record_sign_in(self, *, user: str, address: str = "") -> None:
        """Record a sign-in with a password in a browser."""
        self._write(logging.INFO, "signed-in", user, "login", "", address)

    def record_change(self, event: str, *, user: str) -> None:
        """Record that a user was created or changed."""
        self._write(logging.INFO, event, user, "", "", "")

    def _write(self, level: int, event: str, user: str, scheme: str, reason: str, address: str) -> None:
        if not self._logger.isEnabledFor(level):
            return
        fields = {"event": event, "user": user, "scheme": scheme, "reason": reason, "address": address}
        clean = {name: _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)[:_MAX_VALUE] for name, value in fields.items()}
        line = " ".join(f"{name}={_quoted(value)}" for name, value in clean.items() if value)
        self._logger.log(level, "%s", line, extra=clean)
