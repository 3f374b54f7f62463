"""Base64url without padding, as JOSE has it (RFC 7515), in the one spelling that is allowed."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def to_base64url(data: bytes) -> str:
    """Spell bytes."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Read bytes.

    The last character of a text can have bits that no byte has: left alone, it could be changed unseen.

    Raises:
        ValueError: it is not base64url, has padding, or has such bits.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raise ValueError("not base64url") from None
    if to_base64url(data) != text:
        raise ValueError("not base64url in its one spelling")
    return data
