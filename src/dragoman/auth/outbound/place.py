"""Puts credentials on a request: into headers, the query or cookies."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote, unquote_plus

from dragoman.auth.outbound.requirement import SchemeRequirement
from dragoman.auth.outbound.untrusted import redact
from dragoman.model.error import AuthError
from dragoman.net.exchange import HttpRequest

LOCATIONS = ("header", "query", "cookie")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# A key in one of these headers would change the meaning or the framing of the request.
_RESERVED_HEADERS = frozenset(
    ("connection", "content-length", "content-type", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade")
)
# HTTP authentication schemes with challenge and response: no single string is enough.
_CHALLENGES = frozenset(("digest", "dpop", "hoba", "mutual", "negotiate", "ntlm", "scram-sha-1", "scram-sha-256"))


def can_carry(scheme: SchemeRequirement, value: str | None = None) -> bool:
    """True when one string satisfies a scheme. For Basic, `value` must be `user:password` if it is passed."""
    if scheme.kind == "apiKey":
        location, name = scheme.details.get("location"), scheme.details.get("name")
        return location in LOCATIONS and isinstance(name, str) and _is_usable_name(str(location), name)
    if scheme.kind == "http":
        method = str(scheme.details.get("scheme", "")).lower()
        if method == "basic":
            return value is None or ":" in value
        return _TOKEN.fullmatch(method) is not None and method not in _CHALLENGES
    # A scheme without a description is taken for bearer.
    return scheme.kind != "mutualTLS"


def takes_bearer(scheme: SchemeRequirement) -> bool:
    """True when a scheme takes a bearer token."""
    return scheme.kind in ("oauth2", "openIdConnect", "") or scheme.label.lower() == "http bearer"


def put(request: HttpRequest, scheme: SchemeRequirement, value: str) -> None:
    """Put a string on a request for a scheme that `can_carry` it.

    Raises:
        AuthError: the string is not valid there.
    """
    if scheme.kind == "apiKey":
        put_key(request, str(scheme.details["location"]), str(scheme.details["name"]), value)
    elif takes_bearer(scheme):
        put_bearer(request, value)
    elif scheme.label.lower() == "http basic":
        put_basic(request, value)
    else:
        put_header(request, "Authorization", f"{scheme.details['scheme']} {_check_ascii(value, 'credential')}")


def put_bearer(request: HttpRequest, token: str) -> None:
    """Put a token into the Authorization header. Raises AuthError when it has a space or is not ASCII."""
    if " " in token:
        raise AuthError("the token contains a space: give the token alone, without `Bearer`")
    put_header(request, "Authorization", f"Bearer {_check_ascii(token, 'token')}")


def put_basic(request: HttpRequest, pair: str) -> None:
    """Put `user:password` into the Authorization header."""
    put_header(request, "Authorization", f"Basic {b64encode(pair.encode()).decode()}")


def put_key(request: HttpRequest, location: str, name: str, value: str) -> None:
    """Put a key into a header, the query or a cookie. Raises AuthError when name or value cannot be sent there."""
    if not _is_usable_name(location, name):
        raise AuthError(f"a key cannot be sent in a {location} named {redact(name)!r}")
    if location == "query":
        put_query(request, name, value)
    elif location == "cookie":
        put_cookie(request, name, value)
    else:
        put_header(request, name, _check_ascii(value, "key"))


def put_header(request: HttpRequest, name: str, value: str) -> None:
    """Set a header, replacing one of the same name in any case."""
    for other in [each for each in request.headers if each.lower() == name.lower()]:
        del request.headers[other]
    request.headers[name] = value


def put_query(request: HttpRequest, name: str, value: str) -> None:
    """Set a query parameter, replacing one of the same name; the others keep their spelling."""
    address, hash_sign, fragment = request.url.partition("#")
    path, _, query = address.partition("?")
    parameters = [each for each in query.split("&") if each and unquote_plus(each.partition("=")[0]) != name]
    parameters.append(f"{quote(name, safe='')}={quote(value, safe='')}")
    request.url = f"{path}?{'&'.join(parameters)}{hash_sign}{fragment}"


def put_cookie(request: HttpRequest, name: str, value: str) -> None:
    """Add a cookie, replacing one of the same name. Raises AuthError when the value has a semicolon or is not ASCII."""
    if ";" in value:
        raise AuthError("the cookie contains a semicolon, which would end it")
    before = "; ".join(field for header, field in request.headers.items() if header.lower() == "cookie")
    others = [each.strip() for each in before.split(";")]
    cookies = [each for each in others if each and each.partition("=")[0].strip() != name]
    put_header(request, "Cookie", "; ".join([*cookies, f"{name}={_check_ascii(value, 'cookie')}"]))


def is_token(text: str) -> bool:
    """True for a token in the sense of HTTP (RFC 9110), such as a header name."""
    return _TOKEN.fullmatch(text) is not None


def _is_usable_name(location: str, name: str) -> bool:
    if location == "query":
        return name != ""
    return is_token(name) and (location == "cookie" or name.lower() not in _RESERVED_HEADERS)


def _check_ascii(value: str, what: str) -> str:
    if not value.isascii():
        raise AuthError(f"the {what} contains characters outside ASCII, which a header cannot carry")
    return value
