"""All the ways of saying who one is, one after the other."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Generic, TypeVar

from dragoman.auth.inbound.audit import Audit
from dragoman.auth.inbound.scheme import AuthScheme, Forbidden, InboundRequest, InvalidCredential, client_address
from dragoman.clock import Clock
from dragoman.model.error import A2AError, ConfigError, Overloaded, ServerError, Unauthenticated, Unauthorized
from dragoman.model.user import User

Header = tuple[bytes, bytes]


class Chain:
    """Asks the schemes in order. The first that knows the caller decides.

    A credential that one scheme refuses may be right for another: several can read the same header.
    """

    def __init__(self, schemes: Sequence[AuthScheme], audit: Audit | None = None) -> None:
        """Take the schemes.

        Raises:
            ConfigError: there is none, or two have one name.
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
        """Who is calling. Without `ambient`, see `identify`.

        Raises:
            Unauthenticated: nobody says, or what is presented is wrong. The metadata `schemes` names the schemes.
            Unauthorized: a scope is missing. The metadata `scope` names those that are needed.
            ServerError: it cannot be told now.
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
        """Who is calling; None when nobody says, for servers that also talk to strangers.

        Without `ambient`, schemes whose credentials browsers add by themselves are not asked.

        Raises:
            Unauthenticated: what is presented is wrong.
            Unauthorized: a scope is missing.
            ServerError: it cannot be told now.
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
        """`WWW-Authenticate` for an error that this raised: one header per scheme that has something to say."""
        if isinstance(error, Unauthorized):
            scope = error.metadata.get("scope")
            challenges = [f'Bearer realm="dragoman", error="insufficient_scope", scope="{scope}"'] if scope else []
        else:
            error_parameter = ', error="invalid_token"' if error is not None and "scheme" in error.metadata else ""
            challenges = [each + (error_parameter if each.startswith("Bearer") else "") for each in self._challenges]
        return [(b"www-authenticate", each.encode("latin-1")) for each in challenges]

    def security(self) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """What the card says: `securitySchemes` and `securityRequirements` in 1.0 form, any one of them enough."""
        schemes = {each.name: each.card for each in self._schemes}
        requirements = [{"schemes": {each.name: {"list": list(each.scopes)}}} for each in self._schemes]
        return schemes, requirements

    def _refusal(self, request: InboundRequest, refusals: list[tuple[AuthScheme, A2AError]]) -> A2AError:
        """The error to raise: that a scope is missing tells more than that another scheme knows nothing of it."""
        where = client_address(request)
        for scheme, error in refusals:
            if isinstance(error, Overloaded):
                continue  # that line is bounded, and is written where all limits are
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
    """Remembers what credentials were good for, for a while, without keeping the credentials.

    They are known by a digest with a key that nobody has: what is in memory, or in a dump of it, opens nothing.
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
        """The name of credentials here."""
        joined = "".join([f"{len(each)}:{each}" for each in credentials])
        return sha256(self._key + joined.encode("utf-8", "surrogatepass")).digest()

    def get(self, digest: bytes) -> T | None:
        """What these credentials were good for; None when that is unknown or too long ago."""
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and self._clock.now() < entry[1] else None

    def put(self, digest: bytes, value: T, until_ms: float | None = None) -> None:
        """Remember, at most until that time in milliseconds since 1970."""
        end = self._clock.now() + self._ttl_ms
        self._entries.pop(digest, None)
        while len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[digest] = (value, end if until_ms is None else int(min(end, until_ms)))
