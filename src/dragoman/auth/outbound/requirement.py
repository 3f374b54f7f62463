"""What a card demands of its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.outbound.untrusted import as_object, as_strings, redact
from dragoman.model.card import AgentCard

_KINDS = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


class SchemeRequirement(Struct, frozen=True):
    """One way to authenticate. `kind` is empty when the card names a scheme and does not say what it is."""

    name: str
    kind: str = ""
    details: dict[str, Any] = {}
    scopes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"`{redact(self.name)}` ({redact(self.how) or 'not described'})"

    @property
    def how(self) -> str:
        """The kind, for HTTP the method."""
        return f"http {self.details.get('scheme', '')}".strip() if self.kind == "http" else self.kind

    def flow(self, name: str) -> dict[str, Any]:
        """An OAuth2 flow of the scheme; empty when it has no such."""
        return as_object(as_object(self.details.get("flows")).get(name)) if self.kind == "oauth2" else {}


def alternatives(card: AgentCard | None) -> list[tuple[SchemeRequirement, ...]]:
    """What a card demands: one of these, and of that one all schemes. Empty when it demands nothing."""
    if card is None:
        return []
    described = {scheme.name: scheme for scheme in declared_schemes(card)}
    result: list[tuple[SchemeRequirement, ...]] = []
    for requirement in card.security_requirements:
        required = as_object(as_object(requirement).get("schemes"))
        schemes = tuple(
            replace(described.get(name, SchemeRequirement(name)), scopes=as_strings(as_object(scopes).get("list")))
            for name, scopes in required.items()
        )
        # An empty one says that nothing will do as well.
        if schemes:
            result.append(schemes)
    return result


def declared_schemes(card: AgentCard | None) -> list[SchemeRequirement]:
    """Every scheme a card describes, demanded or not."""
    result: list[SchemeRequirement] = []
    for name, scheme in ((card.security_schemes if card else None) or {}).items():
        members = as_object(scheme)
        member = next((member for member in _KINDS if isinstance(members.get(member), dict)), "")
        result.append(SchemeRequirement(name, _KINDS.get(member, ""), as_object(members.get(member))))
    return result


def first_scheme(card: AgentCard | None, fits: Callable[[SchemeRequirement], bool]) -> SchemeRequirement | None:
    """The first scheme that fits: of those demanded, else of those described."""
    demanded = (scheme for schemes in alternatives(card) for scheme in schemes)
    return next(filter(fits, demanded), None) or next(filter(fits, declared_schemes(card)), None)
