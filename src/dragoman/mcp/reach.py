"""Which addresses a tool's argument may name."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.mcp.problem import ToolProblem

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reach:
    """The agents that were given or configured, this machine, and the hosts that were allowed. Nothing else.

    A model chooses the arguments of a tool, and whoever speaks to the model may choose them too: an address in there
    must not become a way into the network around us.
    """

    def __init__(self, agents: Iterable[str], allow: Iterable[str]) -> None:
        self._origins = {origin_of(agent) for agent in agents}
        self._allow = {each.lower().rstrip(".") for each in allow}

    def check(self, url: str) -> str:
        """The address without the space around it. Raises ToolProblem when it may not be called."""
        url = url.strip()
        try:
            parts = urlsplit(url)
            scheme, host, port = origin_of(url)
        except ValueError:  # a port that is none, a bracket that is not closed
            raise _no_address(url) from None
        if "@" in parts.netloc:
            raise ToolProblem("credentials do not belong into an address: configure the agent under [remotes]")
        if scheme not in ("http", "https") or not host or not _is_plain(url):
            raise _no_address(url)
        if not (self.allows(host, port) or (scheme, host, port) in self._origins):
            raise ToolProblem(
                f"{host} may not be called: only configured agents, this machine and allowed hosts may. "
                f"Ask the user to start the server with --allow {host}, or to add it under [remotes]"
            )
        return url

    def allows(self, host: str, port: int | None) -> bool:
        """True for this machine, and for hosts of the allow-list, with or without their port."""
        return is_loopback(host) or host in self._allow or f"{host}:{port}" in self._allow


def _is_plain(url: str) -> bool:
    return url.isprintable() and not any(each in url for each in ' \\"<>')


def _no_address(url: str) -> ToolProblem:
    shown = url.rpartition("@")[2][:200]
    return ToolProblem(f"{shown!r} is no address of an agent: give one like https://agents.example.com")


def is_loopback(host: str) -> bool:
    """True for the name and the addresses of this machine.

    Names under `localhost` are not: it depends on the resolver where they lead, and some ask the network.
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address. Raises ValueError when it is none at all."""
    parts = urlsplit(url.strip())
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme.lower(), (parts.hostname or "").lower().rstrip("."), port
