"""Sends requests with all that belongs to them: headers, credentials, interceptors; follows no one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin

from dragoman.model.error import AuthError, BadResponse
from dragoman.net.exchange import origin_of, shown
from dragoman.telemetry import trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.auth.outbound.credential import Credential
    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import CallNext, HttpClient, HttpRequest, HttpResponse, Interceptor

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5


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
        self._own = dict(headers or {})
        self._next: CallNext = http.send
        for interceptor in reversed(interceptors):
            self._next = _around(interceptor, self._next)
        # Where there is nothing to keep from others, nobody need look whose a URL is.
        self._plain = credential is None and not self._own

    async def send(
        self, request: HttpRequest, card: AgentCard | None = None, *, anonymous: bool = False
    ) -> HttpResponse:
        """Send a request and wait for the head of its answer; `anonymous` leaves the credentials out.

        Raises:
            CannotConnect: nobody answers.
            BadResponse: it redirects to another origin.
            AuthError: the credentials cannot be had.
        """
        trace.propagate(request.headers)
        ours = self._plain or self.origin is None or origin_of(request.url) == self.origin
        if ours and self._own:
            request.headers.update(self._own)
        credential = None if anonymous or not ours else self.credential
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
            await self._redirect(request, response, hops)
            if credential is not None:  # one in the query has been left behind
                await credential.apply(request, card, self.http)
            response = await self._next(request)
        if response.status == 401 and self.credential is not None and not ours:
            await response.close()
            raise AuthError(
                f"{origin_of(request.url)} wants credentials, and those given are for {self.origin} alone. "
                "Make a Client for that address if you trust it",
                status=401,
            )
        return response

    @staticmethod
    async def _redirect(request: HttpRequest, response: HttpResponse, hops: int) -> None:
        """Turn a request to where its answer sends it, if that is the same place."""
        location = response.headers.get("Location", "")
        await response.close()
        target, here = _joined(request.url, location), shown(request.url)
        if target is None or origin_of(target) != origin_of(request.url):
            raise BadResponse(
                f"{here} sends callers on to {shown(target) if target else 'nowhere'}: "
                "nothing is sent to another origin. Call that address if you trust it",
                status=response.status,
            )
        if hops > _MOST_REDIRECTS:
            raise BadResponse(f"{here} sends callers round in circles", status=response.status)
        if response.status in (301, 302, 303) and request.method == "POST":
            raise BadResponse(
                f"{here} sends a POST on to {shown(target)} with HTTP {response.status}: call that address",
                status=response.status,
            )
        request.url = target


def _joined(url: str, location: str) -> str | None:
    try:
        return urljoin(url, location) if location else None
    except ValueError:
        return None


def _around(interceptor: Interceptor, call_next: CallNext) -> CallNext:
    async def call(request: HttpRequest) -> HttpResponse:
        return await interceptor(request, call_next)

    return call
