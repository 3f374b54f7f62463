"""The `Connection` protocol behind `Client`, with its HTTP sender, retry backoff and size limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from copy import copy
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import urljoin

from dragoman.model.error import (
    A2AError,
    AuthError,
    BadResponse,
    CannotConnect,
    ConfigError,
    Overloaded,
    ResponseTooLarge,
)
from dragoman.model.json import encode
from dragoman.net.exchange import format_size, origin_of, redact_url
from dragoman.net.grpc.address import is_grpc
from dragoman.telemetry import trace

if TYPE_CHECKING:
    from dragoman.auth.outbound.credential import Credential
    from dragoman.client.streams.backoff import Backoff
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
    """One event of a stream. `generation` is its number in the task, 0 when the server does not number events."""

    @property
    def generation(self) -> int:
        """The event's number in the task, or 0."""
        ...

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event of the model."""
        ...


class Connection(Protocol):
    """A connection to one agent, over HTTP or within this process."""

    @property
    def clock(self) -> Clock:
        """The clock that measures its waits."""
        ...

    @property
    def cached_card(self) -> AgentCard | None:
        """The agent's card if it has been fetched already, else None."""
        ...

    @property
    def protocol(self) -> str | None:
        """The version of A2A that is spoken with the agent; None before its card has been read."""
        ...

    @property
    def transport(self) -> str | None:
        """`"jsonrpc"`, `"rest"` or `"grpc"`; None before the card has been read, and for an agent in this process."""
        ...

    @property
    def reconnect(self) -> float:
        """For how many seconds to try again when the connection is lost."""
        ...

    @property
    def reached(self) -> bool:
        """True once anything at the agent's address has answered."""
        ...

    @property
    def can_resubscribe(self) -> bool:
        """False for servers that store every event once per subscription, so that another one does harm."""
        ...

    def with_auth(self, auth: object) -> Connection:
        """Return this connection with other credentials; what only they may see is kept apart.

        Raises ConfigError when they are none, or the connection itself carries credentials.
        """
        ...

    async def open(self) -> None:
        """Open the connection."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...

    async def card(self) -> AgentCard:
        """Return the agent's card. Raises BadCard or CannotConnect."""
        ...

    async def perform(self, operation: Operation, request: Request, backoff: Backoff | None = None) -> Result:
        """Perform an operation whose response is not a stream, retrying where that is safe.

        `backoff` says how long, instead of the number of retries of this connection.

        Raises:
            A2AError: the agent answered with an error.
            CannotConnect: the agent cannot be reached.
            AuthError: the agent requires other credentials.
            BadResponse: the response is not valid A2A.
        """
        ...

    def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        budget: ByteBudget | None = None,
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Yield batches of events until the stream ends or breaks; nothing is retried here.

        An empty batch stands for an event that could not be read, which has been logged.
        `after` is the number of the last event already received. `budget` counts the bytes received over a network.

        Raises:
            A2AError: the agent answered with an error.
            CannotConnect: the agent cannot be reached, or the connection broke.
            AuthError: the agent requires other credentials.
            BadResponse: the response is not valid A2A.
            ResponseTooLarge: the task exceeds its budget.
        """
        ...


class ByteBudget:
    """Counts the bytes of one task over all its streams and reads. `limit` is in bytes; None means no limit.

    Stream bytes count as they arrive, decompressed and with their framing. A resumed stream may begin with a snapshot
    of what was received already: until its first event is complete it is counted separately, and of a snapshot only
    what is new is added to the total.
    """

    __slots__ = ("_limit", "_total", "_uncounted")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        # Bytes of a resumed stream whose first event is incomplete; None when there is no such stream.
        self._uncounted: int | None = None

    def begin_stream(self, *, resumed: bool) -> None:
        """Begin a stream of the task, the first one or a resumed one."""
        self._uncounted = 0 if resumed else None

    def add(self, size: int) -> None:
        """Count bytes. Raises ResponseTooLarge beyond the limit."""
        if self._uncounted is not None:
            size = self._uncounted = self._uncounted + size
        else:
            size = self._total = self._total + size
        if self._limit is not None and size > self._limit:
            raise task_too_large(self._limit)

    def count_first_event(self, snapshot: object) -> None:
        """Count the first event of a resumed stream; `snapshot` is that event if it repeats the task, else None."""
        if self._uncounted is not None:
            size, self._uncounted = self._uncounted, None
            self.add(size if snapshot is None else max(0, size - len(encode(snapshot))))

    def add_events(self, events: Iterable[object]) -> None:
        """Count events that were read rather than streamed. Raises ResponseTooLarge beyond the limit."""
        if self._limit is not None:
            self.add(sum(len(encode(each)) for each in events))


def task_too_large(limit: int) -> ResponseTooLarge:
    """Build the error for a task that exceeds its limit."""
    return ResponseTooLarge(
        f"the task has brought more than {format_size(limit)}, and nothing more of it is read. {LIMIT_HINT}",
        limit=limit,
    )


LIMIT_HINT = "To allow more, raise `limit` of the Client, or `--limits-remote-bytes` of the command"


@runtime_checkable
class InProcess(Protocol):
    """Anything that can be called without a network: an Agent, a Server."""

    def in_process(self) -> Connection:
        """Return a connection to it."""
        ...


_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5


class Sender:
    """Sends HTTP requests. Credentials and the caller's extra headers go to `origin` and to no other.

    Without an origin they go everywhere: an app in this process has no other origin behind it. gRPC has a port of its
    own: there they also go to the host of the origin, unless that would take TLS away from them.
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
        # Without credentials and extra headers the origin of a URL need not be checked.
        self._has_nothing_private = credential is None and not self._headers

    def with_credential(self, credential: Credential) -> Sender:
        """Return a sender with another credential. Raises ConfigError when either is a certificate of the caller.

        A certificate belongs to the connections, which the two have in common.
        """
        if credential.ssl_context(True) is not None:
            raise ConfigError("auth= of one call cannot be a certificate: make a Client with it")
        if self.credential is not None and self.credential.ssl_context(True) is not None:
            raise ConfigError(
                "the Client has a certificate as its auth=, which would go along with auth= of this call. "
                "If that is meant, give the certificate in an ssl.SSLContext as verify="
            )
        other = copy(self)
        other.credential, other._has_nothing_private = credential, False
        return other

    async def send(
        self, request: HttpRequest, card: AgentCard | None = None, *, anonymous: bool = False
    ) -> HttpResponse:
        """Send a request and return once the response head has arrived; `anonymous` omits the credentials.

        Raises:
            CannotConnect: the server cannot be reached.
            BadResponse: the server redirects to another origin.
            AuthError: the credentials cannot be obtained.
        """
        trace.inject(request.headers)
        same_origin = self._has_nothing_private or self.origin is None or _is_same_agent(request.url, self.origin)
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
                # Retry once with a fresh credential: the old one may just have expired.
                request.url, request.headers = url, headers
                await credential.apply(request, card, self.http)
                response = await self._next(request)
        hops = 0
        while response.status in _REDIRECTS:
            hops += 1
            await self._follow_redirect(request, response, hops)
            if credential is not None:  # the new URL lacks a credential that is sent in the query
                await credential.apply(request, card, self.http)
            response = await self._next(request)
        if response.status == 401 and self.credential is not None and not same_origin:
            await response.close()
            why = f"those given are for {self.origin} alone"
            if is_grpc(request.url) and _host_of(request.url) == _host_of(self.origin or ""):
                why = f"those given are not sent without TLS, which {self.origin} has"
            raise AuthError(
                f"{origin_of(request.url)} wants credentials, and {why}. "
                "Make a Client for that address if you trust it",
                status=401,
            )
        return response

    @staticmethod
    async def _follow_redirect(request: HttpRequest, response: HttpResponse, hops: int) -> None:
        """Point a request at its redirect target. Raises BadResponse unless that is the same origin."""
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
            raise BadResponse(f"{here} redirects in circles", status=response.status)
        if response.status in (301, 302, 303) and request.method == "POST":
            raise BadResponse(
                f"{here} sends a POST on to {redact_url(target)} with HTTP {response.status}: call that address",
                status=response.status,
            )
        request.url = target


