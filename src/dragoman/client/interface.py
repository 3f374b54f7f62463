"""The interfaces of a card: which of them can be called, and in what order they are tried."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.table import GRPC, JSONRPC, REST, ROWS, VERSIONS, first_choice_of, nearest_version
from dragoman.model.error import BadCard, ConfigError
from dragoman.net.grpc.address import grpc_url
from dragoman.net.grpc.library import has_grpc, no_grpc_error
from dragoman.transports.jsonrpc.call import JsonRpcBinding
from dragoman.transports.rest.call import RestBinding

if TYPE_CHECKING:
    from dragoman.dialects.dialect import CallingDialect
    from dragoman.model.card import AgentCard, AgentInterface
    from dragoman.transports.binding import Binding

TRANSPORTS = {"jsonrpc": JSONRPC, "rest": REST, "grpc": GRPC}


class Interface:
    """One interface of a card: the binding to call it with, and its tenant."""

    def __init__(self, url: str, name: str, dialect: CallingDialect, tenant: str | None) -> None:
        self.url = url
        self.tenant = tenant
        self._name = name
        self._dialect = dialect
        # True once it has answered in A2A: then no other interface is tried.
        self.proven = False

    @cached_property
    def binding(self) -> Binding:
        """The binding to call it with, made when it is needed: that of gRPC is slow to import."""
        if self._name == GRPC:
            from dragoman.transports.grpc.call import GrpcBinding

            return GrpcBinding(self.url, self._dialect)
        return (RestBinding if self._name == REST else JsonRpcBinding)(self.url, self._dialect)

    def __repr__(self) -> str:
        return f"{self._name} {self._dialect.version} at {self.url}"


def check_options(protocol: str | None, transport: str | None) -> None:
    """Check the `protocol` and `transport` options. Raises ConfigError."""
    if protocol is not None and protocol not in VERSIONS:
        raise ConfigError(f"protocol {protocol!r} is not spoken here; these are: {', '.join(VERSIONS)}")
    if transport is not None and transport not in TRANSPORTS:
        raise ConfigError(f"there is no transport {transport!r}; there are: {', '.join(TRANSPORTS)}")
    if transport == "grpc" and not has_grpc():
        raise no_grpc_error()


def transport_name(binding: str) -> str:
    """Return the name of a binding as the `transport` option spells it."""
    return next(name for name, each in TRANSPORTS.items() if each == binding)


def interfaces_of(
    card: AgentCard, protocol: str | None = None, transport: str | None = None, *, source: str | None = None
) -> list[Interface]:
    """Return the interfaces to try, the card's preferred one first; `protocol` and `transport` restrict the choice.

    A version that the card does not list is tried at the listed URLs: the caller may know better than the card.
    Interfaces of gRPC are passed over where it is not installed. `source` is the URL that the card came from: its
    security is that of gRPC addresses which name none.

    Raises:
        ConfigError: no interface of the card matches, or what it takes is not installed.
        BadCard: the card has no interface that is supported here.
    """
    supported = _supported(card, source)
    if not supported:
        offered = ", ".join(sorted({each.protocol_binding or "nothing it names" for each in card.supported_interfaces}))
        raise BadCard(f"the agent {card.name!r} speaks only {offered}, and that is not spoken here")
    supported = _installed(card, supported)
    if transport is not None:
        binding = TRANSPORTS[transport]
        supported = [each for each in supported if each.protocol_binding.upper() == binding]
        if not supported:
            raise ConfigError(f"the agent {card.name!r} offers no {binding}: leave transport out")
    if protocol is not None:
        matching = [each for each in supported if nearest_version(each.protocol_version) == protocol]
        candidates = [_build_interface(each, protocol) for each in matching or supported]
    else:
        candidates = [_build_interface(each, nearest_version(each.protocol_version)) for each in supported]
        better = first_choice_of(extension.uri for extension in card.capabilities.extensions)
        if better is not None:
            candidates = [*(_build_interface(each, better) for each in supported), *candidates]
        # A card of 0.1 or 0.2 does not say which: the other is tried when the first fails.
        candidates += [
            _build_interface(each, other) for each in supported if (other := _alternative_version(each)) is not None
        ]
    usable = [each for each in candidates if each is not None]
    if not usable:
        raise ConfigError(
            f"A2A {protocol or supported[0].protocol_version} has no such transport: leave one of them out"
        )
    return usable


def main_url(card: AgentCard) -> str | None:
    """Return the URL of a card's preferred interface, one over HTTP if there is any, or None."""
    supported = _supported(card, None)
    over_http = (each.url for each in supported if each.protocol_binding.upper() != GRPC)
    return next(over_http, supported[0].url if supported else None)


def _supported(card: AgentCard, source: str | None) -> list[AgentInterface]:
    """Return the interfaces of a card that are spoken here, those of gRPC with their URLs."""
    offered = [
        each for each in card.supported_interfaces if each.url and each.protocol_binding.upper() in TRANSPORTS.values()
    ]
    over_http = (each.url for each in offered if each.protocol_binding.upper() != GRPC)
    is_secure = (source or next(over_http, "")).lower().startswith(("https:", "grpcs:"))
    supported: list[AgentInterface] = []
    for each in offered:
        if each.protocol_binding.upper() != GRPC:
            supported.append(each)
            continue
        with suppress(ValueError):
            supported.append(replace(each, url=grpc_url(each.url, secure=is_secure)))
    return supported


def _installed(card: AgentCard, supported: list[AgentInterface]) -> list[AgentInterface]:
    """Return the interfaces without those of gRPC, if that is not installed."""
    others = [each for each in supported if each.protocol_binding.upper() != GRPC]
    if len(others) == len(supported) or has_grpc():
        return supported
    if not others:
        raise no_grpc_error(f"the agent {card.name!r} speaks only gRPC, which")
    return others


def _build_interface(offered: AgentInterface, version: str) -> Interface | None:
    name = offered.protocol_binding.upper()
    dialect = dialect_of(version, name)
    return None if dialect is None else Interface(offered.url, name, dialect, offered.tenant)


def _alternative_version(offered: AgentInterface) -> str | None:
    row = ROWS.get((nearest_version(offered.protocol_version), offered.protocol_binding.upper()))
    return None if row is None else row.alternative
