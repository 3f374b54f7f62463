"""SSRF protection: requests to URLs that callers choose go only to the public internet.

A URL is checked before it is used, and its address again at connect time, since a name may resolve to another
address by then (`net/connector.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from dragoman.model.error import ConfigError, DragomanError
from dragoman.net.addresses import (
    EMBEDDED,
    METADATA,
    IpAddress,
    IpNetwork,
    address_kind,
    name_kind,
    parse_address,
    parse_host,
)
from dragoman.net.exchange import PORTS, redact_url

_MAX_QUOTED = 100
# Allowed only as addresses, never by a name: they lead, or may lead, to the credentials of the machine.
_ADDRESS_ONLY = (METADATA, EMBEDDED)


class AddressForbidden(DragomanError):
    """The guard does not allow an address. `.host` is the host of the URL; `.address` is what it resolved to.

    The text is safe to return to the caller: it never contains an address that the caller did not write.
    """

    reason = "FORBIDDEN_ADDRESS"

    def __init__(self, text: str, *, host: str = "", address: str = "") -> None:
        super().__init__(text)
        self.host = host
        self.address = address


class AddressGuard:
    """Decides to which hosts and addresses requests may be sent: by default those of the public internet.

    `allow` adds others: host names (`hooks.example.com`, `*.example.com`), addresses and networks (`127.0.0.1`,
    `10.0.0.0/8`, `::1`), each with an optional port (`localhost:9000`, `[::1]:9000`). A name is allowed with any
    address, except a metadata service or IPv4 inside IPv6, which must be allowed as addresses. `setting` is the
    flag that error texts suggest for allowing more.

    Raises:
        ConfigError: an entry of `allow` cannot be read.
    """

    def __init__(self, allow: Sequence[str] = (), *, setting: str = "--push-allow") -> None:
        self._setting = setting
        self._entries = tuple(_parse_entry(text, setting) for text in allow)

    def check_url(self, url: str) -> None:
        """Check everything that can be checked without a DNS lookup.

        Raises:
            AddressForbidden: not http or https, credentials in it, no host, a bad port, or a forbidden host.
        """
        if not url.isprintable() or " " in url or "\\" in url:
            raise AddressForbidden(f"{_quote(url)} is not a URL: it holds characters that no URL has")
        parts, port = _split(url)
        if parts.scheme not in PORTS:
            raise AddressForbidden(f"{_quote(url)} is not an http or https URL")
        if "@" in parts.netloc:
            raise AddressForbidden("a URL with a user name or a password in it is not called: leave them out")
        if not parts.hostname:
            raise AddressForbidden(f"{_quote(url)} names no host")
        # `hostname` keeps a zone, which `check_host` refuses.
        self.check_host(parts.hostname, PORTS[parts.scheme] if port is None else port)

    def check_host(self, host: str, port: int) -> None:
        """Check the host of a URL: a name, or an address in any spelling.

        Raises:
            AddressForbidden: the port does not exist, or the name or the address is not allowed.
        """
        if not 0 < port < 65536:
            raise AddressForbidden(f"{_quote(host)} has no port {port}: there are 1 to 65535", host=host)
        try:
            parsed = parse_host(host)
        except ValueError as error:
            raise AddressForbidden(f"{_quote(host)} is not a host that can be called: {error}", host=host) from error
        if parsed.address is None:
            kind = name_kind(parsed.name)
            if kind is not None and not self._allows_name(parsed.name, port):
                raise self._forbidden(kind, parsed.name, host)
            return
        kind = address_kind(parsed.address)
        if kind is not None and not self._allows_address(parsed.address, port):
            raise self._forbidden(kind, str(parsed.address), host, parsed.address)
        if not parsed.is_canonical:
            # Parsers disagree about these, so the checked address may not be the one that is connected to.
            raise AddressForbidden(
                f"{_quote(host)} is an odd way to write an address: write {parsed.address}",
                host=host,
                address=str(parsed.address),
            )

    def check_address(self, ip: str, host: str, port: int) -> None:
        """Check the address that will be connected to for a host.

        Raises:
            AddressForbidden: it is not public, and neither it nor the host is allowed.
        """
        try:
            address = parse_address(ip)
        except ValueError as error:
            text = f"{_quote(host)} has no address that can be called; {self._setting} does not help"
            raise AddressForbidden(text, host=host, address=ip) from error
        kind = address_kind(address)
        if kind is None or self._allows_address(address, port):
            return
        if kind in _ADDRESS_ONLY:
            raise self._forbidden(kind, "and its address", host, address)
        name = _canonical_name(host)
        if not self._allows_name(name, port):
            raise self._forbidden(kind, name, host, address)

    def _allows_name(self, name: str, port: int) -> bool:
        return any(entry.holds_name(name) and entry.port in (None, port) for entry in self._entries)

    def _allows_address(self, address: IpAddress, port: int) -> bool:
        return any(entry.holds_address(address) and entry.port in (None, port) for entry in self._entries)

    def _forbidden(self, kind: str, remedy: str, host: str, address: IpAddress | None = None) -> AddressForbidden:
        remedy = f"{self._setting} {_quote(remedy)}"
        return AddressForbidden(
            f"{_quote(host)} is {kind}: no request goes there unless it is allowed with {remedy}",
            host=host,
            address=str(address or ""),
        )


class _AllowEntry(NamedTuple):
    name: str = ""
    suffix: str = ""
    network: IpNetwork | None = None
    port: int | None = None

    def holds_name(self, name: str) -> bool:
        return name == self.name if self.name else bool(self.suffix) and name.endswith(self.suffix)

    def holds_address(self, address: IpAddress) -> bool:
        return self.network is not None and address.version == self.network.version and address in self.network


def _parse_entry(text: str, setting: str) -> _AllowEntry:
    entry = text.strip()
    prefix = f"{setting} {_quote(entry)}"
    if "://" in entry or "@" in entry:
        raise ConfigError(f"{prefix}: a host name, an address or a network is wanted, not a URL")
    if entry == "*":
        raise ConfigError(f"{prefix}: write 0.0.0.0/0 and ::/0 if every address there is shall be allowed")
    host, port = _split_port(entry)
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{prefix}: the port is a number from 1 to 65535")
    number = None if port is None else int(port)
    try:
        if "/" in host:
            return _AllowEntry(network=ip_network(host), port=number)
        wild = host.startswith("*.")
        parsed = parse_host(host[2:] if wild else host)
        if parsed.address is None:
            return _AllowEntry(suffix=f".{parsed.name}", port=number) if wild else _AllowEntry(parsed.name, port=number)
        if wild or not parsed.is_canonical:
            raise ValueError(f"write {parsed.address}")
    except ValueError as error:
        raise ConfigError(f"{prefix}: {error}") from error
    return _AllowEntry(network=ip_network(parsed.address), port=number)


def _split_port(entry: str) -> tuple[str, str | None]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else rest or None
    # Two colons without brackets: IPv6, which has a port only after a bracket.
    host, colon, port = entry.partition(":")
    return (host, port) if colon and ":" not in port else (entry, None)


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError as error:
        raise AddressForbidden(f"{_quote(url)} is not a URL: {error}") from error


def _canonical_name(host: str) -> str:
    try:
        return parse_host(host).name
    except ValueError:
        return host


def _quote(text: str) -> str:
    """Return untrusted text for an error: on one line, shortened, without a password or a query."""
    visible = redact_url(text) if "://" in text else text.partition("?")[0].rpartition("@")[2]
    return "".join(char if char.isprintable() else "\ufffd" for char in visible[:_MAX_QUOTED])
