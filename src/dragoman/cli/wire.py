"""`--wire`: every exchange as it passes, on stderr, without its secrets."""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from dragoman.cli.printing import say
from dragoman.model.error import DragomanError
from dragoman.net.exchange import MAX_RESPONSE

if TYPE_CHECKING:
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse

MASK = "***"
# What a name must hold for its value to be nobody's business. `pageToken` and the like only say where a list goes on.
_SECRET = re.compile(
    r"auth(?!or(?!iz))|cookie|passw|secret|credential|session|signature|api-?_?key|(^|[-_.])(key|sig|code|pw)($|[-_.])|(?<!page)token",
    re.IGNORECASE,
)
_HARMLESS = frozenset({"www-authenticate", "proxy-authenticate"})
_SCHEME = re.compile(r"(Bearer|Basic|Digest|Negotiate|DPoP|[A-Za-z][A-Za-z-]*Key)\s+\S", re.IGNORECASE)
_MEMBER = re.compile(
    r'("(?:token|access_?token|refresh_?token|id_?token|credentials|password|client_?secret|secret|api_?key)"\s*:\s*)'
    r'"(?:[^"\\]|\\.)*"',
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)[^/?#@]+(?=@)")
_TEXT = ("text/", "application/json", "+json", "xml", "javascript", "urlencoded")
# Shorter ones would turn up in words that are nobody's secret.
_SHORTEST = 6


class Wire:
    """An interceptor that shows requests and answers. `secrets` are masked wherever they turn up."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values = {each for secret in secrets for each in (secret, quote(secret, safe=""))}
        spellings = (each for each in self._values if len(each) >= _SHORTEST)
        self._secrets = sorted(spellings, key=len, reverse=True)

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Show one exchange. What is raised on the way is shown and passed on."""
        self._show(">", f"{request.method} {self.url(request.url)}")
        self._headers(">", request.headers)
        if request.body:
            self._body(">", request.body, _kind(request.headers))
        say()
        try:
            response = await call_next(request)
        except DragomanError as error:
            self._show("!", f"{error}\n")
            raise
        self._show("<", f"HTTP {response.status}")
        self._headers("<", response.headers)
        return _Shown(response, self)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def url(self, url: str) -> str:
        """A URL without user, and with the values of secret parameters masked."""
        address, mark, query = _USER.sub(MASK, url).partition("?")
        pairs = [each.partition("=") for each in query.split("&")]
        masked = "&".join(
            f"{name}{eq}{MASK if _SECRET.search(name) or value in self._values else value}" for name, eq, value in pairs
        )
        return self.text(f"{address}{mark}{masked}")

    def header(self, name: str, value: str) -> str:
        """A header's value; of a secret one only the scheme."""
        if value in self._values:
            return MASK
        if name.lower() in _HARMLESS or not _SECRET.search(name):
            return self.text(value)
        scheme = _SCHEME.match(value)
        return f"{scheme[1]} {MASK}" if scheme else MASK

    def text(self, text: str) -> str:
        """A text without the secrets that are known, and without members that are named like secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _MEMBER.sub(rf'\1"{MASK}"', text)

    def line(self, text: str) -> None:
        """Show one line of an answer."""
        self._show("<", self.text(text))

    def _headers(self, mark: str, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self._show(mark, f"{name}: {self.header(name, value)}")

    def _body(self, mark: str, body: bytes, kind: str) -> None:
        self._show(mark, "")
        if not is_text(kind):
            self._show(mark, f"{len(body)} bytes of {kind or 'something it does not name'}")
            return
        for each in self.text(body.decode("utf-8", "replace")).splitlines():
            self._show(mark, each)

    def answer(self, body: bytes, kind: str) -> None:
        """Show the body of an answer that came in one piece."""
        if body:
            self._body("<", body, kind)
        say()

    @staticmethod
    def _show(mark: str, text: str) -> None:
        say(f"{mark} {text}".rstrip(" "))


class _Shown:
    """An answer that is shown as it is read; see `HttpResponse`."""

    def __init__(self, response: HttpResponse, wire: Wire) -> None:
        self._response = response
        self._wire = wire
        self.status = response.status
        self.headers = response.headers

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        """See `HttpResponse.read`."""
        body = await self._response.read(limit)
        self._wire.answer(body, _kind(self.headers))
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `HttpResponse.chunks`. A line is shown when it is whole, so that no secret is cut in two."""
        decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
        say("<")
        try:
            async for chunk in self._response.chunks():
                *lines, rest = (rest + decoder.decode(chunk)).split("\n")
                for line in lines:
                    self._wire.line(line.rstrip("\r"))
                yield chunk
        finally:
            if rest:
                self._wire.line(rest)
            say()

    async def close(self) -> None:
        """See `HttpResponse.close`."""
        await self._response.close()


def is_text(kind: str) -> bool:
    """True when a media type is worth showing; what is not named most likely is."""
    return not kind or any(each in kind for each in _TEXT)


def _kind(headers: Mapping[str, str]) -> str:
    found = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return found.partition(";")[0].strip().lower()
