"""Handling of text and URLs from cards and issuers, which may be hostile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from dragoman.model.error import ConfigError
from dragoman.net.exchange import is_loopback, origin_of
from dragoman.net.grpc.address import is_grpc

_MAX_TEXT = 300


def redact(text: object, secrets: Iterable[str] = ()) -> str:
    """Make foreign text safe for an error: shortened, printable, and without our secrets should it echo them."""
    words = str(text)
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        words = words.replace(secret, "***")
    words = "".join(char if char.isprintable() else " " for char in words).strip()
    return words if len(words) <= _MAX_TEXT else words[: _MAX_TEXT - 1] + "…"


def configured_url(url: object, option: str) -> str:
    """Check a URL that the user configured for sending secrets.

    Raises:
        ConfigError: it is not a URL, or would send secrets in the clear.
    """
    problem = _url_problem(url)
    if problem:
        raise ConfigError(f"{option}= {problem}")
    return str(url)


def card_url(value: object, request_url: str, option: str) -> str:
    """Check a URL from a card before a secret is sent there: it must have the origin that is being called.

    Raises:
        ConfigError: the card has none, or it has another origin; the text says what to pass instead.
    """
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the agent's card does not say where to ask for a token: pass {option}=")
    try:
        url = urljoin(request_url, value)
    except ValueError:
        url = value
    problem = _url_problem(url)
    if problem:
        raise ConfigError(f"the address in the agent's card, {redact(value)}, {problem}: pass {option}=")
    if not _is_same_site(url, request_url):
        raise ConfigError(
            f"the agent's card wants secrets sent to {redact(url)}, which is not the agent's own origin"
            f" ({origin_of(request_url)}): if you trust that address, pass {option}={redact(url)!r}"
        )
    return url


def _is_same_site(url: str, request_url: str) -> bool:
    """True for the origin that is called; over gRPC, for its host: no token endpoint is at a port of gRPC."""
    if is_grpc(request_url):
        return urlsplit(url).hostname == urlsplit(request_url).hostname
    return origin_of(url) == origin_of(request_url)


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_strings(value: object) -> tuple[str, ...]:
    """Return the strings of a JSON list, or the keys of an object."""
    if not isinstance(value, (list, tuple, dict)):
        return ()
    return tuple(each for each in cast("Iterable[Any]", value) if isinstance(each, str) and each)


def _url_problem(url: object) -> str:
    """Say why no secret may be sent to a URL; empty when it may."""
    if not isinstance(url, str):
        return f"must be a str, not {type(url).__name__}"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL"
    # Parsers disagree about these characters: the host that is checked must be the host that is called.
    if not has_host or not url.isprintable() or " " in url or "\\" in url:
        return "is not a URL"
    if "@" in parts.netloc:
        return "must not contain a user or password"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(url)):
        return "must begin with https://"
    return ""
