"""Origins, and what of a URL may be shown."""

from __future__ import annotations

import pytest

from dragoman.net.exchange import is_loopback, origin_of, redact_url


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org", "http://example.org:80/a?b#c"),
        ("https://example.org", "https://EXAMPLE.org:443"),
        ("HTTPS://example.org", "https://example.org."),
        ("http://user:password@example.org", "http://example.org"),
        ("http://[::1]:80/", "http://[::1]"),
    ],
)
def test_spellings_of_one_origin(one: str, other: str) -> None:
    assert origin_of(one) == origin_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org", "https://example.org"),
        ("http://example.org", "http://example.org:8080"),
        ("http://example.org", "http://www.example.org"),
        ("http://example.org", "http://example.org@evil.org"),
        ("http://example.org", "http://evil.org/example.org"),
        ("http://example.org", "http://evil.org#@example.org"),
        ("http://example.org", "http://evil.org?@example.org"),
        ("http://example.org", "http://example.org.evil.org"),
        ("http://127.0.0.1", "http://localhost"),
        ("http://example.org", "http://example.org:99999"),
        ("http://example.org", "http://[example.org"),
        ("http://[::1]", "http://[::2]"),
    ],
)
def test_different_origins(one: str, other: str) -> None:
    assert origin_of(one) != origin_of(other)


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    url = "https://user:password@example.org:8443/a/b?key=secret#part"
    assert redact_url(url) == "https://example.org:8443/a/b"
    assert redact_url("user:password@example.org/a?key=secret") == "example.org/a"
    assert redact_url("nonsense") == "nonsense"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80", True),
        ("http://127.9.9.9", True),
        ("http://localhost", True),
        ("http://agent.localhost", True),
        ("http://[::1]/", True),
        ("http://127.evil.org", False),
        ("http://127.0.0.1.evil.org", False),
        ("http://localhost.evil.org", False),
        ("http://example.org/127.0.0.1", False),
        ("http://127.0.0.1@example.org", False),
    ],
)
def test_what_is_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here
