"""What a host keeps for us and brings back: sealed, so that it is what it was."""

from __future__ import annotations

import secrets

from dragoman.keys.errors import BadSeal
from dragoman.keys.sealing import Sealer

# For so long a question may stay open at the host.
MAX_AGE = 3600.0


class Seal:
    """Seals with a key of this process. After a restart the host has to ask again, and is told so."""

    def __init__(self) -> None:
        self._sealer = Sealer((secrets.token_bytes(32),))

    def sealed(self, data: bytes) -> str:
        """Something to be kept by a host."""
        return self._sealer.seal(data).decode()

    def opened(self, text: str) -> bytes | None:
        """What was sealed; None when it was not here, was changed, or is too old."""
        try:
            return self._sealer.unseal(text.encode(), MAX_AGE)
        except BadSeal:
            return None
