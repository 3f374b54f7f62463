"""When a webhook that failed is tried again, when it is given up, and the record of events it refused."""

from __future__ import annotations

import random
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports.store import PushState

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push

# Seconds. The first pause, and the longest of our own choice.
FIRST_DELAY = 1.0
MAX_DELAY = 300.0
# What a receiver may ask for with Retry-After.
MAX_RETRY_AFTER = 3600.0
# Nobody is given up after fewer tries: a clock that was moved, or a server that was away, is not their fault.
MIN_TRIES = 10
_SKIPPED_EVENT = re.compile(r"event \d+ was refused with HTTP \d{3} and skipped")


def after_failure(push: Push, reason: str, *, now_ms: int, retry_after: float, give_up_ms: int) -> Push:
    """The webhook after one more failure: due later, or dead."""
    since = min(push.failing_ms or now_ms, now_ms)
    tries = push.tries + 1
    failed = structs.replace(push, tries=tries, failing_ms=since, error=with_skipped_event(push, reason))
    if now_ms - since >= give_up_ms and tries >= MIN_TRIES:
        return structs.replace(failed, state=PushState.DEAD, due_ms=0)
    # Doubling without an end would not fit a float after a week.
    pause = min(MAX_DELAY, FIRST_DELAY * 2 ** min(tries - 1, 30)) * (0.5 + random.random() / 2)  # noqa: S311 - nothing secret
    pause = max(pause, min(retry_after, MAX_RETRY_AFTER))
    return structs.replace(failed, due_ms=now_ms + max(1, int(pause * 1000)))


def after_refusal(push: Push, generation: int, status: int) -> Push:
    """The webhook after its receiver refused an event for good. `Push.error` keeps the last such event."""
    return structs.replace(push, error=f"event {generation} was refused with HTTP {status} and skipped")


def skipped_event(push: Push) -> str:
    """What `Push.error` says of the last event that was refused and skipped; "" when none was."""
    match = _SKIPPED_EVENT.match(push.error)
    return "" if match is None else match[0]


def with_skipped_event(push: Push, reason: str) -> str:
    """An error that does not make a skipped event be forgotten."""
    return "; ".join(filter(None, (skipped_event(push), reason)))


def seconds_until_due(push: Push, now_ms: int) -> float:
    """Seconds until it may be tried again, also when the clock was set back since that was written."""
    return min(max(0.0, (push.due_ms - now_ms) / 1000), MAX_RETRY_AFTER)


def parse_retry_after(header: str, now_ms: int) -> float:
    """What `Retry-After` asks for, in seconds; 0 when it asks for nothing that can be understood."""
    header = header.strip()
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now_ms / 1000)
    except (ValueError, OverflowError):
        return 0.0
