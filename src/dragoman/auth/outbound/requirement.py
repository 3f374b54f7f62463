"""The authentication that a card requires of its callers."""

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
    """A security scheme of a card with the required scopes. `kind` is empty when the card does not describe it."""

    name: str
    kind: str = ""
    details: dict[str, Any] = {}
    scopes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"`{redact(self.name)}` ({redact(self.label) or 'not described'})"

    @property
    def label(self) -> str:
        """The kind of scheme; for HTTP together with the authentication scheme, such as `http Bearer`."""
        return f"http {self.details.get('scheme', '')}".strip() if self.kind == "http" else self.kind

    def flow(self, name: str) -> dict[str, Any]:
        """Return an OAuth 2 flow of the scheme; empty when it has none of that name."""
        return as_object(as_object(self.details.get("flows")).get(name)) if self.kind == "oauth2" else {}


def alternatives(card: AgentCard | None) -> list[tuple[SchemeRequirement, ...]]:
    """Return the requirements of a card: all schemes of any one tuple. Empty when nothing is required."""
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
        # An empty requirement allows anonymous access.
        if schemes:
            result.append(schemes)
    return result


def declared_schemes(card: AgentCard | None) -> list[SchemeRequirement]:
    """Return every scheme that a card describes, required or not."""
    result: list[SchemeRequirement] = []
    for name, scheme in ((card.security_schemes if card else None) or {}).items():
        members = as_object(scheme)
        member = next((member for member in _KINDS if isinstance(members.get(member), dict)), "")
        result.append(SchemeRequirement(name, _KINDS.get(member, ""), as_object(members.get(member))))
    return result


def first_scheme(card: AgentCard | None, fits: Callable[[SchemeRequirement], bool]) -> SchemeRequirement | None:
    """Return the first scheme that fits: of the required ones, else of those described."""
    demanded = (scheme for schemes in alternatives(card) for scheme in schemes)
    return next(filter(fits, demanded), None) or next(filter(fits, declared_schemes(card)), None)
