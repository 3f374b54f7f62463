"""Around the code under test: errors that it logs are collected, and what it draws comes from the seed."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from dragoman.model import ids


class ErrorLog(logging.Handler):
    """Collects what nodes log as errors: they must have no reason to, but for webhooks while the store fails."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []
        self._logger = logging.getLogger("dragoman")

    def emit(self, record: logging.LogRecord) -> None:
        """Collect one."""
        if record.name == "dragoman.push":
            return
        error = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self.errors.append(f"{record.getMessage()}{error}")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Collect while this is open."""
        self._logger.addHandler(self)
        try:
            yield
        finally:
            self._logger.removeHandler(self)


@contextmanager
def ids_of(random: Random) -> Iterator[None]:
    """Draw from the seed whatever the code under test draws."""
    before, randbits = ids._generate_ids, secrets.randbits
    ids._pool.clear()

    def generate() -> list[str]:
        block = random.randbytes(16 * 8).hex()
        return [ids._uuid(block[start : start + 32]) for start in range(0, len(block), 32)]

    ids._generate_ids, secrets.randbits = generate, random.getrandbits
    try:
        yield
    finally:
        ids._generate_ids, secrets.randbits = before, randbits
        ids._pool.clear()
