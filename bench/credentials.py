"""Users, their credentials, and a settings file that has a server accept them."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from dragoman.auth.inbound.cookie import seal_cookie
from dragoman.auth.inbound.passwords import key_digest, new_key, new_password
from dragoman.clock import SystemClock
from dragoman.keys.ring import KeyRing
from dragoman.stores.sqlite.admin.users import SqliteUsers

NAME = "caller"
PASSWORD = "correct horse battery staple"
AUDIENCE = "bench"
_STORE = "tasks.db"


class Door(Struct, frozen=True):
    """What a server is started with, and the header its callers send; empty where everybody may come in."""

    config: Path
    store: Path
    header: str


def furnish(folder: Path, scheme: str) -> Door:
    """Make a store with a user, and settings with this scheme, in an empty folder."""
    users = SqliteUsers(folder / _STORE)
    users.prepare()
    users.add(NAME)
    settings, header = SCHEMES[scheme](folder, users)
    config = folder / "dragoman.toml"
    # What is measured is authentication: the rate that comes with it is turned off.
    config.write_text(f'[limits]\nrate = 0\n[serve]\nstore = "sqlite:///{_STORE}"\n{settings}')
    return Door(config, folder / _STORE, header)


def _open(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    return "", ""


def _apikey(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    return 'auth = ["apikey"]\n', f"X-API-Key: {_key(users)}"


def _bearer_key(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    return 'auth = ["bearer"]\n', f"Authorization: Bearer {_key(users)}"


def _bearer_jwt(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    issuer = KeyRing.random().signer()
    (folder / "jwks.json").write_bytes(msgspec.json.encode(issuer.jwks()))
    now = int(time.time())
    claims = {"iss": "https://issuer.example", "aud": AUDIENCE, "sub": NAME, "iat": now, "exp": now + 3600}
    table = f'[auth.bearer]\njwks_file = "jwks.json"\naudience = "{AUDIENCE}"\nissuer = "{claims["iss"]}"\n'
    return f'auth = ["bearer"]\n{table}', f"Authorization: Bearer {issuer.sign_jwt(claims)}"


def _cookie(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    account = users.account(NAME)
    assert account is not None
    ring = KeyRing.from_file(folder / f"{_STORE}.key")
    return 'auth = ["cookie"]\n', f"Cookie: user={seal_cookie(ring, account, SystemClock())}"


def _basic(folder: Path, users: SqliteUsers) -> tuple[str, str]:
    users.set_password(NAME, new_password(PASSWORD))
    return 'auth = ["basic"]\n', f"Authorization: Basic {b64encode(f'{NAME}:{PASSWORD}'.encode()).decode()}"


def _key(users: SqliteUsers) -> str:
    key = new_key()
    users.add_key(NAME, key_digest(key), key[-4:])
    return key


SCHEMES: dict[str, Callable[[Path, SqliteUsers], tuple[str, str]]] = {
    "open": _open,
    "apikey": _apikey,
    "bearer, key": _bearer_key,
    "bearer, JWT": _bearer_jwt,
    "cookie": _cookie,
    "basic": _basic,
}
