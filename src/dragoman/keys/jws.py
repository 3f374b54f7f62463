"""JSON Web Signatures (RFC 7515) with public keys. The header is checked before any key is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.errors import BadSignature
from dragoman.keys.jwk import ALGORITHMS, keys_for

# Longer than any legitimate header or signature.
MAX_HEADER = 8 * 1024
MAX_SIGNATURE = 4 * 1024


class SigningKey(Protocol):
    """A private key for signing."""

    @property
    def kid(self) -> str:
        """Its id in the key set."""
        ...

    @property
    def alg(self) -> str:
        """The algorithm it signs with."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Sign data, in the signature format that JOSE defines for the algorithm."""
        ...


class Header(NamedTuple):
    """The checked members of a protected header."""

    alg: str
    kid: str
    typ: str | None
    jku: str | None


def encode_header(header: Mapping[str, Any]) -> str:
    """Encode a protected header as it is signed and sent."""
    return to_base64url(json.dumps(header, separators=(",", ":")).encode())


def sign(key: SigningKey, protected: str, payload: bytes) -> str:
    """Sign a protected header and a payload."""
    return to_base64url(key.sign(_signing_input(protected, payload)))


def read_header(protected: object, unprotected: object = None) -> Header:
    """Parse and check a header, before the signature is verified.

    Raises:
        BadSignature: it cannot be parsed, shares a name with the unprotected header, has no `kid`, requires an
            extension (`crit`, `b64`), or names an algorithm that is not supported, such as `none` and all with a shared
            secret.
    """
    if not isinstance(protected, str) or len(protected) > MAX_HEADER:
        raise BadSignature("the protected header of the signature is missing or too long")
    try:
        decoded = json.loads(from_base64url(protected).decode(), object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError):
        raise BadSignature("the protected header of the signature is not JSON in base64url") from None
    if not isinstance(decoded, dict):
        raise BadSignature("the protected header of the signature is not a JSON object")
    header = cast("dict[str, Any]", decoded)
    unprotected_header = cast("dict[str, Any]", unprotected) if isinstance(unprotected, dict) else {}
    # A name in both places could be read from either.
    if header.keys() & unprotected_header.keys():
        raise BadSignature("the protected and the unprotected header have names in common")
    if "crit" in header or "crit" in unprotected_header or "b64" in header or "b64" in unprotected_header:
        raise BadSignature("the signature demands an extension (crit, b64) that is not known here")
    alg, kid = header.get("alg"), header.get("kid")
    if not isinstance(alg, str) or alg not in ALGORITHMS:
        raise BadSignature(f"the algorithm {str(alg)[:50]!r} is none of {', '.join(ALGORITHMS)}")
    if not isinstance(kid, str) or not kid:
        raise BadSignature("the signature does not name its key (kid)")
    return Header(alg, kid, _text(header.get("typ")), _text(header.get("jku")))


def verify(header: Header, protected: str, payload: bytes, signature: object, jwks: Mapping[str, Any]) -> None:
    """Verify a signature with the keys of a set. `header` is `read_header(protected)`.

    Raises:
        BadSignature: it is not valid; the reason is `UNKNOWN_KEY` when no key has the id.
    """
    keys = keys_for(jwks, header.kid, header.alg)
    if not isinstance(signature, str) or len(signature) > MAX_SIGNATURE:
        raise BadSignature("the signature is missing or too long")
    try:
        raw = from_base64url(signature)
    except ValueError:
        raise BadSignature("the signature is not base64url") from None
    signing_input = _signing_input(protected, payload)
    if not any(key.Algorithm.verify(signing_input, key.key, raw) for key in keys):
        raise BadSignature("the signature does not fit: what was signed was changed, or another key signed it")


def _signing_input(protected: str, payload: bytes) -> bytes:
    return f"{protected}.{to_base64url(payload)}".encode()


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
