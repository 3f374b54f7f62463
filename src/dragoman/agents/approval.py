"""What a caller says when asked whether something may be done."""

from __future__ import annotations

import re
from typing import Any, cast

from msgspec import Struct

_YES = frozenset({"yes", "y", "ok", "okay", "sure", "true", "approve", "approved", "confirm", "confirmed", "go ahead"})
_NO = frozenset({"no", "n", "nope", "false", "reject", "rejected", "deny", "denied", "decline", "declined", "don't"})
_KEYS = frozenset({"approved", "confirmed", "message"})


class Approval(Struct, frozen=True):
    """Yes or no, and with a no the caller's reason, where one was given."""

    approved: bool
    message: str | None = None


def approval_of(answer: Any) -> Approval | None:
    """Read a yes or a no; None when it is neither.

    Takes a truth value, `{"approved": false, "message": "too much"}`, or a text. A yes must say nothing else: "yes,
    but only half of it" does not approve what was shown. A no may go on, and the text is its reason.
    """
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, dict):
        return _of_data(cast("dict[str, Any]", answer))
    if not isinstance(answer, str):
        return None
    words = " ".join(answer.casefold().replace("\u2019", "'").split()).strip(" .!")
    if words in _YES:
        return Approval(True)
    if words in _NO:
        return Approval(False)
    return Approval(False, answer.strip()) if re.split(r"[^\w']", words, maxsplit=1)[0] in _NO else None


def _of_data(answer: dict[str, Any]) -> Approval | None:
    verdict = answer.get("approved", answer.get("confirmed"))
    message = answer.get("message")
    # What else it may want, such as other arguments, would not be done: so it is no answer.
    if not isinstance(verdict, bool) or not answer.keys() <= _KEYS or not isinstance(message, str | None):
        return None
    return Approval(verdict, None if verdict else message)
