"""Telling what is surely new from what may be known, in little memory."""

from __future__ import annotations

import struct

_BITS = 1 << 24
_places = struct.Struct("<4I").unpack_from


def _positions(digest: bytes) -> list[tuple[int, int]]:
    places: tuple[int, ...] = _places(digest)
    return [((place % _BITS) >> 3, 1 << (place & 7)) for place in places]


class Sieve:
    """A Bloom filter for digests: what it does not hold was never added; what it holds was, or very rarely not.

    Two million bytes, and none before the first digest. With two million digests one answer in fifty is a false
    alarm, which costs a look into the store.
    """

    def __init__(self) -> None:
        self._bits: bytearray | None = None

    def add(self, digest: bytes) -> None:
        """Add a digest of at least 16 bytes."""
        if self._bits is None:
            self._bits = bytearray(_BITS >> 3)
        for byte, bit in _positions(digest):
            self._bits[byte] |= bit

    def __contains__(self, digest: bytes) -> bool:
        bits = self._bits
        if bits is None:
            return False
        return all(bits[byte] & bit for byte, bit in _positions(digest))
