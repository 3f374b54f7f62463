"""The server's key pairs, derived from its secrets, and signed tokens (JWT)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.errors import BadSignature
from dragoman.keys.jwk import thumbprint
from dragoman.keys.jws import encode_header, read_header, sign, verify

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from dragoman.keys.ring import KeyRing

MAX_TOKEN = 64 * 1024
LEEWAY = 60.0
# The order of P-256. 48 random bytes modulo this make every private key equally likely.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_SCALAR_BYTES = 48
_COORDINATE_BYTES = 32


class Signer:
    """An ES256 key pair per secret. The newest signs; the public keys of all of them are published."""

    alg = "ES256"

    def __init__(self, ring: KeyRing) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        material = ring.subkeys(f"sign/{self.alg}", _SCALAR_BYTES)
        scalars = [int.from_bytes(each, "big") % (_ORDER - 1) + 1 for each in material]
        keys = [ec.derive_private_key(scalar, ec.SECP256R1()) for scalar in scalars]
        self._key = keys[0]
        self._jwks = [_public_jwk(key) for key in keys]
        self.kid = self._jwks[0]["kid"]

    def __repr__(self) -> str:
        return f"<Signer {self.kid}>"

    def jwks(self) -> dict[str, Any]:
        """Return the public keys as a key set, newest first, as `/.well-known/jwks.json` serves it."""
        return {"keys": [dict(each) for each in self._jwks]}

    def sign(self, data: bytes) -> bytes:
        """Sign data in the format of JOSE: both numbers, 32 bytes each."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            # Deterministic signatures (RFC 6979), so that every process serves the same card.
            der = self._key.sign(data, ECDSA(SHA256(), deterministic_signing=True))
        except UnsupportedAlgorithm:  # an older OpenSSL
            der = self._key.sign(data, ECDSA(SHA256()))
        return b"".join(part.to_bytes(_COORDINATE_BYTES, "big") for part in decode_dss_signature(der))

    def sign_jwt(self, claims: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> str:
        """Sign a token with these claims. `headers` may replace `typ`, but not `alg` and `kid`.

        Raises:
            TypeError: a claim or a header has no JSON form.
            ValueError: a claim is NaN or infinite, or not valid Unicode.
        """
        header = {"typ": "JWT", **(headers or {}), "alg": self.alg, "kid": self.kid}
        payload = json.dumps(claims, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        protected = encode_header(header)
        return f"{protected}.{to_base64url(payload)}.{sign(self, protected, payload)}"


def verify_jwt(
    token: str,
    jwks: Mapping[str, Any],
    *,
    audience: str | None = None,
    issuer: str | None = None,
    required: Sequence[str] = ("exp",),
    leeway: float = LEEWAY,
    now: float | None = None,
) -> dict[str, Any]:
    """Verify a token with a key set and return its claims.

    A token with an audience is refused unless `audience` is in it. `now` is in seconds since 1970, by default the
    system's time.

    Raises:
        BadSignature: the signature is not valid, a claim is missing or differs, or (`EXPIRED`) the token has expired.
    """
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if len(parts) != 3:
        raise BadSignature("this is not a signed token")
    header = read_header(parts[0])
    if header.typ is not None and header.typ.lower() == "jose":
        raise BadSignature("this signature is not one of a token")  # cards are signed with the same key
    try:
        payload = from_base64url(parts[1])
    except ValueError:
        raise BadSignature("this is not a signed token") from None
    verify(header, parts[0], payload, parts[2], jwks)
    try:
        decoded = json.loads(payload.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise BadSignature("the claims of the token are not JSON") from None
    if not isinstance(decoded, dict):
        raise BadSignature("the claims of the token are not a JSON object")
    claims = cast("dict[str, Any]", decoded)
    missing = [name for name in required if claims.get(name) is None]
    if missing:
        raise BadSignature(f"the token has no {', '.join(missing)}")
    _check_times(claims, time.time() if now is None else now, leeway)
    _check_parties(claims, audience, issuer)
    return claims


def _check_times(claims: dict[str, Any], now: float, leeway: float) -> None:
    for name in ("exp", "nbf", "iat"):
        at = claims.get(name)
        if at is None:
            continue
        if not isinstance(at, int | float) or isinstance(at, bool):
            raise BadSignature(f"{name} of the token is not a time")
        if name == "exp" and not now - leeway < at:
            raise BadSignature("the token has expired", reason="EXPIRED")
        if name != "exp" and not at <= now + leeway:
            raise BadSignature(f"the token does not hold yet ({name}): compare the clocks")


def _check_parties(claims: dict[str, Any], audience: str | None, issuer: str | None) -> None:
    aud = claims.get("aud")
    audiences = cast("list[Any]", aud) if isinstance(aud, list) else [] if aud is None else [aud]
    if audience is None and audiences:
        raise BadSignature("the token is for an audience, and none was asked for")
    if audience is not None and audience not in audiences:
        raise BadSignature("the token is for another audience", reason="WRONG_AUDIENCE")
    if issuer is not None and claims.get("iss") != issuer:
        raise BadSignature("the token is from another issuer", reason="WRONG_ISSUER")


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _public_jwk(key: EllipticCurvePrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    x, y = (to_base64url(each.to_bytes(_COORDINATE_BYTES, "big")) for each in (numbers.x, numbers.y))
    jwk = {"kty": "EC", "crv": "P-256", "x": x, "y": y}
    return {**jwk, "kid": thumbprint(jwk), "use": "sig", "alg": Signer.alg}
