"""The authentication schemes of a server, tried in order, and the cache of verified credentials."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Generic, TypeVar

from dragoman.auth.inbound.scheme import AuthScheme, Forbidden, InboundRequest, InvalidCredential, client_address
from dragoman.clock import Clock
from dragoman.model.error import A2AError, ConfigError, Overloaded, ServerError, Unauthenticated, Unauthorized
from dragoman.model.user import User
from dragoman.telemetry.audit import Audit

Header = tuple[bytes, bytes]


class Chain:
    """Tries the schemes in order. The first that identifies the caller decides.

    A credential that one scheme refuses may be valid for another: several schemes read the same header.
    """

    def __init__(self, schemes: Sequence[AuthScheme], audit: Audit | None = None) -> None:
        """Create a chain of schemes.

        Raises:
            ConfigError: there is no scheme, or two have the same name.
        """
        names = [scheme.name for scheme in schemes]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"a server needs one or more schemes with different names, not {names}")
        self._schemes = tuple(schemes)
        self._explicit_schemes = tuple(each for each in schemes if not each.ambient)
        self._names = ",".join(names)
        self._audit = audit or Audit()
        self._challenges = tuple(dict.fromkeys(each.challenge for each in schemes if each.challenge))

    async def __call__(self, request: InboundRequest, *, ambient: bool = True) -> User:
        """Return the caller. `ambient` is as in `identify`.

        Raises:
            Unauthenticated: there is no credential, or it is wrong. The metadata `schemes` names the schemes.
            Unauthorized: a scope is missing. The metadata `scope` names the required ones.
            ServerError: the credential cannot be checked now.
        """
        user = await self.identify(request, ambient=ambient)
        if user is None:
            self._audit.record_challenge(schemes=self._names, address=client_address(request))
            raise Unauthenticated(
                f"say who you are, by one of these schemes of the agent's card: {self._names.replace(',', ', ')}",
                schemes=self._names,
            )
        return user

    async def identify(self, request: InboundRequest, *, ambient: bool = True) -> User | None:
        """Return the caller, or None when the request has no credential, for servers that allow anonymous callers.

        Without `ambient`, schemes whose credentials browsers add by themselves are skipped.

        Raises:
            Unauthenticated: the credential is wrong.
            Unauthorized: a scope is missing.
            ServerError: the credential cannot be checked now.
        """
        refusals: list[tuple[AuthScheme, A2AError]] = []
        for scheme in self._schemes if ambient else self._explicit_schemes:
            try:
                user = await scheme.identify(request)
            except (InvalidCredential, Forbidden, ServerError) as error:
                refusals.append((scheme, error))
                continue
            if user is not None:
                return user
        if refusals:
            raise self._refusal(request, refusals)
        return None

    def challenge_headers(self, error: A2AError | None = None) -> list[Header]:
        """Build the `WWW-Authenticate` headers for an error of this chain: one per scheme that has a challenge."""
        if isinstance(error, Unauthorized):
            scope = error.metadata.get("scope")
            challenges = [f'Bearer realm="dragoman", error="insufficient_scope", scope="{scope}"'] if scope else []
        else:
            error_parameter = ', error="invalid_token"' if error is not None and "scheme" in error.metadata else ""
            challenges = [each + (error_parameter if each.startswith("Bearer") else "") for each in self._challenges]
        return [(b"www-authenticate", each.encode("latin-1")) for each in challenges]

    def security(self) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """Return `securitySchemes` and `securityRequirements` for the card in 1.0 form; any one scheme is enough."""
        schemes = {each.name: each.card for each in self._schemes}
        requirements = [{"schemes": {each.name: {"list": list(each.scopes)}}} for each in self._schemes]
        return schemes, requirements

    def _refusal(self, request: InboundRequest, refusals: list[tuple[AuthScheme, A2AError]]) -> A2AError:
        """Log the refusals and choose the error to raise: a missing scope, else an outage, else the first refusal."""
        where = client_address(request)
        for scheme, error in refusals:
            if isinstance(error, Overloaded):
                continue  # refusals by limits are logged by `Limiter`, at a bounded rate
            cause, user = (
                (error.cause, error.user) if isinstance(error, (InvalidCredential, Forbidden)) else ("unavailable", "")
            )
            self._audit.record_denial(scheme=scheme.name, reason=cause, user=user, address=where)
        for kind in (Forbidden, ServerError):
            for _, error in refusals:
                if isinstance(error, kind):
                    return error
        scheme, error = refusals[0]
        wait = {name: value for name, value in error.metadata.items() if name == "retryAfter"}
        return Unauthenticated(str(error), scheme=scheme.name, schemes=self._names, **wait)


T = TypeVar("T")
SIZE = 4096


class CredentialCache(Generic[T]):
    """Caches the result of checking credentials for a limited time, without keeping the credentials.

    Entries are stored under a digest with a random key of this process: a memory dump reveals no credential.
    """

    def __init__(self, clock: Clock, seconds: float, size: int = SIZE) -> None:
        self._clock = clock
        self._ttl_ms = int(seconds * 1000)
        self._size = size
        self._key = secrets.token_bytes(32)
        self._entries: dict[bytes, tuple[T, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def digest(self, *credentials: str) -> bytes:
        """Return the cache key of credentials."""
        joined = "".join([f"{len(each)}:{each}" for each in credentials])
        return sha256(self._key + joined.encode("utf-8", "surrogatepass")).digest()

    def get(self, digest: bytes) -> T | None:
        """Return the cached result, or None when there is none or it has expired."""
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and self._clock.now() < entry[1] else None

    def put(self, digest: bytes, value: T, until_ms: float | None = None) -> None:
        """Store a result, until `until_ms` (milliseconds since 1970) at most. The oldest entry is evicted first."""
        end = self._clock.now() + self._ttl_ms
        self._entries.pop(digest, None)
        while len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[digest] = (value, end if until_ms is None else int(min(end, until_ms)))
