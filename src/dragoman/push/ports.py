"""What the courier needs from the outside."""

from __future__ import annotations

from typing import Any, Protocol


class Sealer(Protocol):
    """Keeps secrets in a form that is worth nothing without the server's key."""

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Close."""
        ...

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Open. Raises BadSeal when that is not possible."""
        ...


class Signer(Protocol):
    """Signs what leaves, with a key whose public half is at `/.well-known/jwks.json`."""

    def sign_jwt(self, claims: dict[str, Any]) -> str:
        """A compact JWT."""
        ...


class AddressGuard(Protocol):
    """Says where webhooks may be."""

    def check_url(self, url: str) -> None:
        """Raise DragomanError for an address that may not be called."""
        ...
