"""From what a user gives as `auth=` to a credential."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

from dragoman.auth.outbound.credential import Credential, Unchanging, sendable
from dragoman.auth.outbound.device import DeviceCode
from dragoman.auth.outbound.fixed import ApiKey, Basic, Bearer
from dragoman.auth.outbound.oauth2 import OAuth2
from dragoman.auth.outbound.place import carries, put, takes_bearer
from dragoman.auth.outbound.requirement import Scheme, alternatives, declared
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest

Provider = Callable[[AgentCard | None, str | None], Any]

_POSSIBLE = (
    "auth= takes a token or key as a str, (user, password), an object of dragoman.auth such as Bearer or OAuth2,"
    " a function f(card, scheme) -> str, or a list of these where the card demands several at once"
)
_BEARER = Scheme("bearer", "http", {"scheme": "bearer"})
_OF_AUTHORIZATION = (Bearer, Basic, OAuth2, DeviceCode)


def credential_of(auth: object) -> Credential | None:
    """The credential meant by `auth=`; None when there is none.

    Raises:
        ConfigError: it is nothing a credential can be made of; the text says what is possible.
    """
    if auth is None:
        return None
    if isinstance(auth, str):
        return Told(auth)
    if isinstance(auth, (tuple, list)):
        return _of_several(cast("Sequence[object]", auth), is_pair=isinstance(auth, tuple))
    if isinstance(auth, type):
        raise ConfigError(f"auth={auth.__name__} is a class: write {auth.__name__}(…). {_POSSIBLE}")
    if isinstance(auth, Credential):
        return auth
    if callable(auth):
        return Asked(auth)
    raise ConfigError(f"{_POSSIBLE}; not {type(auth).__name__}")


class Told(Unchanging):
    """A token or key, put where the card says."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = sendable(value, "token given as auth=", ConfigError)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """See `Credential.apply`."""
        put(request, self._scheme(card), self._value)

    def __repr__(self) -> str:
        return "Told(…)"

    def _scheme(self, card: AgentCard | None) -> Scheme:
        demanded = alternatives(card)
        if not demanded:
            return _undemanded(card, self._value)
        single = (schemes[0] for schemes in demanded if len(schemes) == 1)
        # Certificates are the connection's affair: beside them, one string may still be all.
        beside = (rest[0] for rest in map(_without_tls, demanded) if len(rest) == 1)
        fitting = [scheme for scheme in (*single, *beside) if carries(scheme, self._value)]
        if fitting:
            return min(fitting, key=_likelihood)
        ways = ", or ".join(" and ".join(map(str, schemes)) for schemes in demanded)
        raise AuthError(
            f"one token is not what the agent demands, which is {ways}: pass the fitting object of dragoman.auth,"
            " a list of them where several are demanded together, or a function f(card, scheme)"
        )


def _likelihood(scheme: Scheme) -> int:
    """How little a plain string looks like this: cookies are made by a login, and a colon makes no password."""
    if scheme.how.lower() == "http basic":
        return 2
    return 1 if scheme.kind == "apiKey" and scheme.details.get("location") == "cookie" else 0


class Asked(Unchanging):
    """A function that gives the string for a scheme. It is called for every request: what is worth keeping, it keeps.

    It is given the card and the name of the scheme there, or None when the card demands nothing. Where the card demands
    several schemes together, it is called for each.
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
            raise ConfigError(f"the function given as auth= must take (card, scheme). {_POSSIBLE}") from None
        except ValueError:
            # A builtin may not tell.
            pass

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """See `Credential.apply`. What the function raises is passed on."""
        for scheme in _answerable(card):
            name = None if scheme is _BEARER else scheme.name
            value = sendable(await self._ask(card, name), "answer of the function given as auth=", AuthError)
            if not carries(scheme, value):
                raise AuthError(f"the function given as auth= must answer `user:password` for {scheme}")
            put(request, scheme, value)

    def reject(self) -> bool:
        """See `Credential.reject`. It may have a newer one by now."""
        return True

    def __repr__(self) -> str:
        return f"Asked({getattr(self._function, '__qualname__', type(self._function).__name__)})"

    async def _ask(self, card: AgentCard | None, scheme: str | None) -> object:
        # A plain function may read a file or call a vault: not in the event loop.
        call = self._function(card, scheme) if self._is_async else asyncio.to_thread(self._function, card, scheme)
        answer: object = await call
        return await answer if inspect.isawaitable(answer) else answer


class Several:
    """Credentials that are sent together."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Credential]) -> None:
        self._parts = tuple(parts)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        """See `Credential.apply`."""
        for part in self._parts:
            await part.apply(request, card, http)

    def reject(self) -> bool:
        """See `Credential.reject`."""
        # Every part must hear it.
        answers = [part.reject() for part in self._parts]
        return any(answers)

    def ssl_context(self, verify: bool | ssl.SSLContext | str) -> ssl.SSLContext | None:
        """See `Credential.ssl_context`."""
        found: ssl.SSLContext | None = None
        for part in self._parts:
            found = part.ssl_context(verify if found is None else found) or found
        return found

    def __repr__(self) -> str:
        return f"Several({', '.join(map(repr, self._parts))})"


def _of_several(given: Sequence[object], *, is_pair: bool) -> Credential:
    if is_pair and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], str):
        return Basic(given[0], given[1])
    parts = [part for part in map(credential_of, given) if part is not None]
    if not parts:
        raise ConfigError(f"auth= is empty. {_POSSIBLE}")
    if sum(isinstance(part, (Told, Asked)) for part in parts) > 1:
        raise ConfigError("auth= lists several strings or functions: say what each is, as in [Bearer(…), ApiKey(…)]")
    if sum(isinstance(part, _OF_AUTHORIZATION) for part in parts) > 1:
        raise ConfigError("auth= lists several credentials for the one Authorization header")
    if sum(isinstance(part, ApiKey) and not part.is_named for part in parts) > 1:
        raise ConfigError("auth= lists several keys: pass name= to each ApiKey")
    return parts[0] if len(parts) == 1 else Several(parts)


def _answerable(card: AgentCard | None) -> tuple[Scheme, ...]:
    """The schemes a function is asked about: those of the first alternative it can answer for."""
    demanded = alternatives(card)
    if not demanded:
        return (_undemanded(card),)
    for schemes in demanded:
        rest = _without_tls(schemes)
        if rest and all(map(carries, rest)):
            return rest
    if any(not _without_tls(schemes) for schemes in demanded):
        raise AuthError("the agent demands a client certificate, which no function can give: pass MutualTLS(…)")
    ways = ", or ".join(" and ".join(map(str, schemes)) for schemes in demanded)
    raise AuthError(f"the agent demands {ways}, for which no token or key will do")


def _without_tls(schemes: tuple[Scheme, ...]) -> tuple[Scheme, ...]:
    return tuple(scheme for scheme in schemes if scheme.kind != "mutualTLS")


def _undemanded(card: AgentCard | None, value: str | None = None) -> Scheme:
    """Where a string goes when the card demands nothing: a bearer token, unless the card only knows other ways."""
    known = [scheme for scheme in declared(card) if carries(scheme, value)]
    return _BEARER if not known or any(map(takes_bearer, known)) else known[0]
