"""Words and addresses of the other side, which may be anybody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from dragoman.model.error import ConfigError
from dragoman.net.exchange import is_loopback, origin_of

_MAX_TEXT = 300


def redact(text: object, secrets: Iterable[str] = ()) -> str:
    """Foreign text as it may stand in an error: short, printable, and without our secrets should it echo them."""
    words = str(text)
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        words = words.replace(secret, "***")
    words = "".join(char if char.isprintable() else " " for char in words).strip()
    return words if len(words) <= _MAX_TEXT else words[: _MAX_TEXT - 1] + "…"


def configured_url(url: object, option: str) -> str:
    """An address the user gave to send secrets to.

    Raises:
        ConfigError: it is not one, or it would send them in the clear.
    """
    problem = _url_problem(url)
    if problem:
        raise ConfigError(f"{option}= {problem}")
    return str(url)


def card_url(value: object, request_url: str, option: str) -> str:
    """An address from a card, when a secret may be sent there: only to the origin that is being called.

    Raises:
        ConfigError: the card has none, or it leads elsewhere; the text says what to pass instead.
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
    if origin_of(url) != origin_of(request_url):
        raise ConfigError(
            f"the agent's card wants secrets sent to {redact(url)}, which is not the agent's own origin"
            f" ({origin_of(request_url)}): if you trust that address, pass {option}={redact(url)!r}"
        )
    return url


def as_object(value: object) -> dict[str, Any]:
    """A JSON object, or an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_strings(value: object) -> tuple[str, ...]:
    """The strings of a JSON list, or of an object's keys."""
    if not isinstance(value, (list, tuple, dict)):
        return ()
    return tuple(each for each in cast("Iterable[Any]", value) if isinstance(each, str) and each)


def _url_problem(url: object) -> str:
    """What keeps an address from being sent a secret; empty when nothing does."""
    if not isinstance(url, str):
        return f"must be a str, not {type(url).__name__}"
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL"
    # Parsers disagree about these: the host that was checked must be the host that is called.
    if not has_place or not url.isprintable() or " " in url or "\\" in url:
        return "is not a URL"
    if "@" in parts.netloc:
        return "must not contain a user or password"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(url)):
        return "must begin with https://"
    return ""
