"""Builds a credential from the value that a user passes as `auth=`."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

from dragoman.auth.outbound.credential import BaseCredential, Credential, check_sendable
from dragoman.auth.outbound.device import DeviceCode
from dragoman.auth.outbound.fixed import ApiKey, Basic, Bearer
from dragoman.auth.outbound.oauth2 import OAuth2
from dragoman.auth.outbound.place import can_carry, put, takes_bearer
from dragoman.auth.outbound.requirement import SchemeRequirement, alternatives, declared_schemes
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest

Provider = Callable[[AgentCard | None, str | None], Any]

_EXPECTED = (
    "auth= takes a token or key as a str, (user, password), an object of dragoman.auth such as Bearer or OAuth2,"
    " a function f(card, scheme) -> str, or a list of these where the card demands several at once"
)
_BEARER = SchemeRequirement("bearer", "http", {"scheme": "bearer"})
_AUTHORIZATION_CREDENTIALS = (Bearer, Basic, OAuth2, DeviceCode)


def credential_of(auth: object) -> Credential | None:
    """Build the credential for a value of `auth=`; None for None.

    Raises:
        ConfigError: the value cannot be a credential; the text lists what can.
    """
    if auth is None:
        return None
    if isinstance(auth, str):
        return StringCredential(auth)
    if isinstance(auth, (tuple, list)):
        return _combine(cast("Sequence[object]", auth), is_pair=isinstance(auth, tuple))
    if isinstance(auth, type):
        raise ConfigError(f"auth={auth.__name__} is a class: write {auth.__name__}(…). {_EXPECTED}")
    if isinstance(auth, Credential):
        return auth
    if callable(auth):
        return CallableCredential(auth)
    raise ConfigError(f"{_EXPECTED}; not {type(auth).__name__}")


class StringCredential(BaseCredential):
    """A token or key as a string, sent where the card requires it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = check_sendable(value, "token given as auth=", ConfigError)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        put(request, self._scheme(card), self._value)

    def __repr__(self) -> str:
        return "StringCredential(…)"

    def _scheme(self, card: AgentCard | None) -> SchemeRequirement:
        required = alternatives(card)
        if not required:
            return _default_scheme(card, self._value)
        single = (schemes[0] for schemes in required if len(schemes) == 1)
        # The connection carries certificates: beside one, a single string may still be enough.
        beside = (rest[0] for rest in map(_without_tls, required) if len(rest) == 1)
        fitting = [scheme for scheme in (*single, *beside) if can_carry(scheme, self._value)]
        if fitting:
            return min(fitting, key=_unlikeliness)
        options = ", or ".join(" and ".join(map(str, schemes)) for schemes in required)
        raise AuthError(
            f"one token is not what the agent demands, which is {options}: pass the fitting object of dragoman.auth,"
            " a list of them where several are demanded together, or a function f(card, scheme)"
        )


def _unlikeliness(scheme: SchemeRequirement) -> int:
    """Rank schemes by how unlikely a plain string is meant for them.

    Cookies come from a login, and a string with a colon may be a key as well as `user:password`.
    """
    if scheme.label.lower() == "http basic":
        return 2
    return 1 if scheme.kind == "apiKey" and scheme.details.get("location") == "cookie" else 0


class CallableCredential(BaseCredential):
    """A function that returns the token for a scheme. It is called for every request; caching is up to it.

    Its arguments are the card and the name of the scheme on it, or None when the card requires nothing. Where the card
    requires several schemes together, it is called for each.
    """

    __slots__ = ("_function", "_is_async")

    def __init__(self, function: Provider) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
        )
        try:
            inspect.signature(function).bind(None, None)
        except TypeError:
            raise ConfigError(f"the function given as auth= must take (card, scheme). {_EXPECTED}") from None
        except ValueError:
            # Some builtins have no signature.
            pass

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """Call the function for each required scheme. Exceptions of the function propagate."""
        for scheme in _schemes_for_function(card):
            name = None if scheme is _BEARER else scheme.name
            value = check_sendable(
                await self._call_function(card, name), "answer of the function given as auth=", AuthError
            )
            if not can_carry(scheme, value):
                raise AuthError(f"the function given as auth= must answer `user:password` for {scheme}")
            put(request, scheme, value)

    def reject(self) -> bool:
        """Return True: the function may return a newer token."""
        return True

    def __repr__(self) -> str:
        return f"CallableCredential({getattr(self._function, '__qualname__', type(self._function).__name__)})"

    async def _call_function(self, card: AgentCard | None, scheme: str | None) -> object:
        # A plain function may read a file or call a vault: it must not block the event loop.
        call = self._function(card, scheme) if self._is_async else asyncio.to_thread(self._function, card, scheme)
        value: object = await call
        return await value if inspect.isawaitable(value) else value


class CombinedCredentials:
    """Credentials that are sent together."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Credential]) -> None:
        self._parts = tuple(parts)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        for part in self._parts:
            await part.apply(request, card, http)

    def reject(self) -> bool:
        # Every part must drop its token, so no short-circuit.
        retries = [part.reject() for part in self._parts]
        return any(retries)

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        context: ssl.SSLContext | None = None
        for part in self._parts:
            context = part.ssl_context(verify if context is None else context) or context
        return context

    def __repr__(self) -> str:
        return f"CombinedCredentials({', '.join(map(repr, self._parts))})"


def _combine(items: Sequence[object], *, is_pair: bool) -> Credential:
    if is_pair and len(items) == 2 and isinstance(items[0], str) and isinstance(items[1], str):
        return Basic(items[0], items[1])
    credentials = [part for part in map(credential_of, items) if part is not None]
    if not credentials:
        raise ConfigError(f"auth= is empty. {_EXPECTED}")
    if sum(isinstance(part, (StringCredential, CallableCredential)) for part in credentials) > 1:
        raise ConfigError("auth= lists several strings or functions: say what each is, as in [Bearer(…), ApiKey(…)]")
    if sum(isinstance(part, _AUTHORIZATION_CREDENTIALS) for part in credentials) > 1:
        raise ConfigError("auth= lists several credentials for the one Authorization header")
    if sum(isinstance(part, ApiKey) and not part.is_named for part in credentials) > 1:
        raise ConfigError("auth= lists several keys: pass name= to each ApiKey")
    return credentials[0] if len(credentials) == 1 else CombinedCredentials(credentials)


def _schemes_for_function(card: AgentCard | None) -> tuple[SchemeRequirement, ...]:
    """Return the schemes to call a function for: those of the first alternative that strings can satisfy."""
    required = alternatives(card)
    if not required:
        return (_default_scheme(card),)
    for schemes in required:
        rest = _without_tls(schemes)
        if rest and all(map(can_carry, rest)):
            return rest
    if any(not _without_tls(schemes) for schemes in required):
        raise AuthError("the agent demands a client certificate, which no function can give: pass MutualTLS(…)")
    options = ", or ".join(" and ".join(map(str, schemes)) for schemes in required)
    raise AuthError(f"the agent demands {options}, for which no token or key will do")


def _without_tls(schemes: tuple[SchemeRequirement, ...]) -> tuple[SchemeRequirement, ...]:
    return tuple(scheme for scheme in schemes if scheme.kind != "mutualTLS")


def _default_scheme(card: AgentCard | None, value: str | None = None) -> SchemeRequirement:
    """Return the scheme of a string when the card requires none: bearer, unless the card describes only others."""
    described = [scheme for scheme in declared_schemes(card) if can_carry(scheme, value)]
    return _BEARER if not described or any(map(takes_bearer, described)) else described[0]
