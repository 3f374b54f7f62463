"""`--wire`: logs every exchange on stderr, with secrets masked."""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from dragoman.cli.printing import say
from dragoman.model.error import DragomanError
from dragoman.net.exchange import MAX_RESPONSE
from dragoman.net.grpc.address import is_grpc

if TYPE_CHECKING:
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse

MASK = "***"
# Names whose values are secret. `pageToken` and the like are page cursors, not secrets.
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
# Shorter secrets would match ordinary words.
_MIN_SECRET_LENGTH = 6


class WireLog:
    """An interceptor that logs requests and responses.

    `secrets` are masked wherever they occur; those with fewer than six characters only as a whole value.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values = {each for secret in secrets for each in (secret, quote(secret, safe=""))}
        spellings = (each for each in self._values if len(each) >= _MIN_SECRET_LENGTH)
        self._secrets = sorted(spellings, key=len, reverse=True)

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        """Log one exchange. An error is logged and raised again."""
        if is_grpc(request.url):
            return await self._log_grpc(request, call_next)
        self._show(">", f"{request.method} {self.masked_url(request.url)}")
        self._show_headers(">", request.headers)
        if request.body:
            self._show_body(">", request.body, _media_type(request.headers))
        say()
        try:
            response = await call_next(request)
        except DragomanError as error:
            self._show("!", f"{error}\n")
            raise
        self._show("<", f"HTTP {response.status}")
        self._show_headers("<", response.headers)
        return _LoggedResponse(response, self)

    async def _log_grpc(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        from dragoman.cli.remote.grpc_wire import STATUS_NAMES, GrpcWireResponse, request_json

        self._show(">", request.url)
        self._show_headers(">", {k: v for k, v in request.headers.items() if k.lower() not in STATUS_NAMES})
        self._show(">", "")
        self._show(">", self.masked_text(request_json(request)))
        say()
        try:
            response = await call_next(request)
        except DragomanError as error:
            self._show("!", f"{error}\n")
            raise
        metadata = {k: v for k, v in response.headers.items() if k.lower() not in STATUS_NAMES}
        self._show_headers("<", metadata)
        if metadata:
            self._show("<", "")
        return GrpcWireResponse(response, request.url, self.show_line)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def masked_url(self, url: str) -> str:
        """Return a URL without user info, and with the values of secret parameters masked."""
        address, separator, query = _USER.sub(MASK, url).partition("?")
        pairs = [each.partition("=") for each in query.split("&")]
        masked = "&".join(
            f"{name}{eq}{MASK if _SECRET.search(name) or value in self._values else value}" for name, eq, value in pairs
        )
        return self.masked_text(f"{address}{separator}{masked}")

    def masked_header(self, name: str, value: str) -> str:
        """Return a header's value; of a secret one only the scheme."""
        if value in self._values:
            return MASK
        if name.lower() in _HARMLESS or not _SECRET.search(name):
            return self.masked_text(value)
        scheme = _SCHEME.match(value)
        return f"{scheme[1]} {MASK}" if scheme else MASK

    def masked_text(self, text: str) -> str:
        """Return a text with the given secrets and the values of secret JSON members masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _MEMBER.sub(rf'\1"{MASK}"', text)

    def show_line(self, text: str) -> None:
        """Log one line of a response."""
        self._show("<", self.masked_text(text))

    def _show_headers(self, prefix: str, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self._show(prefix, f"{name}: {self.masked_header(name, value)}")

    def _show_body(self, prefix: str, body: bytes, media_type: str) -> None:
        self._show(prefix, "")
        if not is_text(media_type):
            self._show(prefix, f"{len(body)} bytes of {media_type or 'something it does not name'}")
            return
        for each in self.masked_text(body.decode("utf-8", "replace")).splitlines():
            self._show(prefix, each)

    def show_body(self, body: bytes, media_type: str) -> None:
        """Log the body of a response that was read at once."""
        if body:
            self._show_body("<", body, media_type)
        say()

    @staticmethod
    def _show(prefix: str, text: str) -> None:
        say(f"{prefix} {text}".rstrip(" "))


class _LoggedResponse:
    """An `HttpResponse` that is logged as it is read."""

    def __init__(self, response: HttpResponse, log: WireLog) -> None:
        self._response = response
        self._log = log
        self.status = response.status
        self.headers = response.headers

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        """Read the body and log it."""
        body = await self._response.read(limit)
        self._log.show_body(body, _media_type(self.headers))
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks. A line is logged when it is complete, so that no secret is split."""
        decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
        say("<")
        try:
            async for chunk in self._response.chunks():
                *lines, rest = (rest + decoder.decode(chunk)).split("\n")
                for line in lines:
                    self._log.show_line(line.rstrip("\r"))
                yield chunk
        finally:
            if rest:
                self._log.show_line(rest)
            say()

    async def close(self) -> None:
        """Close the response."""
        await self._response.close()


def is_text(media_type: str) -> bool:
    """True when a media type is text, or is missing, which is most likely text."""
    return not media_type or any(each in media_type for each in _TEXT)


def _media_type(headers: Mapping[str, str]) -> str:
    value = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return value.partition(";")[0].strip().lower()
