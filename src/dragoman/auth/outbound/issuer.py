"""The server that gives out tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from dragoman.auth.outbound.foreign import as_object, shown
from dragoman.model.error import AuthError, BadResponse, CannotConnect
from dragoman.model.json import decode_any
from dragoman.net.exchange import HttpClient, HttpRequest

_LARGEST = 1024 * 1024
# A token is not thought about: who says nothing for this long will not.
_SILENCE = 30.0


class Answer(NamedTuple):
    """What the issuer said. `secrets` are those it was told, and must not be heard from it again."""

    url: str
    status: int
    body: dict[str, Any]
    secrets: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """True when it gave what it was asked for."""
        return 200 <= self.status < 300 and not self.error

    @property
    def error(self) -> str:
        """The word for what is wrong; empty when it has none."""
        said = self.body.get("error")
        return said if isinstance(said, str) else ""

    def refusal(self) -> AuthError:
        """The error that says what the issuer said."""
        where = shown(self.url.partition("?")[0])
        if 300 <= self.status < 400:
            return AuthError(
                f"no token from {where}: it answers with a redirect ({self.status}), which is not followed"
            )
        if not self.error:
            return AuthError(f"no token from {where}: it answers with HTTP {self.status}")
        described = self.body.get("error_description")
        more = f": {shown(described, self.secrets)}" if isinstance(described, str) and described else ""
        return AuthError(f"no token from {where}: {shown(self.error, self.secrets)}{more}")


async def ask_issuer(
    http: HttpClient,
    url: str,
    form: dict[str, str],
    *,
    headers: dict[str, str] | None = None,
    connect: float | None = 10.0,
    secrets: Iterable[str] = (),
) -> Answer:
    """Send a form to the issuer. What it answers, also in refusal, is returned.

    Raises:
        AuthError: the answer is too large, or is none though it is said to be good.
        CannotConnect: nobody answers.
    """
    sent = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    request = HttpRequest(
        "POST", url, sent, urlencode(form).encode(), operation="token", connect=connect, silence=_SILENCE
    )
    try:
        response = await http.send(request)
        status = response.status
        data = await response.read(_LARGEST)
    except CannotConnect as error:
        # What the token is for was not sent: that can be tried again.
        raise CannotConnect(f"no token: {error}", reason=error.reason, arrived=False) from error
    except BadResponse as error:
        raise AuthError(f"no token from {shown(url.partition('?')[0])}: {error}") from None
    try:
        body = as_object(decode_any(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = {}
    answer = Answer(url, status, body, tuple(secrets))
    if answer.is_good and not body:
        raise AuthError(f"no token from {shown(url.partition('?')[0])}: the answer is not a JSON object")
    return answer