def _is_same_agent(url: str, origin: str) -> bool:
    """True for a URL of the origin, or of its host over gRPC with no less security."""
    if origin_of(url) == origin:
        return True
    is_weaker = url.startswith("grpc:") and origin.startswith(("https:", "grpcs:"))
    return is_grpc(url) and not is_weaker and _host_of(url) == _host_of(origin)


def _host_of(url: str) -> str:
    return origin_of(url).partition("://")[2].rpartition(":")[0]


def _join_url(url: str, location: str) -> str | None:
    try:
        return urljoin(url, location) if location else None
    except ValueError:
        return None


def _wrap(interceptor: Interceptor, call_next: CallNext) -> CallNext:
    async def call(request: HttpRequest) -> HttpResponse:
        return await interceptor(request, call_next)

    return call


def with_response(error: DragomanError, status: int, headers: Mapping[str, str], clock: Clock) -> DragomanError:
    """Return the error of a response that has begun.

    The status is attached to a CannotConnect, and with status 429 or 503 the server's Retry-After, if there is one.
    """
    if isinstance(error, CannotConnect) and error.status is None:
        error.status = status
    retry_after = headers.get("Retry-After", "").strip()
    if status in (429, 503) and retry_after:
        vars(error)["retry_after"] = _parse_retry_after(retry_after, clock)
    return error


def _parse_retry_after(text: str, clock: Clock) -> float:
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - clock.now() / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def public_error_text(error: BaseException, agent: str) -> str:
    """Return an error text that is safe for third parties: the agent's message, without its address."""
    if isinstance(error, CannotConnect):
        return f"{agent} cannot be reached"
    if isinstance(error, Overloaded):
        return f"{agent} is busy: try again later"
    if isinstance(error, A2AError):
        return f"{agent} says: {error.reason if '://' in error.message else error.message}"
    return f"{agent} cannot be understood"
