"""JSON Web Keys and key sets (RFC 7517, RFC 7638), and the algorithms each key type allows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.canonical import canonical
from dragoman.keys.errors import BadSignature

if TYPE_CHECKING:
    from jwt import PyJWK

Json = dict[str, Any]

MIN_RSA_BYTES = 256
# A signature is verified in time that grows with both: 16384 bits, or an exponent as long as the modulus, take a
# hundred times as long as what issuers use.
MAX_RSA_BYTES = 1024
MAX_EXPONENT_BYTES = 8
MAX_KEYS = 100
# While keys are rotated, two may share an id.
MAX_SAME_ID = 4
# The public members of each key type: a key set may also have private or unknown members.
_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}


class _Kind(NamedTuple):
    kty: str
    crv: str | None = None


ALGORITHMS = {
    "ES256": _Kind("EC", "P-256"),
    "ES384": _Kind("EC", "P-384"),
    "RS256": _Kind("RSA"),
    "PS256": _Kind("RSA"),
    "EdDSA": _Kind("OKP", "Ed25519"),
}


def public_jwk(jwk: Mapping[str, Any]) -> dict[str, str]:
    """Return the public members of a key, and nothing private.

    Raises:
        ValueError: it is not a public key of a supported type.
    """
    names = _MEMBERS.get(str(jwk.get("kty")))
    if names is None:
        raise ValueError("no public key of a known type")
    members = {name: jwk.get(name) for name in names}
    if not all(isinstance(member, str) and member for member in members.values()):
        raise ValueError(f"a key of type {jwk['kty']} needs {', '.join(names)}")
    return cast("dict[str, str]", members)


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the thumbprint of a public key (RFC 7638, SHA-256), used as its key id.

    Raises:
        ValueError: it is not a public key of a supported type.
    """
    return to_base64url(hashlib.sha256(canonical(public_jwk(jwk))).digest())


def keys_for(jwks: Mapping[str, Any], kid: str, alg: str) -> list[PyJWK]:
    """Return the keys of a set with this key id that allow this algorithm: one, unless ids repeat, then four at most.

    Raises:
        BadSignature: there is none; the reason is `UNKNOWN_KEY` when no key has the id.
    """
    listed = jwks.get("keys")
    if not isinstance(listed, list):
        raise BadSignature("the key set is no JWKS: it has no list of keys")
    candidates = [cast("Json", each) for each in cast("list[Any]", listed)[:MAX_KEYS] if isinstance(each, dict)]
    named = [each for each in candidates if each.get("kid") == kid]
    if not named:
        raise BadSignature(f"no key is named {kid[:100]!r}", reason="UNKNOWN_KEY")
    loaded = (_load_key(each, alg) for each in named)
    usable = list(islice((key for key in loaded if key is not None), MAX_SAME_ID))
    if not usable:
        raise BadSignature(f"the key {kid[:100]!r} cannot be used with {alg}")
    return usable


def _load_key(jwk: Json, alg: str) -> PyJWK | None:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    kind = ALGORITHMS[alg]
    operations = jwk.get("key_ops", ["verify"])
    fits = (
        jwk.get("kty") == kind.kty
        and (kind.crv is None or jwk.get("crv") == kind.crv)
        and jwk.get("alg", alg) == alg
        and jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in cast("list[Any]", operations)
    )
    if not fits:
        return None
    try:
        public = public_jwk(jwk)
        if kind.kty == "RSA" and not _is_usual_rsa(public):
            return None
        return PyJWK(cast("Json", public), alg)
    except (PyJWTError, ValueError, TypeError):
        return None


def _is_usual_rsa(public: dict[str, str]) -> bool:
    modulus, exponent = (len(from_base64url(public[name]).lstrip(b"\0")) for name in ("n", "e"))
    return MIN_RSA_BYTES <= modulus <= MAX_RSA_BYTES and exponent <= MAX_EXPONENT_BYTES
