"""Users in a real file, a clock moved by hand, an issuer on loopback, and the requests a server would see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error
from support.web_app import serving

from dragoman.auth.inbound.chain import Chain
from dragoman.auth.inbound.config import build_schemes
from dragoman.auth.inbound.cookie import seal_cookie
from dragoman.auth.inbound.passwords import Passwords, key_digest, new_key
from dragoman.auth.inbound.scheme import AuthScheme
from dragoman.keys.ring import KeyRing
from dragoman.net.aio import AioClient
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock
from dragoman.transports.http import Request, segments_of

PASSWORD = "correct horse"


class QuickHasher:
    """Argon2 with the least work it can do, which counts what it is asked."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        self.verified = 0
        self.hashed = 0

    def hash(self, password: str) -> str:
        self.hashed += 1
        return self._hasher.hash(password)

    def verify(self, hashed: str, password: str) -> bool:
        self.verified += 1
        try:
            return self._hasher.verify(hashed, password)
        except Argon2Error:
            return False


class Door:
    """Everything that schemes are made from, with the users `alice` (a password, may `count`) and `bob` (neither)."""

    password = PASSWORD

    def __init__(self, users: SqliteUsers, http: AioClient, clock: Clock, hasher: QuickHasher) -> None:
        self.users = users
        self.http = http
        self.clock = clock
        self.hasher = hasher
        self.ring = KeyRing.random()
        self.passwords = Passwords(users, clock, hasher, concurrency=2)

    def asked(self, *headers: tuple[str, str], **more: Any) -> Request:
        return asked(*headers, **more)

    def schemes(self, *names: str, **tables: dict[str, Any]) -> list[AuthScheme]:
        return build_schemes(
            names, tables, self.users, self.ring, self.http, self.clock, passwords=self.passwords, base=Path()
        )

    def chain(self, *names: str, **tables: dict[str, Any]) -> Chain:
        return Chain(self.schemes(*names, **tables))

    async def cookie(self, name: str) -> str:
        account = await self.users.by_name(name)
        assert account is not None
        return seal_cookie(self.ring, account, self.clock)

    def key(self, name: str, seconds: float | None = None) -> str:
        made = new_key()
        self.users.add_key(name, key_digest(made), made[-4:], seconds)
        return made


def asked(
    *headers: tuple[str, str], method: str = "POST", path: str = "/a2a", query: str = "", **scope: Any
) -> Request:
    """A request as the server hands it to a scheme."""
    made = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("203.0.113.9", 4711),
        **scope,
    }
    return Request(made, _nothing, segments_of(made))


async def _nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def door(tmp_path: Path, clock: Clock) -> AsyncIterator[Door]:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    users, http, hasher = SqliteUsers(tmp_path / "t.db", clock), AioClient(), QuickHasher()
    await users.open()
    users.add("alice", hasher.hash(PASSWORD), ("count",))
    users.add("bob")
    hasher.hashed = 0
    made = Door(users, http, clock, hasher)
    yield made
    made.passwords.close()
    await users.close()
    await http.close()
    await store.close()


class Issuer:
    """Gives out its keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.url = ""
        self.ring = KeyRing.random()
        self.claims_to_be: str | None = None
        self.jwks_uri: str | None = None
        self.fetched = 0
        self.is_down = False

    def token(self, clock: Clock, headers: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token that is right, but for the claims that are changed; None takes one away."""
        now = clock.now() // 1000
        claims = {"iss": self.url, "aud": "the-agent", "sub": "carol", "iat": now, "exp": now + 600, "scope": "a b"}
        kept = {name: value for name, value in {**claims, **changed}.items() if value is not None}
        return self.ring.signer().sign_jwt(kept, headers)

    def table(self) -> dict[str, Any]:
        """`[auth.bearer]` for tokens of this issuer."""
        return {"issuer": self.url, "audience": "the-agent", "jwks_url": f"{self.url}/keys"}

    async def configuration(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"issuer": self.claims_to_be or self.url, "jwks_uri": self.jwks_uri or f"{self.url}/keys"}
        )

    async def keys(self, _: web.Request) -> web.Response:
        self.fetched += 1
        if self.is_down:
            return web.json_response({}, status=503)
        return web.json_response(self.ring.signer().jwks())


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    documents = ("openid-configuration", "oauth-authorization-server")
    routes = [web.get(f"/.well-known/{name}", made.configuration) for name in documents]
    async with serving([*routes, web.get("/keys", made.keys)]) as made.url:
        yield made
