"""What a client needs from whatever carries its requests."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import urljoin

from dragoman.clock import sleep
from dragoman.model.error import AuthError, BadResponse, ResponseTooLarge
from dragoman.model.json import encode
from dragoman.net.exchange import MAX_RESPONSE, format_size, origin_of, redact_url
from dragoman.telemetry import trace

if TYPE_CHECKING:
    from dragoman.auth.outbound.credential import Credential
    from dragoman.clock import Clock
    from dragoman.dialects.dialect import Result
    from dragoman.model.card import AgentCard
    from dragoman.model.error import DragomanError
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message
    from dragoman.model.operation import Operation, Request, SendMessageRequest, SubscribeToTaskRequest
    from dragoman.model.task import Task
    from dragoman.net.exchange import CallNext, HttpClient, HttpRequest, HttpResponse, Interceptor


class StreamEvent(Protocol):
    """An event as it comes: `generation` is its number in the task, 0 when the server does not number."""

    @property
    def generation(self) -> int:
        """The number, or 0."""
        ...

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event itself."""
        ...


class Connection(Protocol):
    """One agent, reachable."""

    @property
    def clock(self) -> Clock:
        """Whose time passes while it is waited for."""
        ...

    @property
    def cached_card(self) -> AgentCard | None:
        """The agent's card, if it is known already."""
        ...

    @property
    def reached(self) -> bool:
        """True once the agent, or whoever is in its place, has answered."""
        ...

    @property
    def can_resubscribe(self) -> bool:
        """False where a further subscription to a task may do harm."""
        ...

    async def open(self) -> None:
        """Make ready."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def card(self) -> AgentCard:
        """The agent's card. Raises BadCard or CannotConnect."""
        ...

    async def perform(self, operation: Operation, request: Request) -> Result:
        """Carry out an operation whose answer is no stream, trying again where that is safe.

        Raises:
            A2AError: the agent says no.
            CannotConnect: nobody answers.
        """
        ...

    def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        budget: ByteBudget | None = None,
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Follow events until the stream ends or breaks; nothing is tried again here.

        What comes over a wire is counted by `budget`.

        Raises:
            A2AError: the agent says no.
            CannotConnect: nobody answers, or no more.
            ResponseTooLarge: the task brings more than its limit.
        """
        ...


# What one task may bring unless the caller says otherwise.
DEFAULT_LIMIT = MAX_RESPONSE


class ByteBudget:
    """Counts one task over all its streams and readings. `limit` is in bytes; None counts and refuses nothing.

    What streams bring counts as it comes, unpacked and with everything around it. A further stream may begin with a
    copy of what is known already: until its first event is whole it counts by itself, and of a copy only what is new.
    """

    __slots__ = ("_limit", "_total", "_uncounted")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        # What has come of a further stream whose first event is not whole; None when there is no such stream.
        self._uncounted: int | None = None

    def begin_stream(self, *, resumed: bool) -> None:
        """A stream of the task begins, the first or a further one."""
        self._uncounted = 0 if resumed else None

    def add(self, size: int) -> None:
        """Count bytes. Raises ResponseTooLarge when they are too many."""
        if self._uncounted is not None:
            size = self._uncounted = self._uncounted + size
        else:
            size = self._total = self._total + size
        if self._limit is not None and size > self._limit:
            raise task_too_large(self._limit)

    def count_first_event(self, snapshot: object) -> None:
        """The first event of a further stream is whole; `copy` is it when it shows the task anew, else None."""
        if self._uncounted is not None:
            size, self._uncounted = self._uncounted, None
            self.add(size if snapshot is None else max(0, size - len(encode(snapshot))))

    def add_events(self, events: Iterable[object]) -> None:
        """Count events that were read and not streamed. Raises ResponseTooLarge when they are too many."""
        if self._limit is not None:
            self.add(sum(len(encode(each)) for each in events))


def task_too_large(limit: int) -> ResponseTooLarge:
    """The error for a task that brings more than its limit."""
    return ResponseTooLarge(
        f"the task has brought more than {format_size(limit)}, and nothing more of it is read. {LIMIT_HINT}",
        limit=limit,
    )


LIMIT_HINT = "To allow more, raise `limit` of the Client, or `--limits-remote-bytes` of the command"


@runtime_checkable
class InProcess(Protocol):
    """Anything that can be called without a network: an Agent, a Server."""

    def in_process(self) -> Connection:
        """A connection to it in this process."""
        ...


_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5


class Sender:
    """The way out. `origin` is the only one that credentials and the caller's own headers are sent to.

    Without an origin everything is: there is nobody else behind an app in this process.
    """

    def __init__(
        self,
        http: HttpClient,
        *,
        origin: str | None,
        credential: Credential | None = None,
        headers: Mapping[str, str] | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.http = http
        self.origin = origin and origin_of(origin)
        self.credential = credential
        self._headers = dict(headers or {})
        self._next: CallNext = http.send
        for interceptor in reversed(interceptors):
            self._next = _wrap(interceptor, self._next)
        # Where there is nothing to keep from others, nobody need look whose a URL is.
        self._has_nothing_private = credential is None and not self._headers

    async def send(
        self, request: HttpRequest, card: AgentCard | None = None, *, anonymous: bool = False
    ) -> HttpResponse:
        """Send a request and wait for the head of its answer; `anonymous` leaves the credentials out.

        Raises:
            CannotConnect: nobody answers.
            BadResponse: it redirects to another origin.
            AuthError: the credentials cannot be had.
        """
        trace.inject(request.headers)
        same_origin = self._has_nothing_private or self.origin is None or origin_of(request.url) == self.origin
        if same_origin and self._headers:
            request.headers.update(self._headers)
        credential = None if anonymous or not same_origin else self.credential
        if credential is None:
            response = await self._next(request)
        else:
            url, headers = request.url, dict(request.headers)
            await credential.apply(request, card, self.http)
            response = await self._next(request)
            if response.status == 401 and credential.reject():
                await response.close()
                # Once more with a new one: the old may just have run out.
                request.url, request.headers = url, headers
                await credential.apply(request, card, self.http)
                response = await self._next(request)
        hops = 0
        while response.status in _REDIRECTS:
            hops += 1
            await self._follow_redirect(request, response, hops)
            if credential is not None:  # one in the query has been left behind
                await credential.apply(request, card, self.http)
            response = await self._next(request)
        if response.status == 401 and self.credential is not None and not same_origin:
            await response.close()
            raise AuthError(
                f"{origin_of(request.url)} wants credentials, and those given are for {self.origin} alone. "
                "Make a Client for that address if you trust it",
                status=401,
            )
        return response

    @staticmethod
    async def _follow_redirect(request: HttpRequest, response: HttpResponse, hops: int) -> None:
        """Turn a request to where its answer sends it, if that is the same place."""
        location = response.headers.get("Location", "")
        await response.close()
        target, here = _join_url(request.url, location), redact_url(request.url)
        if target is None or origin_of(target) != origin_of(request.url):
            raise BadResponse(
                f"{here} sends callers on to {redact_url(target) if target else 'nowhere'}: "
                "nothing is sent to another origin. Call that address if you trust it",
                status=response.status,
            )
        if hops > _MAX_REDIRECTS:
            raise BadResponse(f"{here} sends callers round in circles", status=response.status)
        if response.status in (301, 302, 303) and request.method == "POST":
            raise BadResponse(
                f"{here} sends a POST on to {redact_url(target)} with HTTP {response.status}: call that address",
                status=response.status,
            )
        request.url = target


def _join_url(url: str, location: str) -> str | None:
    try:
        return urljoin(url, location) if location else None
    except ValueError:
        return None


def _wrap(interceptor: Interceptor, call_next: CallNext) -> CallNext:
    async def call(request: HttpRequest) -> HttpResponse:
        return await interceptor(request, call_next)

    return call


# Why nobody answers may pass: these reasons are worth another try.
RETRYABLE = ("CANNOT_CONNECT", "CONNECTION_LOST", "UNAVAILABLE")
# Without such a status, an error of the server's own is its answer: who asks again starts the work again.
RETRYABLE_STATUS = (429, 502, 503)
# Somebody between gave up waiting, while the agent works on.
GATEWAY_TIMEOUT = 504
FIRST_DELAY = 0.2
MAX_DELAY = 8.0
# Nobody waits longer because a server says so.
MAX_RETRY_AFTER = 60.0


class Backoff:
    """Counts failures in a row. The first try again is at once, then each waits about twice as long as the last.

    The waits are blurred, so that many callers of one server do not come back together.
    """

    def __init__(self, retries: int, clock: Clock) -> None:
        self._retries = retries
        self._clock = clock
        self.failures = 0

    def reset(self) -> None:
        """Start again from nothing."""
        self.failures = 0

    async def pause(self, problem: Exception) -> None:
        """Wait before the next try, as long as the server asks for. Raises `problem` when there have been enough."""
        self.failures += 1
        if self.failures > self._retries:
            raise problem
        delay = 0.0 if self.failures == 1 else min(MAX_DELAY, FIRST_DELAY * 2 ** (self.failures - 2))
        delay *= 0.5 + random.random() / 2  # noqa: S311 - nothing secret
        await sleep(self._clock, max(delay, min(getattr(problem, "retry_after", 0.0), MAX_RETRY_AFTER)))


def with_retry_after(error: DragomanError, status: int, headers: Mapping[str, str], clock: Clock) -> DragomanError:
    """The error of an answer, with how long its server asks to be left alone."""
    if status in (429, 503):
        vars(error)["retry_after"] = _parse_retry_after(headers.get("Retry-After", "").strip(), clock)
    return error


def _parse_retry_after(text: str, clock: Clock) -> float:
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - clock.now() / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
