"""What a card demands of its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.auth.outbound.foreign import as_object, as_texts, shown
from dragoman.model.card import AgentCard

_KINDS = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


class Scheme(Struct, frozen=True):
    """One way to authenticate. `kind` is empty when the card names a scheme and does not say what it is."""

    name: str
    kind: str = ""
    details: dict[str, Any] = {}
    scopes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"`{shown(self.name)}` ({shown(self.how) or 'not described'})"

    @property
    def how(self) -> str:
        """The kind, for HTTP the method."""
        return f"http {self.details.get('scheme', '')}".strip() if self.kind == "http" else self.kind

    def flow(self, name: str) -> dict[str, Any]:
        """An OAuth2 flow of the scheme; empty when it has no such."""
        return as_object(as_object(self.details.get("flows")).get(name)) if self.kind == "oauth2" else {}


def alternatives(card: AgentCard | None) -> list[tuple[Scheme, ...]]:
    """What a card demands: one of these, and of that one all schemes. Empty when it demands nothing."""
    if card is None:
        return []
    known = {scheme.name: scheme for scheme in declared(card)}
    found: list[tuple[Scheme, ...]] = []
    for requirement in card.security_requirements:
        wanted = as_object(as_object(requirement).get("schemes"))
        schemes = tuple(
            replace(known.get(name, Scheme(name)), scopes=as_texts(as_object(scopes).get("list")))
            for name, scopes in wanted.items()
        )
        # An empty one says that nothing will do as well.
        if schemes:
            found.append(schemes)
    return found


def declared(card: AgentCard | None) -> list[Scheme]:
    """Every scheme a card describes, demanded or not."""
    found: list[Scheme] = []
    for name, scheme in ((card.security_schemes if card else None) or {}).items():
        said = as_object(scheme)
        member = next((member for member in _KINDS if isinstance(said.get(member), dict)), "")
        found.append(Scheme(name, _KINDS.get(member, ""), as_object(said.get(member))))
    return found


def first_scheme(card: AgentCard | None, fits: Callable[[Scheme], bool]) -> Scheme | None:
    """The first scheme that fits: of those demanded, else of those described."""
    demanded = (scheme for schemes in alternatives(card) for scheme in schemes)
    return next(filter(fits, demanded), None) or next(filter(fits, declared(card)), None)
