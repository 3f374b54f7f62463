"""Parses hosts and IP addresses, and classifies those that are not part of the public internet."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

LOOPBACK = "a loopback address"
PRIVATE = "a private address"
LINK_LOCAL = "a link-local address"
METADATA = "a metadata service"
UNSPECIFIED = "an unspecified address"
MULTICAST = "a multicast address"
BROADCAST = "a broadcast address"
SHARED = "an address inside a carrier's network"
BENCHMARK = "an address for benchmarks"
DOCUMENTATION = "an address for documentation"
RESERVED = "a reserved address"
EMBEDDED = "an IPv4 address inside an IPv6 one"
INSIDE = "a name inside a network"

# The first network that contains an address gives its kind, so narrow networks come before wide ones.
_KINDS: tuple[tuple[str, str], ...] = (
    # Cloud metadata services hand out credentials. Some of their addresses look like public ones.
    (METADATA, "169.254.169.254 169.254.170.2 169.254.170.23 168.63.129.16 100.100.100.200 192.0.0.192"),
    (METADATA, "fd00:ec2::254 fd00:ec2::23 fd20:ce::254"),
    (LOOPBACK, "127.0.0.0/8 ::1"),
    (UNSPECIFIED, "0.0.0.0/8 ::"),
    (PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    (LINK_LOCAL, "169.254.0.0/16 fe80::/10"),
    (SHARED, "100.64.0.0/10"),
    (BENCHMARK, "198.18.0.0/15 2001:2::/48"),
    (DOCUMENTATION, "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    (MULTICAST, "224.0.0.0/4 ff00::/8"),
    (BROADCAST, "255.255.255.255"),
    # Mapped, compatible, translated, 6to4, Teredo, and local NAT64, whose prefix may have any length: routers
    # decide where these lead, and no service is offered there.
    (EMBEDDED, "::ffff:0:0/96 ::/96 ::ffff:0:0:0/96 2002::/16 2001::/32 64:ff9b:1::/48"),
    (RESERVED, "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 2001::/23"),
)
_NETWORKS: tuple[tuple[str, IpNetwork], ...] = tuple(
    (kind, ip_network(network)) for kind, networks in _KINDS for network in networks.split()
)
_UNICAST = IPv6Network("2000::/3")
# DNS64 maps public IPv4 hosts here: allowed if the embedded address is.
_NAT64 = IPv6Network("64:ff9b::/96")

_METADATA_NAMES = {"metadata", "metadata.goog", "instance-data"}
_INSIDE_NAMES = re.compile(r"(?:.*\.)?(?:localhost|localdomain|local|internal|home\.arpa)")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
# A last label like this makes the host an IPv4 address in some spelling; no top-level domain looks like it.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_HOST_LENGTH = 253


class ParsedHost(NamedTuple):
    """A parsed host: a name in lower-case ASCII, or an address; `is_canonical` is False for an unusual spelling."""

    name: str
    address: IpAddress | None = None
    is_canonical: bool = True


@lru_cache(4096)
def address_kind(address: IpAddress) -> str | None:
    """Classify an address that is not on the public internet, such as `LOOPBACK`; None means it is public."""
    for kind, network in _NETWORKS:
        if address.version == network.version and address in network:
            return kind
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return address_kind(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _UNICAST:
            return RESERVED
    return None


def name_kind(name: str) -> str | None:
    """Classify a name that only resolves inside a network; None means it may be public."""
    if name in _METADATA_NAMES:
        return METADATA
    return INSIDE if _INSIDE_NAMES.fullmatch(name) else None


def parse_host(text: str) -> ParsedHost:
    """Parse the host of a URL as resolvers do: digits of any script, any spelling of IPv4.

    Raises:
        ValueError: it is neither a name nor an address; the text says what is wrong.
    """
    if "%" in text:
        raise ValueError("a zone or an escape has no place in it")
    host = _to_ascii(text).lower()
    if ":" in host:
        return ParsedHost(host, IPv6Address(host))
    host = host.rstrip(".")
    if not _NAME.fullmatch(host) or len(host) > _MAX_HOST_LENGTH:
        raise ValueError("it is not a host name")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        address = _parse_ipv4(labels)
        return ParsedHost(host, address, is_canonical=str(address) == text)
    return ParsedHost(host)


def parse_address(text: str) -> IpAddress:
    """Parse an address in its canonical spelling.

    Raises:
        ValueError: it is none, or it has a zone.
    """
    if "%" in text:
        raise ValueError("an address of a zone means something on one machine only")
    return ip_address(text)


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    # aiohttp encodes the name with yarl too, so both see the same host.
    from yarl import URL

    return URL.build(scheme="http", host=text).raw_host or ""


def _parse_ipv4(labels: list[str]) -> IPv4Address:
    """Parse one to four decimal, octal or hexadecimal numbers; the last one fills the remaining bytes."""
    if len(labels) > 4:
        raise ValueError("an IPv4 address has four numbers")
    *heads, tail = [_parse_number(label) for label in labels]
    if any(head > 255 for head in heads) or tail >= 256 ** (4 - len(heads)):
        raise ValueError("a number in it is too large for an IPv4 address")
    value = tail
    for index, head in enumerate(heads):
        value |= head << 8 * (3 - index)
    return IPv4Address(value)


def _parse_number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)
