"""Finding credentials in a request."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.auth.inbound.scheme import Denied, Presented

# Says where a request comes from, which behind a proxy is not where its connection comes from.
AddressOf = Callable[[Presented], str]
# More than any honest token has. What is longer is not even hashed.
MAX_CREDENTIAL = 16 * 1024


def authorization(request: Presented, word: str) -> str | None:
    """What follows this word in `Authorization`; None when it is missing or begins with another word.

    Raises:
        Denied: it is too long.
    """
    header = request.headers.get("authorization")
    if header is None:
        return None
    said, _, rest = header.partition(" ")
    return _short(rest.strip(" ")) if said.lower() == word else None


def cookie(request: Presented, name: str) -> str | None:
    """The value of a cookie, or None.

    Raises:
        Denied: it is there twice, so that somebody else may have put one of them, or is too long.
    """
    header = request.headers.get("cookie")
    if header is None or name not in header:
        return None
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    found = [value for key, _, value in pairs if key == name]
    if not found:
        return None
    if len(found) > 1:
        raise Denied(f"the cookie {name!r} was sent more than once", cause="two-cookies")
    return _short(found[0].strip('"'))


def header(request: Presented, name: str) -> str | None:
    """The value of a header by its lower-case name, or None. Raises Denied when it is too long."""
    value = request.headers.get(name)
    return None if value is None else _short(value)


def parameter(request: Presented, name: str) -> str | None:
    """The value of a query parameter, or None. Raises Denied when it is too long."""
    value = request.query.get(name)
    return None if value is None else _short(value)


def address(request: Presented) -> str:
    """Where the request comes from, as far as the server says."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def _short(value: str) -> str:
    if len(value) > MAX_CREDENTIAL:
        raise Denied("the credentials are too long", cause="too-long")
    return value
