"""Checks the URLs on a card: their syntax, and whether callers can reach and trust them."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from dragoman.dialects.cards.rules.shape import Path, Report, quoted

_WEB = ("http", "https")
_PORTS = {"http": 80, "https": 443}
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", re.ASCII)
_NOT_PRINTABLE = re.compile(r"[\s\x00-\x1f\x7f]")
# As gRPC libraries dial it, alone or with the name of their resolver: dns:a.example:443, dns:///a.example:443.
_TARGET = re.compile(r"(?:dns:(?:///)?)?([\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d+)", re.ASCII)

_LISTENING = "Advice: 0.0.0.0 and [::] are addresses to listen on; a card gives the one that callers can reach"
_LOCAL = "Advice: an address on the agent's own machine cannot be reached from elsewhere"
_ELSEWHERE = "Advice: callers send credentials only to the origin the card came from, so interfaces belong there"
_USER = "Advice: everyone can read a card, so its URLs hold no user name and no password"


class ParsedUrl(NamedTuple):
    """The parts of an absolute URL that the rules need."""

    scheme: str
    host: str
    port: int | None
    names_user: bool


def parse_url(text: str) -> ParsedUrl | None:
    """Parse an absolute URL; None when the text is not one."""
    if _NOT_PRINTABLE.search(text):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    host = (host or "").rstrip(".")
    if not parts.scheme or not host:
        return None
    return ParsedUrl(parts.scheme, host, port or _PORTS.get(parts.scheme), "@" in parts.netloc)


def parse_target(text: str) -> ParsedUrl | None:
    """Parse `host:port`, which gRPC dials, into parts without a scheme; None when the text is something else."""
    found = _TARGET.fullmatch(text)
    parsed = parse_url(f"grpc://{found[1]}:{found[2]}") if found else None
    return None if parsed is None or not parsed.port else parsed._replace(scheme="")


def is_uri(text: str) -> bool:
    """True for a URI of any scheme."""
    return _URI.fullmatch(text) is not None


def is_http_url(text: str) -> bool:
    """True for an http or https URL."""
    parsed = parse_url(text)
    return parsed is not None and parsed.scheme in _WEB


def is_loopback_host(host: str) -> bool:
    """True for localhost and loopback addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    number = _parse_ip(host)
    return number is not None and number.is_loopback


def check_url(
    report: Report, path: Path, url: str, parsed: ParsedUrl, encrypted: str, source: str | None, *, any_port: bool
) -> None:
    """Warn of a URL that callers cannot reach or should not trust.

    `encrypted` is the rule that requires https, `source` the URL of the card. With `any_port`, the interface is where
    its card is when both are on one host.
    """
    quoted_url = quoted(url)
    origin = parse_url(source) if source else None
    if parsed.names_user:
        report.warning(path, _USER, "a user name in the URL")
    number = _parse_ip(parsed.host)
    if number is not None and number.is_unspecified:
        if origin is None or origin.host != parsed.host:
            report.warning(path, _LISTENING, quoted_url)
        return
    if is_loopback_host(parsed.host):
        if origin is not None and not is_loopback_host(origin.host):
            report.warning(path, _LOCAL, quoted_url)
            return
    elif parsed.scheme == "http":
        report.warning(path, encrypted, f"{quoted_url} is plain http")
    if origin is None or (any_port and parsed.host == origin.host):
        return
    if (parsed.scheme in _WEB and parsed[:3] != origin[:3]) or (any_port and not parsed.scheme):
        report.warning(path, _ELSEWHERE, f"{quoted_url}, while the card is at {quoted(source)}")


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return mapped or number
