"""Signed cards: what holds, what a changed byte does, and what is refused whatever the keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.canonical import canonical
from dragoman.keys.card_form import sdk_form, specification_form
from dragoman.keys.card_signature import MAX_SIGNATURES, headers_of, sign_card, signatures_for, verify_card
from dragoman.keys.errors import BadSignature
from dragoman.keys.jws import Header
from dragoman.keys.ring import KeyRing
from dragoman.model.error import BadCard

SIGNER = KeyRing.random().signer()
OTHER = KeyRing.random().signer()
JKU = "https://agent.example/.well-known/jwks.json"
CARD: dict[str, Any] = {
    "name": "Reiseführer 🧭",
    "description": "Plans trips",
    "supportedInterfaces": [
        {"url": "https://agent.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "1.0.0",
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extensions": [{"uri": "https://x.example/e", "required": True, "params": {"limit": 0.25, "depth": 3}}],
    },
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "plan", "name": "Plan", "description": "Plans", "tags": ["trips"]}],
    "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"b": {"list": ["plan"]}}}],
}
# The forms differ for this one.
SPARSE = CARD | {"description": "", "skills": [], "securityRequirements": [{"schemes": {"b": {"list": []}}}]}


class Key:
    """A key of any algorithm, made by a foreign library."""

    def __init__(self, alg: str, key: Any, kid: str = "k") -> None:
        self.alg, self.key, self.kid = alg, key, kid
        self.algorithm = jwt.get_algorithm_by_name(alg)

    def sign(self, data: bytes) -> bytes:
        return self.algorithm.sign(data, self.key)

    def jwks(self) -> dict[str, Any]:
        return {"keys": [self.algorithm.to_jwk(self.key.public_key(), as_dict=True) | {"kid": self.kid}]}


def signed(card: dict[str, Any] = CARD, key: Any = SIGNER, **options: Any) -> dict[str, Any]:
    return card | {"signatures": [sign_card(card, key, **options)]}


def refused(card: dict[str, Any], jwks: dict[str, Any] | None = None) -> BadSignature:
    with pytest.raises(BadSignature) as caught:
        verify_card(card, SIGNER.jwks() if jwks is None else jwks)
    return caught.value


def test_a_signed_card_holds_also_after_a_journey_as_text():
    card = json.loads(json.dumps(signed(jku=JKU), indent=3, sort_keys=True))
    verified = verify_card(card, SIGNER.jwks())
    assert (verified.form, verified.kid, verified.alg, verified.jku) == ("specification", SIGNER.kid, "ES256", JKU)
    assert verified.card == CARD


def test_a_signature_has_the_shape_and_the_header_of_the_specification():
    signature = sign_card(CARD, SIGNER, jku=JKU, header={"issued": "today"})
    assert set(signature) == {"protected", "signature", "header"}
    header = json.loads(from_base64url(signature["protected"]))
    assert header == {"alg": "ES256", "kid": SIGNER.kid, "typ": "JOSE", "jku": JKU}
    assert len(from_base64url(signature["signature"])) == 64
    assert set(sign_card(CARD, SIGNER)) == {"protected", "signature"}
    assert verify_card(CARD | {"signatures": [signature]}, SIGNER.jwks()).kid == SIGNER.kid


def test_the_same_card_gets_the_same_signature():
    assert sign_card(CARD, SIGNER) == sign_card(dict(reversed(CARD.items())), SIGNER)


@pytest.mark.parametrize("form", ["specification", "sdk"])
def test_both_forms_hold_and_the_answer_says_which(form: Any):
    assert verify_card(signed(SPARSE, form=form), SIGNER.jwks()).form == form
    assert verify_card(signed(CARD, form=form), SIGNER.jwks()).form == "specification"  # where they are the same


def test_a_card_that_lost_its_empty_fields_on_the_way_still_holds():
    card = signed(CARD | {"description": "", "skills": []})
    del card["description"], card["skills"]
    assert verify_card(card, SIGNER.jwks()).form == "specification"


def test_a_card_gets_one_signature_or_one_per_form():
    assert len(signatures_for(CARD, SIGNER)) == 1
    both = signatures_for(SPARSE, SIGNER, jku=JKU)
    assert len(both) == 2
    forms = [verify_card(SPARSE | {"signatures": [each]}, SIGNER.jwks()).form for each in both]
    assert forms == ["specification", "sdk"]


def test_signing_again_does_not_sign_the_first_signature():
    card = signed()
    assert sign_card(card, SIGNER) == card["signatures"][0]


MAKERS = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
}


@pytest.mark.parametrize("own", MAKERS)
def test_every_algorithm_verifies_and_none_passes_for_another(own: str):
    key = Key(own, MAKERS[own]())
    card = signed(key=key)
    assert verify_card(card, key.jwks()).alg == own
    assert refused(card | {"name": "else"}, key.jwks()).reason == "BAD_SIGNATURE"
    for alg in (*MAKERS, "HS256", "none"):
        if alg != own:
            wrong = copy.deepcopy(card)
            wrong["signatures"][0]["protected"] = to_base64url(json.dumps({"alg": alg, "kid": "k"}).encode())
            refused(wrong, key.jwks())
            pinned = {"keys": [key.jwks()["keys"][0] | {"alg": alg}]}
            assert "cannot be used" in str(refused(card, pinned))


def test_a_short_rsa_key_is_refused():
    key = Key("RS256", rsa.generate_private_key(65537, 1024))
    assert "cannot be used with RS256" in str(refused(signed(key=key), key.jwks()))


def changes(value: Any) -> Iterator[Any]:
    """The value with one thing in it changed, for every thing in it."""
    if isinstance(value, dict):
        for name, each in value.items():
            rest = {other: kept for other, kept in value.items() if other != name}
            yield rest
            yield from ({**value, name: changed} for changed in changes(each))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield value[:place] + value[place + 1 :]
            yield from ([*value[:place], changed, *value[place + 1 :]] for changed in changes(each))
        yield [*value, "more"]
    elif isinstance(value, str):
        for place, letter in enumerate(value):
            yield value[:place] + chr(ord(letter) ^ 1) + value[place + 1 :]
        yield value + " "
    elif isinstance(value, bool):
        yield not value
    else:
        yield value + 1


@pytest.mark.parametrize("form", ["specification", "sdk"])
def test_one_changed_byte_of_what_is_signed_breaks_the_signature(form: Any):
    kept = {"specification": specification_form, "sdk": sdk_form}[form](SPARSE)
    signature = sign_card(kept, SIGNER, form=form)
    assert verify_card(kept | {"signatures": [signature]}, SIGNER.jwks())
    meanings = {canonical(specification_form(kept, complete=True)), canonical(sdk_form(kept))}
    tried = 0
    for changed in changes(kept):
        if canonical(specification_form(changed, complete=True)) in meanings:
            continue  # an empty field that is left out says the same
        assert refused(changed | {"signatures": [signature]}).reason == "BAD_SIGNATURE"
        tried += 1
    assert tried > 100


def test_one_changed_character_of_the_signature_breaks_it():
    signature = sign_card(CARD, SIGNER)
    for part in ("protected", "signature"):
        text = signature[part]
        for place in range(len(text)):
            for other in "AB_=":
                changed = text[:place] + other + text[place + 1 :]
                if changed != text:
                    refused(CARD | {"signatures": [signature | {part: changed}]})


def test_the_last_character_of_a_signature_has_one_spelling():
    # 64 bytes leave four bits of the last character unused.
    signature = sign_card(CARD, SIGNER)
    text = signature["signature"]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for letter in letters.replace(text[-1], ""):
        refused(CARD | {"signatures": [signature | {"signature": text[:-1] + letter}]})


def test_what_the_signature_does_not_cover_is_not_in_the_verified_card():
    card = signed() | {"url": "https://evil.example", "preferredTransport": "JSONRPC", "supported_interfaces": []}
    card["skills"] = [card["skills"][0] | {"security": [{"evil": []}]}]
    assert verify_card(card, SIGNER.jwks()).card == CARD


def test_a_signature_that_leaves_out_the_security_schemes_is_refused_with_the_reason():
    bare = {name: value for name, value in CARD.items() if name != "securitySchemes"}
    signature = sign_card(bare, SIGNER)
    assert verify_card(bare | {"signatures": [signature]}, SIGNER.jwks()).card == bare
    for schemes in (CARD["securitySchemes"], {"evil": {"httpAuthSecurityScheme": {"scheme": "Basic"}}}):
        error = refused(bare | {"securitySchemes": schemes, "signatures": [signature]})
        assert error.reason == "BAD_SIGNATURE"
        assert "left out the security schemes" in str(error)


def with_header(header: dict[str, Any], unprotected: Any = None, card: dict[str, Any] = CARD) -> dict[str, Any]:
    """A card with any header, signed as it should be."""
    protected = to_base64url(json.dumps(header).encode())
    payload = to_base64url(canonical(specification_form(card)))
    signature = to_base64url(SIGNER.sign(f"{protected}.{payload}".encode()))
    entry = {"protected": protected, "signature": signature}
    return card | {"signatures": [entry if unprotected is None else entry | {"header": unprotected}]}


@pytest.mark.parametrize(
    ("header", "unprotected", "says"),
    [
        ({"alg": "none"}, None, "'none' is none of"),
        ({"alg": "HS256"}, None, "'HS256' is none of"),
        ({"alg": None}, {"alg": "ES256"}, "in common"),
        ({"kid": None}, None, "does not name its key"),
        ({"crit": ["b64"], "b64": False}, None, "extension"),
        ({"crit": []}, None, "extension"),
        ({}, {"crit": ["x"]}, "extension"),
        ({}, {"kid": "else"}, "in common"),
        ({"kid": "else"}, None, "no key is named 'else'"),
        ({"alg": "RS256"}, None, "cannot be used with RS256"),
    ],
)
def test_a_header_that_asks_for_less_or_for_more_is_refused(header: Any, unprotected: Any, says: str):
    good = {"alg": "ES256", "kid": SIGNER.kid}
    assert verify_card(with_header(good, {"note": 1}), SIGNER.jwks()).kid == SIGNER.kid
    assert says in str(refused(with_header(good | header, unprotected)))


def test_alg_and_kid_must_be_protected():
    refused(with_header({"alg": "ES256"}, {"kid": SIGNER.kid}))
    refused(with_header({"kid": SIGNER.kid}, {"alg": "ES256"}))


@pytest.mark.parametrize("signatures", [None, [], {}, "x", [None], ["x"], [[]]])
def test_a_card_without_signatures_is_not_signed(signatures: Any):
    assert refused(CARD | {"signatures": signatures}).reason == "NOT_SIGNED"
    assert refused(CARD).reason == "NOT_SIGNED"
    assert headers_of(CARD | {"signatures": signatures}) == []


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"protected": 1},
        {"protected": "e30"},
        {"protected": "W10"},
        {"protected": "!"},
        {"protected": "A" * 20_000},
        {"signature": None},
        {"signature": 1},
        {"signature": ""},
        {"signature": "AA"},
        {"signature": "A" * 10_000},
        {"signature": "é"},
    ],
)
def test_an_entry_that_is_no_signature_is_refused_and_does_not_spoil_the_next(entry: Any):
    good = sign_card(CARD, SIGNER)
    bad = good | entry if entry else entry
    assert refused(CARD | {"signatures": [bad]}).reason == "BAD_SIGNATURE"
    assert verify_card(CARD | {"signatures": [bad, good]}, SIGNER.jwks()).kid == SIGNER.kid


def test_an_unknown_key_and_a_broken_signature_are_different_errors():
    assert refused(signed(), OTHER.jwks()).reason == "UNKNOWN_KEY"
    assert refused(signed() | {"name": "else"}).reason == "BAD_SIGNATURE"
    mixed = CARD | {"signatures": [sign_card(CARD, OTHER), sign_card(SPARSE, SIGNER)]}
    assert refused(mixed).reason == "BAD_SIGNATURE"


def test_a_key_with_a_stolen_name_does_not_pass():
    stolen = {"keys": [OTHER.jwks()["keys"][0] | {"kid": SIGNER.kid}]}
    assert refused(signed(), stolen).reason == "BAD_SIGNATURE"


def test_one_of_several_signatures_is_enough():
    card = CARD | {"signatures": [sign_card(CARD, OTHER), sign_card(CARD, SIGNER)]}
    assert verify_card(card, SIGNER.jwks()).kid == SIGNER.kid
    assert verify_card(card, OTHER.jwks()).kid == OTHER.kid


def test_signatures_after_the_first_twenty_are_not_looked_at():
    entries = [sign_card(CARD, OTHER)] * MAX_SIGNATURES + [sign_card(CARD, SIGNER)]
    assert verify_card(CARD | {"signatures": entries[1:]}, SIGNER.jwks())
    assert refused(CARD | {"signatures": entries}).reason == "UNKNOWN_KEY"


def test_keys_of_one_place_speak_for_no_other():
    card = signed(jku="https://evil.example/jwks.json")

    def from_here(header: Header) -> bool:
        return header.jku == JKU

    with pytest.raises(BadSignature) as caught:
        verify_card(card, SIGNER.jwks(), accept=from_here)
    assert caught.value.reason == "UNKNOWN_KEY"
    assert verify_card(signed(jku=JKU), SIGNER.jwks(), accept=from_here).jku == JKU


def test_headers_can_be_read_before_there_are_keys():
    broken = {"protected": to_base64url(b'{"alg":"none","kid":"k","jku":"https://evil.example"}'), "signature": ""}
    card = CARD | {"signatures": [broken, sign_card(CARD, SIGNER, jku=JKU), sign_card(CARD, OTHER)]}
    assert [(each.kid, each.jku) for each in headers_of(card)] == [(SIGNER.kid, JKU), (OTHER.kid, None)]


@pytest.mark.parametrize("value", [2**60, float("nan"), "\ud800"])
def test_a_card_without_canonical_form_is_neither_signed_nor_verified(value: Any):
    card = CARD | {"capabilities": {"extensions": [{"uri": "u", "params": {"v": value}}]}}
    with pytest.raises(BadCard, match="cannot be signed"):
        sign_card(card, SIGNER)
    with pytest.raises(BadCard, match="cannot be signed"):
        signatures_for(card, SIGNER)
    assert "no canonical form" in str(refused(card | {"signatures": signed()["signatures"]}))


def test_a_card_without_bottom_is_refused():
    params: dict[str, Any] = {}
    for _ in range(50_000):
        params = {"p": params}
    card = CARD | {"capabilities": {"extensions": [{"uri": "u", "params": params}]}}
    assert "levels" in str(refused(card | {"signatures": signed()["signatures"]}))
    with pytest.raises(BadCard, match="levels"):
        sign_card(card, SIGNER, form="sdk")


def test_an_unprotected_header_may_not_say_what_is_protected():
    with pytest.raises(BadSignature, match="in common"):
        sign_card(CARD, SIGNER, header={"kid": "x"})
