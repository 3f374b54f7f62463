"""Verification of the tokens (JWT) of an issuer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from msgspec import Struct

from dragoman.auth.inbound.chain import CredentialCache
from dragoman.auth.inbound.issuer_keys import IssuerKeys
from dragoman.auth.inbound.scheme import Forbidden, InvalidCredential
from dragoman.clock import Clock
from dragoman.keys.errors import BadSignature
from dragoman.model.user import User

# How long a verified token is accepted without verifying its signature again.
CACHE_SECONDS = 300.0
ALGORITHMS = ("ES256", "ES384", "RS256", "PS256", "EdDSA")
# The year 5138, in seconds: an issuer may send a number that no float holds.
_MAX_EXPIRY = 10**11
_MAX_CLAIM = 1000
_MAX_PERMISSIONS = 1000


class TokenRules(Struct, frozen=True, kw_only=True):
    """The requirements for a token. Without an audience every token is refused."""

    audience: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway: float = 60.0
    subject: str = "sub"
    permissions: str | None = None
    """The claim with the caller's permissions, as a dotted path; None for the token's scopes."""


class TokenVerifier:
    """Verifies a token and returns its user. The user's id is `issuer|subject`."""

    def __init__(self, scheme: str, keys: IssuerKeys, rules: TokenRules, clock: Clock) -> None:
        self._scheme = scheme
        self._keys = keys
        self._rules = rules
        self._clock = clock
        # With the version of the keys: when they change, every token is verified again.
        self._cache: CredentialCache[tuple[User, int]] = CredentialCache(clock, CACHE_SECONDS)

    async def identify(self, token: str) -> User:
        """Return the user of a token.

        Raises:
            InvalidCredential: the token is not valid.
            Forbidden: it lacks a scope.
            ServerError: the keys are not available.
        """
        digest = self._cache.digest(token)
        cached = self._cache.get(digest)
        if cached is not None and cached[1] == self._keys.version:
            return cached[0]
        claims = await self._verified_claims(token)
        user = self._build_user(claims)
        self._check_scopes(claims, user)
        expiry = min(claims["exp"], _MAX_EXPIRY) + self._rules.leeway
        self._cache.put(digest, (user, self._keys.version), expiry * 1000)
        return user

    async def _verified_claims(self, token: str) -> dict[str, Any]:
        from dragoman.keys.jws import read_header

        try:
            header = read_header(token.partition(".")[0])
            if header.alg not in self._rules.algorithms:
                raise BadSignature(f"tokens signed with {header.alg} are not taken here")
            try:
                return self._verify(token, await self._keys.current(header.kid))
            except BadSignature as error:
                refreshed = await self._keys.refresh() if error.reason == "UNKNOWN_KEY" else None
                if refreshed is None:
                    raise
                return self._verify(token, refreshed)
        except BadSignature as error:
            cause = error.reason.lower().replace("_", "-")
            raise InvalidCredential(f"the bearer token is refused: {error}", cause=cause) from None

    def _verify(self, token: str, jwks: Mapping[str, Any]) -> dict[str, Any]:
        from dragoman.keys.signer import verify_jwt

        rules = self._rules
        return verify_jwt(
            token,
            jwks,
            audience=rules.audience or "",
            issuer=rules.issuer,
            required=("exp", rules.subject),
            leeway=rules.leeway,
            now=self._clock.now() / 1000,
        )

    def _build_user(self, claims: dict[str, Any]) -> User:
        subject = claims[self._rules.subject]
        if not _is_name(subject):
            raise InvalidCredential(
                f"the bearer token is refused: its {self._rules.subject} is no name", cause="no-subject"
            )
        display_name = claims.get("name")
        path = self._rules.permissions
        permissions = scopes_of(claims) if path is None else _strings(_claim_at(claims, path))
        return User(
            id=f"{self._rules.issuer or self._scheme}|{subject}",
            name=display_name if _is_name(display_name) else subject,
            permissions=frozenset(permissions),
            claims=claims,
        )

    def _check_scopes(self, claims: dict[str, Any], user: User) -> None:
        missing = [scope for scope in self._rules.scopes if scope not in scopes_of(claims)]
        if missing:
            raise Forbidden(
                f"the bearer token lacks the scope {', '.join(missing)}",
                cause="missing-scope",
                user=user.id,
                scheme=self._scheme,
                scope=" ".join(self._rules.scopes),
            )


def _is_name(value: Any) -> TypeGuard[str]:
    """True for a text that can be an id and be written to a log: not empty, not too long, all of it printable."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_CLAIM and value.isprintable()


def scopes_of(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token: `scope` as OAuth has it, else `scp` as some issuers do."""
    return _strings(claims.get("scope", claims.get("scp")))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()[:_MAX_PERMISSIONS]
    if not isinstance(value, list):
        return []
    return [each for each in cast("list[Any]", value)[:_MAX_PERMISSIONS] if isinstance(each, str)]


def _claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim with that exact name, else the one at that dotted path."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for word in path.split("."):
        value = cast("dict[str, Any]", value).get(word) if isinstance(value, dict) else None
    return value
