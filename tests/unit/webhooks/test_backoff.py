"""When failures are followed by another try, and when by none."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from msgspec import structs

from dragoman.engine.ports.store import Push, PushState
from dragoman.webhooks import backoff

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
PUSH = Push(1, "p", "1.0", "https://h.example", b"", 1, NOW)


def failed(push: Push, now_ms: int = NOW, asked: float = 0.0) -> Push:
    return backoff.after_failure(push, "why", now_ms=now_ms, retry_after=asked, give_up_ms=DAY_MS)


def test_the_first_failure_is_the_beginning() -> None:
    push = failed(PUSH)
    assert (push.tries, push.failing_ms, push.state, push.error) == (1, NOW, PushState.OPEN, "why")
    assert NOW + 500 <= push.due_ms <= NOW + 1000


def test_after_a_day_and_enough_tries_it_is_dead() -> None:
    failing = structs.replace(PUSH, tries=backoff.MIN_TRIES, failing_ms=NOW - DAY_MS)
    assert failed(failing).state is PushState.DEAD
    assert failed(structs.replace(failing, tries=3)).state is PushState.OPEN
    assert failed(structs.replace(failing, failing_ms=NOW - DAY_MS + 1000)).state is PushState.OPEN


def test_a_failure_in_the_future_is_one_that_happens_now() -> None:
    push = failed(structs.replace(PUSH, tries=50, failing_ms=NOW + DAY_MS))
    assert (push.failing_ms, push.state) == (NOW, PushState.OPEN)


def test_very_many_tries_do_not_overflow() -> None:
    push = failed(structs.replace(PUSH, tries=10_000_000))
    assert 150_000 <= push.due_ms - NOW <= 300_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 17 ", 17),
        ("9" * 400, 999_999_999),
        ("-5", 0),
        ("1.5", 0),
        ("\u0663", 0),
        ("", 0),
        ("soon", 0),
        (formatdate(NOW / 1000 + 90, usegmt=True), 90),
        (formatdate(NOW / 1000 - 90, usegmt=True), 0),
        ("Mon, 01 Jan 99999 00:00:00 GMT", 0),
    ],
)
def test_what_retry_after_may_say(text: str, seconds: float) -> None:
    assert backoff.parse_retry_after(text, NOW) == seconds


def test_what_a_receiver_asks_for_is_never_less_than_the_back_off_and_an_hour_at_most() -> None:
    assert failed(PUSH, asked=0.1).due_ms >= NOW + 500
    assert failed(PUSH, asked=1e9).due_ms == NOW + 3_600_000
    assert backoff.seconds_until_due(structs.replace(PUSH, due_ms=NOW + 30 * DAY_MS), NOW) == 3600
    assert backoff.seconds_until_due(structs.replace(PUSH, due_ms=-1), NOW) == 0
