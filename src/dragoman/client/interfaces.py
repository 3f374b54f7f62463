"""Which of an agent's interfaces to use, and in which order to try them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.dialects.legacy import LEGACY
from dragoman.dialects.v03 import V03_RPC
from dragoman.dialects.v03_proto import V03_PROTO
from dragoman.dialects.v1 import V1_0, V1_1
from dragoman.model.error import BadCard, ConfigError
from dragoman.transports.jsonrpc.call import JsonRpcBinding
from dragoman.transports.rest.call import RestBinding

if TYPE_CHECKING:
    from dragoman.dialects.base import CallingDialect
    from dragoman.model.card import AgentCard, AgentInterface
    from dragoman.transports.calling import Binding

PROTOCOLS = ("0.1", "0.2", "0.3", "1.0", "1.1")
TRANSPORTS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}
_SPOKEN = {"JSONRPC", "HTTP+JSON"}
_RPC: dict[str, CallingDialect] = {"0.1": LEGACY, "0.2": V03_RPC, "0.3": V03_RPC, "1.0": V1_0, "1.1": V1_1}
_REST: dict[str, CallingDialect] = {"0.2": V03_PROTO, "0.3": V03_PROTO, "1.0": V1_0, "1.1": V1_1}


class Interface:
    """A binding with the tenant its card names."""

    __slots__ = ("binding", "proven", "tenant")

    def __init__(self, binding: Binding, tenant: str | None) -> None:
        self.binding = binding
        self.tenant = tenant
        # True once it has answered in A2A: then nothing else is tried any more.
        self.proven = False

    def __repr__(self) -> str:
        return f"{self.binding.name} {self.binding.dialect.version} at {self.binding.url}"


def check(protocol: str | None, transport: str | None) -> None:
    """Look whether these can be asked for at all. Raises ConfigError."""
    if protocol is not None and protocol not in PROTOCOLS:
        raise ConfigError(f"protocol {protocol!r} is not spoken here; these are: {', '.join(PROTOCOLS)}")
    if transport is not None and transport not in TRANSPORTS:
        raise ConfigError(f"there is no transport {transport!r}; there are: {', '.join(TRANSPORTS)}")
    if transport == "grpc":
        raise ConfigError("gRPC is not there yet: use transport='jsonrpc' or 'rest'")


def interfaces_of(card: AgentCard, protocol: str | None = None, transport: str | None = None) -> list[Interface]:
    """The interfaces to try, the card's favourite first; `protocol` and `transport` narrow the choice.

    A version the card does not offer is tried at the addresses it does: who asks for it may know better.

    Raises:
        ConfigError: nothing the card offers fits.
        BadCard: the card offers nothing that is spoken here.
    """
    spoken = _spoken(card)
    if not spoken:
        offered = ", ".join(sorted({each.protocol_binding or "nothing it names" for each in card.supported_interfaces}))
        raise BadCard(f"the agent {card.name!r} speaks only {offered}, and that is not spoken here")
    if transport is not None:
        wanted = TRANSPORTS[transport]
        spoken = [each for each in spoken if each.protocol_binding.upper() == wanted]
        if not spoken:
            raise ConfigError(f"the agent {card.name!r} offers no {wanted}: leave transport out")
    if protocol is not None:
        fitting = [each for each in spoken if _version(each.protocol_version) == protocol]
        found = [_interface(each, protocol) for each in fitting or spoken]
    else:
        found = [_interface(each, _version(each.protocol_version)) for each in spoken]
        # A card of 0.1 or 0.2 does not say which: the other is worth a try when the first is not understood.
        found += [_interface(each, other) for each in spoken if (other := _other(each)) is not None]
    usable = [each for each in found if each is not None]
    if not usable:
        raise ConfigError(f"A2A {protocol or spoken[0].protocol_version} has no such transport: leave one of them out")
    return usable


def main_url(card: AgentCard) -> str | None:
    """Where a card's favourite among what is spoken here is; None when there is none."""
    return next((each.url for each in _spoken(card)), None)


def _spoken(card: AgentCard) -> list[AgentInterface]:
    return [each for each in card.supported_interfaces if each.url and each.protocol_binding.upper() in _SPOKEN]


def _interface(offered: AgentInterface, version: str) -> Interface | None:
    if offered.protocol_binding.upper() == "JSONRPC":
        return Interface(JsonRpcBinding(offered.url, _RPC[version]), offered.tenant)
    dialect = _REST.get(version)
    return None if dialect is None else Interface(RestBinding(offered.url, dialect), offered.tenant)


def _version(said: str) -> str:
    """The version to speak: the nearest that is spoken here."""
    version = ".".join([*said.lstrip("v").split("."), "0"][:2])
    if version in PROTOCOLS:
        return version
    major = version.partition(".")[0]
    return {"0": "0.3", "1": "1.1"}.get(major, "1.0")


def _other(offered: AgentInterface) -> str | None:
    if offered.protocol_binding.upper() != "JSONRPC":
        return None
    return {"0.1": "0.3", "0.2": "0.1", "0.3": "0.1"}.get(_version(offered.protocol_version))
