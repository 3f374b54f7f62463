"""Base64url without padding, as JOSE uses it (RFC 7515), strict about its canonical form."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def to_base64url(data: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decode base64url without padding.

    The last character may carry unused bits. They must be zero, or several texts would decode to the same bytes.

    Raises:
        ValueError: the text is not base64url, has padding, or has unused bits set.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raise ValueError("not base64url") from None
    if to_base64url(data) != text:
        raise ValueError("not base64url in its one spelling")
    return data
