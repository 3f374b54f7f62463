"""Base64url without padding, as JOSE uses it (RFC 7515), strict about its canonical form."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def to_base64url(data: bytes) -> str:
    """Encode bytes."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decode bytes.

    The last character may carry unused bits. They must be zero, or the text could be changed without notice.

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
