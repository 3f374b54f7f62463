"""Lazy creation of keys and HTTP clients, which most servers never use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.keys.ring import KeyRing
    from dragoman.net.exchange import HttpClient, HttpRequest, HttpResponse


class LazyKeys:
    """The server's keys: from the setting `secret`, else from the file beside the store, else random.

    A store in memory has no file.
    """

    def __init__(self, secret: str | None, store: Path | None) -> None:
        self._secret = secret
        self._store = store
        self._ring: KeyRing | None = None
        self._lock = threading.Lock()

    @property
    def ring(self) -> KeyRing:
        """The key ring, created once, from any thread. Raises ConfigError when the keys cannot be read."""
        if self._ring is None:
            with self._lock:
                self._ring = self._ring or self._load()
        return self._ring

    def _load(self) -> KeyRing:
        from dragoman.keys.ring import KeyRing

        if self._secret:
            return KeyRing.from_text(self._secret)
        if self._store is None:
            return KeyRing.random()
        return KeyRing.from_file(key_file(self._store))

    def prepare(self) -> None:
        """Do the slow work ahead, in a thread: import the code, and derive the keys if there are any.

        It creates no key file and raises nothing: errors surface when the keys are used.
        """
        from dragoman.keys.ring import KeyRing

        has_no_file = not self._secret and self._store is not None and not key_file(self._store).exists()
        with suppress(ConfigError):
            ring = KeyRing.random() if has_no_file else self.ring
            ring.unseal("prepare", ring.seal("prepare", b""))
            ring.signer().sign_jwt({"exp": 0})

    def fingerprints(self) -> tuple[str, ...]:
        """Return what tells the secrets apart, newest first, and reveals nothing of them; none without a setting.

        Raises:
            ConfigError: a secret is too short.
        """
        if not self._secret:
            return ()
        return tuple(key.hex() for key in self.ring.subkeys("fingerprint", 8))

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Encrypt data that only this server can decrypt."""
        return self.ring.seal(purpose, data)

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """Decrypt data. Raises BadSeal when this server did not encrypt it."""
        return self.ring.unseal(purpose, sealed)

    def sign_jwt(self, claims: Mapping[str, Any]) -> str:
        """Sign a token; its key is in `jwks`."""
        return self.ring.signer().sign_jwt(claims)

    def jwks(self) -> dict[str, Any]:
        """Return the public keys of the signing keys."""
        return self.ring.signer().jwks()


def key_file(store: Path) -> Path:
    """Return the key file beside the store. For a symlinked store, one beside the link wins over one at the target."""
    from dragoman.stores.sqlite.file import real_path

    here = store.with_name(f"{store.name}.key")
    real = real_path(store)
    return here if here.exists() or real == store.absolute() else real.with_name(f"{real.name}.key")


class LazyHttp:
    """An `HttpClient` that is created by `make` on the first request."""

    def __init__(self, make: Callable[[], HttpClient]) -> None:
        self._make = make
        self._client: HttpClient | None = None

    async def send(self, request: HttpRequest) -> HttpResponse:
        if self._client is None:
            # Importing it is slow: not in the event loop.
            await asyncio.to_thread(self.prepare)
            assert self._client is not None
        return await self._client.send(request)

    def prepare(self) -> None:
        """Create the client now, from any thread. Two at once are harmless: an unused client has opened nothing."""
        client = self._client or self._make()
        self._client = self._client or client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
