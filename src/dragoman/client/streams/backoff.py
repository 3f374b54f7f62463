"""When a request is tried again, and the pauses in between."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from dragoman.clock import sleep
from dragoman.model.error import A2AError, CannotConnect, Overloaded, ServerError

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.model.error import DragomanError

# A logger of its own, for those who show what it says to a person who waits.
logger = logging.getLogger("dragoman.client.connection")

# The reasons of CannotConnect that may pass.
_TRANSIENT = ("CANNOT_CONNECT", "CONNECTION_LOST", "UNAVAILABLE")
FIRST_DELAY = 0.2
MAX_DELAY = 8.0
_MAX_DOUBLINGS = 16
_LONGEST_OUTAGE_PAUSE = 5.0
# How old a message may be that is sent again: servers recognize a repeat for ten minutes after they accepted it.
MAX_REPEAT_AGE = 540.0
# The longest Retry-After that is honored.
MAX_RETRY_AFTER = 60.0


def is_transient(problem: DragomanError) -> bool:
    """True for an error that may pass: a request that only reads can be repeated after it."""
    if isinstance(problem, CannotConnect):
        return problem.reason in _TRANSIENT
    if isinstance(problem, Overloaded) or problem.status == 429:
        return True
    # Any other error is the server's response, and stays the same.
    return isinstance(problem, ServerError) and (problem.status == 503 or "retryAfter" in problem.metadata)


def may_send_again(problem: DragomanError) -> bool:
    """True for an error after which a message can be sent again under its id.

    Either the agent has refused the message and says so, or there was no answer at all. Any other answer, even one that
    breaks off after its status, leaves open whether the message was run: a gateway may have lost an agent at work.
    """
    if not is_transient(problem) or (isinstance(problem, A2AError) and "taskId" in problem.metadata):
        return False  # with the id of a task, the agent has run the message
    if not isinstance(problem, CannotConnect) or problem.arrived is False or problem.status is None:
        return True
    return hasattr(problem, "retry_after")


def may_come_back(problem: DragomanError) -> bool:
    """True for an error that an agent which was there may cause while it restarts or its network is down."""
    if isinstance(problem, CannotConnect) and problem.arrived is False:
        return problem.reason in (*_TRANSIENT, "NO_SUCH_HOST", "TIMED_OUT")
    return is_transient(problem)


def interrupted_task(problem: DragomanError) -> str | None:
    """Return the id of the task whose answer was cut off because its server stops; None for other errors."""
    if not isinstance(problem, ServerError) or problem.metadata.get("interrupted") != "true":
        return None
    return problem.metadata.get("taskId")


class Backoff:
    """Exponential backoff with jitter: the first retry is immediate, later ones wait 0.2 s, 0.4 s … up to 8 s.

    The jitter takes up to half off, to keep many callers of one server from coming back together.
    """

    def __init__(self, retries: int, clock: Clock) -> None:
        self._retries = retries
        self._clock = clock
        self.failures = 0

    def reset(self) -> None:
        """Reset the count of consecutive failures."""
        self.failures = 0

    def covers(self, problem: DragomanError) -> bool:
        """True for an error after which a request that only reads is repeated."""
        return is_transient(problem)

    async def pause(self, problem: Exception) -> None:
        """Wait before the next retry, at least for the server's Retry-After. Raises `problem` when none are left."""
        self.failures += 1
        if self.failures > self._retries:
            raise problem
        await sleep(self._clock, self._delay(problem, MAX_DELAY))

    def _delay(self, problem: Exception, longest: float) -> float:
        delay = 0.0 if self.failures == 1 else min(longest, FIRST_DELAY * 2 ** min(self.failures - 2, _MAX_DOUBLINGS))
        delay *= 0.5 + random.random() / 2  # noqa: S311 - nothing secret
        return max(delay, min(getattr(problem, "retry_after", 0.0), MAX_RETRY_AFTER))


class Outage(Backoff):
    """The pauses after a connection was lost: growing up to 5 s, with jitter, for `seconds` after the first failure.

    `reset` marks a sign of life: the next failure begins another outage. Both ends are logged, the first as a warning.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        super().__init__(0, clock)
        self._seconds = seconds
        self._ends_at: float | None = None

    def reset(self) -> None:
        """End the outage, if there is one."""
        if self.failures > 1:
            logger.info("reconnected")
        self.failures, self._ends_at = 0, None

    def covers(self, problem: DragomanError) -> bool:
        """True for an error that may pass, however long a restart takes."""
        return may_come_back(problem)

    async def pause(self, problem: Exception) -> None:
        """Wait before the next attempt. Raises `problem` when the time is over."""
        now = self._clock.now() / 1000
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        remaining = self._ends_at - now
        if remaining <= 0:
            raise problem
        self.failures += 1
        if self.failures == 2:  # the first attempt is made at once: most losses are over by then
            logger.warning("connection lost; retrying for %g s …", self._seconds)
        await sleep(self._clock, min(self._delay(problem, _LONGEST_OUTAGE_PAUSE), remaining))


class SendBackoff(Backoff):
    """The retries of one message. Once its connection was lost, or it says so, the agent may be restarting.

    Then an `Outage` lasts until it can be reached again; losing the connection once more counts as a retry. A message
    that may have arrived is sent again only while the agent recognizes it: not long after `sent_ms`.
    """

    def __init__(self, retries: int, reconnect: float, clock: Clock, sent_ms: int) -> None:
        super().__init__(retries, clock)
        self._sent_ms = sent_ms
        self._may_have_arrived = False
        self._outage = Outage(reconnect, clock) if retries and reconnect else None
        self._was_lost = False

    def reset(self) -> None:
        """Reset the count of consecutive failures, and end an outage."""
        super().reset()
        if self._outage is not None:
            self._outage.reset()

    async def pause(self, problem: Exception) -> None:
        """Wait before the next attempt. Raises `problem` when no retry is left, or the message has become too old."""
        is_refusal = not isinstance(problem, CannotConnect) or problem.arrived is False
        self._may_have_arrived = self._may_have_arrived or not is_refusal
        is_stopping = isinstance(problem, ServerError) and not isinstance(problem, Overloaded)
        self._was_lost = self._was_lost or is_stopping or getattr(problem, "reason", "") == "CONNECTION_LOST"
        is_away = is_stopping or getattr(problem, "arrived", None) is False
        if self._outage is not None and self._was_lost and is_away:
            await self._outage.pause(problem)
        else:
            await super().pause(problem)
        if self._may_have_arrived and self._clock.now() - self._sent_ms > MAX_REPEAT_AGE * 1000:
            raise problem
