"""Static credentials: a bearer token, an API key, a user with a password, a cookie."""

from __future__ import annotations

from dragoman.auth.outbound.credential import BaseCredential, Secret, check_sendable
from dragoman.auth.outbound.place import LOCATIONS, is_token, put_basic, put_bearer, put_cookie, put_key
from dragoman.auth.outbound.requirement import SchemeRequirement, first_scheme
from dragoman.model.card import AgentCard
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpClient, HttpRequest

_DEFAULT_HEADER = "X-API-Key"


class Bearer(BaseCredential):
    """A bearer token. `env` names an environment variable that holds it, read at every request.

    Raises:
        ConfigError: there is no token, or it cannot be sent.
    """

    __slots__ = ("_secret",)

    def __init__(self, token: str | None = None, *, env: str | None = None) -> None:
        self._secret = Secret("token", token, env)
        if token is not None and " " in token:
            raise ConfigError("the token contains a space: give the token alone, without `Bearer`")

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        put_bearer(request, self._secret.read())

    def __repr__(self) -> str:
        return f"Bearer({self._secret!r})"


class ApiKey(BaseCredential):
    """A key in a header, the query or a cookie: where the card requires it, else in the header `X-API-Key`.

    Raises:
        ConfigError: there is no key, it cannot be sent, or `location` is unknown.
    """

    __slots__ = ("_location", "_name", "_secret")

    def __init__(
        self,
        key: str | None = None,
        *,
        env: str | None = None,
        name: str | None = None,
        location: str | None = None,
    ) -> None:
        self._secret = Secret("key", key, env)
        if location is not None and location not in LOCATIONS:
            raise ConfigError("location= must be one of " + ", ".join(f"'{each}'" for each in LOCATIONS))
        self._name = None if name is None else check_sendable(name, "name of the key", ConfigError)
        self._location = location

    @property
    def is_named(self) -> bool:
        """True when the user passed the name of the key."""
        return self._name is not None

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        location, name = self._place(card)
        put_key(request, location, name, self._secret.read())

    def __repr__(self) -> str:
        options = (("name", self._name), ("location", self._location))
        return f"ApiKey({', '.join([repr(self._secret), *(f'{key}={value!r}' for key, value in options if value)])})"

    def _place(self, card: AgentCard | None) -> tuple[str, str]:
        if self._name is not None and self._location is not None:
            return self._location, self._name
        scheme = first_scheme(card, self._fits)
        if scheme is not None:
            return str(scheme.details["location"]), str(scheme.details["name"])
        if self._name is None and self._location not in (None, "header"):
            raise AuthError(f"the agent's card names no key in the {self._location}: pass name= to ApiKey")
        return self._location or "header", self._name or _DEFAULT_HEADER

    def _fits(self, scheme: SchemeRequirement) -> bool:
        location, name = scheme.details.get("location"), scheme.details.get("name")
        if scheme.kind != "apiKey" or location not in LOCATIONS or not isinstance(name, str):
            return False
        if self._name is not None:
            return name.lower() == self._name.lower()
        return self._location is None or location == self._location


class Basic(BaseCredential):
    """A user and a password. `env` names an environment variable that holds the password.

    Raises:
        ConfigError: there is no password, or the user or the password cannot be sent.
    """

    __slots__ = ("_secret", "_user")

    def __init__(self, user: str, password: str | None = None, *, env: str | None = None) -> None:
        self._user = check_sendable(user, "user", ConfigError, may_be_empty=True)
        if ":" in user:
            raise ConfigError("the user contains a colon, which would end it")
        self._secret = Secret("password", password, env, may_be_empty=True)

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        put_basic(request, f"{self._user}:{self._secret.read()}")

    def __repr__(self) -> str:
        # Some services take their key as the user, so it is a secret too.
        return f"Basic(…, {self._secret!r})"


class Cookie(BaseCredential):
    """A cookie, sent along with any others. `env` names an environment variable that holds its value.

    Raises:
        ConfigError: there is no value, or it or the name cannot be sent.
    """

    __slots__ = ("_name", "_secret")

    def __init__(self, value: str | None = None, *, name: str = "user", env: str | None = None) -> None:
        self._secret = Secret("cookie", value, env)
        if value is not None and ";" in value:
            raise ConfigError("the cookie contains a semicolon: give its value alone")
        if not is_token(check_sendable(name, "name of the cookie", ConfigError)):
            raise ConfigError("the name of the cookie contains characters that a cookie's name cannot have")
        self._name = name

    async def apply(self, request: HttpRequest, card: AgentCard | None, http: HttpClient) -> None:
        put_cookie(request, self._name, self._secret.read())

    def __repr__(self) -> str:
        return f"Cookie({self._secret!r}, name={self._name!r})"
