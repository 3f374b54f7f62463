"""Seals: what they hide, for how long, and that nothing that was changed is opened."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest

from dragoman.keys.errors import BadSeal
from dragoman.keys.ring import KeyRing
from dragoman.model.error import DragomanError

RING = KeyRing.random()
NOW = 1_800_000_000.0


@pytest.mark.parametrize("data", [b"", b"ada", b"secret words" * 400])
def test_what_was_sealed_comes_back(data: bytes):
    sealed = RING.seal("cookie", data)
    assert RING.unseal("cookie", sealed) == data
    assert sealed.isascii()
    assert b"secret words" not in urlsafe_b64decode(sealed)


def test_the_same_data_looks_different_each_time():
    assert RING.seal("cookie", b"ada") != RING.seal("cookie", b"ada")


def test_a_purpose_does_not_open_what_another_sealed():
    with pytest.raises(BadSeal):
        RING.unseal("credential", RING.seal("cookie", b"ada"))


def test_another_ring_does_not_open_it():
    with pytest.raises(BadSeal) as caught:
        KeyRing.random().unseal("cookie", RING.seal("cookie", b"ada"))
    assert isinstance(caught.value, DragomanError)
    assert caught.value.reason == "BAD_SEAL"


@pytest.mark.parametrize("data", [b"a", b"ab" * 10, b"abc" * 20])
def test_any_changed_character_breaks_the_seal(data: bytes):
    sealed = RING.seal("cookie", data)
    for place in range(len(sealed)):
        for other in (b"A", b"B", b"=", b"-", b" "):
            changed = sealed[:place] + other + sealed[place + 1 :]
            if changed != sealed:
                with pytest.raises(BadSeal):
                    RING.unseal("cookie", changed)


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s + b"A", lambda s: s + b"=", lambda s: s + b"\n", lambda s: b" " + s]
)
def test_a_seal_with_more_or_less_is_broken(change):
    with pytest.raises(BadSeal):
        RING.unseal("cookie", change(RING.seal("cookie", b"ada")))


@pytest.mark.parametrize("sealed", [b"", b"A", b"gAAAA", b"\xff\xfe", b"." * 10_000, "é".encode()])
def test_what_is_no_seal_is_refused(sealed: bytes):
    with pytest.raises(BadSeal):
        RING.unseal("cookie", sealed)


def test_a_seal_is_opened_until_it_is_too_old():
    sealed = RING.seal("cookie", b"ada", now=NOW)
    assert RING.unseal("cookie", sealed, max_age=60, now=NOW + 60) == b"ada"
    with pytest.raises(BadSeal, match="too long ago"):
        RING.unseal("cookie", sealed, max_age=60, now=NOW + 60.5)
    assert RING.unseal("cookie", sealed, now=NOW + 10**9) == b"ada"
    with pytest.raises(BadSeal):
        RING.unseal("cookie", sealed, max_age=0.5, now=NOW + 1)


def test_a_seal_from_the_future_is_refused_unless_clocks_explain_it():
    sealed = RING.seal("cookie", b"ada", now=NOW)
    assert RING.unseal("cookie", sealed, max_age=60, now=NOW - 60) == b"ada"
    with pytest.raises(BadSeal, match="clocks"):
        RING.unseal("cookie", sealed, max_age=60, now=NOW - 61)


def test_a_retired_secret_opens_nothing_any_more():
    old, new = "an old secret of the house", "a new secret of the house"
    sealed = KeyRing.from_text(old).seal("cookie", b"ada")
    assert KeyRing.from_text(f"{new},{old}").unseal("cookie", sealed) == b"ada"
    with pytest.raises(BadSeal):
        KeyRing.from_text(new).unseal("cookie", sealed)
