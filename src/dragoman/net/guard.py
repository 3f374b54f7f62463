"""What keeps requests to addresses that strangers choose inside the public internet.

A URL is checked before anything is done with it, and the address at the moment it is connected to: a name may have
another address by then (`net/connector.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from dragoman.model.error import ConfigError, DragomanError
from dragoman.net.addresses import EMBEDDED, METADATA, Address, Network, kind_of, kind_of_name, read_address, read_host
from dragoman.net.exchange import PORTS, shown

_SHOWN = 100
# Not to be had by a name, whoever may give that name an address: the credentials of the machine, and what may be them.
_BY_ADDRESS = (METADATA, EMBEDDED)


class Forbidden(DragomanError):
    """A stranger's address leads where no request goes. `.host` names it; `.address` is what it turned out to be.

    The text may be shown to the stranger: it never tells an address that the stranger did not write.
    """

    reason = "FORBIDDEN_ADDRESS"

    def __init__(self, text: str, *, host: str = "", address: str = "") -> None:
        super().__init__(text)
        self.host = host
        self.address = address


class Guard:
    """Says which hosts and addresses a stranger may have requests sent to: those of the public internet.

    `allow` adds others: host names (`hooks.example.com`, `*.example.com`), addresses and networks (`127.0.0.1`,
    `10.0.0.0/8`, `::1`), each with a port if one is meant (`localhost:9000`, `[::1]:9000`). A name is allowed with
    whatever address it has, except a metadata service or IPv4 inside IPv6, which have to be allowed as addresses.
    `setting` is what errors tell people to add to.

    Raises:
        ConfigError: an entry of `allow` cannot be read.
    """

    def __init__(self, allow: Sequence[str] = (), *, setting: str = "--push-allow") -> None:
        self._setting = setting
        self._entries = tuple(_read_entry(text, setting) for text in allow)

    def check_url(self, url: str) -> None:
        """Check all that can be known without a look-up.

        Raises:
            Forbidden: not http or https, credentials in it, no host, no such port, or a host that is not allowed.
        """
        told = _quoted(url)
        if not url.isprintable() or " " in url or "\\" in url:
            raise Forbidden(f"{told} is not a URL: it holds characters that no URL has")
        parts, port = _split(url)
        if parts.scheme not in PORTS:
            raise Forbidden(f"{told} is not an http or https URL")
        if "@" in parts.netloc:
            raise Forbidden("a URL with a user name or a password in it is not called: leave them out")
        if not parts.hostname:
            raise Forbidden(f"{told} names no host")
        # `hostname` drops nothing that matters: a zone stays in it and is refused.
        self.check_host(parts.hostname, PORTS[parts.scheme] if port is None else port)

    def check_host(self, host: str, port: int) -> None:
        """Check a host as a URL names it: a name, or an address in any spelling.

        Raises:
            Forbidden: the port does not exist, or the name or the address is not allowed.
        """
        told = _quoted(host)
        if not 0 < port < 65536:
            raise Forbidden(f"{told} has no port {port}: there are 1 to 65535", host=host)
        try:
            found = read_host(host)
        except ValueError as error:
            raise Forbidden(f"{told} is not a host that can be called: {error}", host=host) from error
        if found.address is None:
            kind = kind_of_name(found.name)
            if kind is not None and not self._allows_name(found.name, port):
                raise self._refusal(told, kind, found.name, host)
            return
        kind = kind_of(found.address)
        if kind is not None and not self._allows_address(found.address, port):
            raise self._refusal(told, kind, str(found.address), host, found.address)
        if not found.usual:
            # Not all read these alike, so that what is checked may not be what is connected to.
            raise Forbidden(
                f"{told} is an odd way to write an address: write {found.address}",
                host=host,
                address=str(found.address),
            )

    def check_address(self, ip: str, host: str, port: int) -> None:
        """Check the address that will be connected to for a host.

        Raises:
            Forbidden: it is no public address, and neither it nor the host is allowed.
        """
        told = _quoted(host)
        try:
            address = read_address(ip)
        except ValueError as error:
            text = f"{told} has no address that can be called; {self._setting} does not help"
            raise Forbidden(text, host=host, address=ip) from error
        kind = kind_of(address)
        if kind is None or self._allows_address(address, port):
            return
        if kind in _BY_ADDRESS:
            raise self._refusal(told, kind, "and its address", host, address)
        name = _name(host)
        if not self._allows_name(name, port):
            raise self._refusal(told, kind, name, host, address)

    def _allows_name(self, name: str, port: int) -> bool:
        return any(entry.holds_name(name) and entry.port in (None, port) for entry in self._entries)

    def _allows_address(self, address: Address, port: int) -> bool:
        return any(entry.holds_address(address) and entry.port in (None, port) for entry in self._entries)

    def _refusal(self, told: str, kind: str, remedy: str, host: str, address: Address | None = None) -> Forbidden:
        return Forbidden(
            f"{told} is {kind}: no request goes there unless it is allowed with {self._setting} {_quoted(remedy)}",
            host=host,
            address=str(address or ""),
        )


class _Entry(NamedTuple):
    name: str = ""
    suffix: str = ""
    network: Network | None = None
    port: int | None = None

    def holds_name(self, name: str) -> bool:
        return name == self.name if self.name else bool(self.suffix) and name.endswith(self.suffix)

    def holds_address(self, address: Address) -> bool:
        return self.network is not None and address.version == self.network.version and address in self.network


def _read_entry(text: str, setting: str) -> _Entry:
    place = text.strip()
    wrong = f"{setting} {_quoted(place)}"
    if "://" in place or "@" in place:
        raise ConfigError(f"{wrong}: a host name, an address or a network is wanted, not a URL")
    if place == "*":
        raise ConfigError(f"{wrong}: write 0.0.0.0/0 and ::/0 if every address there is shall be allowed")
    host, port = _split_port(place)
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{wrong}: the port is a number from 1 to 65535")
    number = None if port is None else int(port)
    try:
        if "/" in host:
            return _Entry(network=ip_network(host), port=number)
        wild = host.startswith("*.")
        found = read_host(host[2:] if wild else host)
        if found.address is None:
            return _Entry(suffix=f".{found.name}", port=number) if wild else _Entry(found.name, port=number)
        if wild or not found.usual:
            raise ValueError(f"write {found.address}")
    except ValueError as error:
        raise ConfigError(f"{wrong}: {error}") from error
    return _Entry(network=ip_network(found.address), port=number)


def _split_port(place: str) -> tuple[str, str | None]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else rest or None
    # Two colons and no bracket: IPv6, which has a port only behind a bracket.
    host, colon, port = place.partition(":")
    return (host, port) if colon and ":" not in port else (place, None)


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError as error:
        raise Forbidden(f"{_quoted(url)} is not a URL: {error}") from error


def _name(host: str) -> str:
    try:
        return read_host(host).name
    except ValueError:
        return host


def _quoted(text: str) -> str:
    """What a stranger wrote, as it can be shown: on one line, not too long, and without a password or a query."""
    place = shown(text) if "://" in text else text.partition("?")[0].rpartition("@")[2]
    return "".join(char if char.isprintable() else "\ufffd" for char in place[:_SHOWN])
