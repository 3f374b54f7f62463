"""Decides the retry delay of a failed webhook delivery (`retry_delay`) and when a webhook is given up.

It also keeps, in `Push.error`, the last event that a receiver refused for good.
"""

from __future__ import annotations

import random
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports.store import PushState

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push

# Seconds: the delay before the first retry, and the upper bound of the exponential backoff.
FIRST_DELAY = 1.0
MAX_DELAY = 300.0
# Seconds: the longest delay that a receiver can ask for with Retry-After.
MAX_RETRY_AFTER = 3600.0
# A webhook is not given up after fewer tries, however long it has failed: the clock may have been moved, or this server
# may have been down.
MIN_TRIES = 10
_SKIPPED_EVENT = re.compile(r"event \d+ was refused with HTTP \d{3} and skipped")


def after_failure(push: Push, reason: str, *, now_ms: int, retry_after: float, give_up_ms: int) -> Push:
    """Return the webhook after one more failure: due again after `retry_delay`, or dead.

    It is dead once it has failed for `give_up_ms` and at least `MIN_TRIES` times. `retry_after` is what the receiver
    asked for, in seconds; 0 when it asked for nothing.
    """
    since = min(push.failing_ms or now_ms, now_ms)
    tries = push.tries + 1
    failed = structs.replace(push, tries=tries, failing_ms=since, error=with_skipped_event(push, reason))
    if now_ms - since >= give_up_ms and tries >= MIN_TRIES:
        return structs.replace(failed, state=PushState.DEAD, due_ms=0)
    return structs.replace(failed, due_ms=now_ms + max(1, int(retry_delay(tries, retry_after) * 1000)))


def retry_delay(tries: int, retry_after: float = 0.0) -> float:
    """Return how many seconds to wait after `tries` failed tries: exponential backoff with jitter.

    The delay doubles from `FIRST_DELAY` up to `MAX_DELAY`; half of it is random. A receiver that asks for more with
    Retry-After gets it, up to `MAX_RETRY_AFTER`.
    """
    # The exponent is bounded because 2 ** 1024 does not fit a float.
    backoff = min(MAX_DELAY, FIRST_DELAY * 2 ** min(tries - 1, 30)) * (0.5 + random.random() / 2)  # noqa: S311 - jitter
    return max(backoff, min(retry_after, MAX_RETRY_AFTER))


def after_refusal(push: Push, generation: int, status: int) -> Push:
    """Return the webhook after its receiver refused an event for good. `Push.error` keeps the last such event."""
    return structs.replace(push, error=f"event {generation} was refused with HTTP {status} and skipped")


def skipped_event(push: Push) -> str:
    """Return what `Push.error` says about the last refused and skipped event; "" when there is none."""
    match = _SKIPPED_EVENT.match(push.error)
    return "" if match is None else match[0]


def with_skipped_event(push: Push, reason: str) -> str:
    """Return an error text that still names the last skipped event."""
    return "; ".join(filter(None, (skipped_event(push), reason)))


def seconds_until_due(push: Push, now_ms: int) -> float:
    """Return how many seconds remain until the next try; bounded, in case the clock was set back meanwhile."""
    return min(max(0.0, (push.due_ms - now_ms) / 1000), MAX_RETRY_AFTER)


def parse_retry_after(header: str, now_ms: int) -> float:
    """Parse a `Retry-After` header, a number of seconds or a date, into seconds; 0 when it is neither."""
    header = header.strip()
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now_ms / 1000)
    except (ValueError, OverflowError):
        return 0.0
