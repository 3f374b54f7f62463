"""Signatures of agent cards: detached JSON Web Signatures over the card's canonical JSON (specification 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from dragoman.keys.canonical import canonical
from dragoman.keys.card_form import Form, Json, sdk_form, specification_form
from dragoman.keys.errors import BadSignature
from dragoman.keys.jws import Header, SigningKey, encode_header, read_header, sign, verify
from dragoman.model.error import BadCard

MAX_SIGNATURES = 20


class VerifiedSignature(NamedTuple):
    """A valid signature of a card."""

    form: Form
    """The form of the card that is signed; `specification` when both are the same."""
    kid: str
    alg: str
    jku: str | None
    """The URL of its key set, as the signature claims; whether to trust it is up to the caller."""
    card: Json
    """The signed part of the card. Read the card from this: anything else in it is not signed.

    The form of the SDKs does not cover what is empty, such as a security requirement without scopes.
    """


def sign_card(
    card: Mapping[str, Any],
    key: SigningKey,
    *,
    form: Form = "specification",
    jku: str | None = None,
    header: Mapping[str, Any] | None = None,
) -> Json:
    """Sign a card in the form of 1.0, which may also have fields of 0.3. `header` is the unprotected header.

    Raises:
        BadCard: the card has a number or a text without a canonical form.
        BadSignature: `header` has a member that the protected header also has, or that requires an extension.
    """
    return _signature(_payload_of(dict(card), form), key, jku, header)


def signatures_for(card: Mapping[str, Any], key: SigningKey, *, jku: str | None = None) -> list[Json]:
    """Sign a card so that every reader can verify it: one signature, or one per form where the forms differ.

    Raises:
        BadCard: the card has a number or a text without a canonical form.
    """
    payloads = dict.fromkeys(_payload_of(dict(card), form) for form in ("specification", "sdk"))
    return [_signature(payload, key, jku, None) for payload in payloads]


def headers_of(card: Mapping[str, Any]) -> list[Header]:
    """Return the headers of the signatures that could be verified with the right keys, to decide which keys to fetch.

    They are not verified yet. Signatures that no key can make valid are left out.
    """
    headers: list[Header] = []
    for entry in _entries(card):
        try:
            headers.append(read_header(entry.get("protected"), entry.get("header")))
        except BadSignature:
            continue
    return headers


def verify_card(
    card: Mapping[str, Any], jwks: Mapping[str, Any], *, accept: Callable[[Header], bool] | None = None
) -> VerifiedSignature:
    """Find a signature of the card that is valid for one of these keys.

    `accept` selects the signatures to try, so that keys fetched from one URL are not used for another's.

    Raises:
        BadSignature: there is none. The reason is `NOT_SIGNED` when the card has no signature, `UNKNOWN_KEY` when
            every signature was made with a key that is not in `jwks` or not accepted, else `BAD_SIGNATURE`.
    """
    received = dict(card)
    entries = _entries(received)
    if not entries:
        raise BadSignature("the card is not signed", reason="NOT_SIGNED")
    try:
        payloads = _payloads(received)
    except ValueError as error:
        raise BadSignature(f"the card has no canonical form: {error}") from None
    problems: list[BadSignature] = []
    for entry in entries:
        try:
            header = read_header(entry.get("protected"), entry.get("header"))
            if accept is not None and not accept(header):
                raise BadSignature("the URL of its key is not trusted", reason="UNKNOWN_KEY")
            form = _find_form(entry, header, payloads, jwks)
        except BadSignature as error:
            problems.append(error)
            continue
        return VerifiedSignature(form, header.kid, header.alg, header.jku, specification_form(received))
    unknown = all(each.reason == "UNKNOWN_KEY" for each in problems)
    details = "; ".join(dict.fromkeys(map(str, problems)))
    raise BadSignature(f"the card has no signature that holds: {details}", reason="UNKNOWN_KEY" if unknown else None)


def _find_form(entry: Json, header: Header, payloads: dict[bytes, Form | None], jwks: Mapping[str, Any]) -> Form:
    problem = BadSignature("the signature is missing")
    for payload, form in payloads.items():
        try:
            verify(header, entry["protected"], payload, entry.get("signature"), jwks)
        except BadSignature as error:
            problem = error
            continue
        if form is None:
            raise BadSignature("its signer left out the security schemes, so that anyone could have put them there")
        return form
    raise problem


def _payloads(card: Json) -> dict[bytes, Form | None]:
    """Return the payloads that may have been signed. Equal forms are tried once, as the specification's."""
    payloads: dict[bytes, Form | None] = {
        canonical(specification_form(card)): "specification",
        canonical(specification_form(card, complete=True)): "specification",
    }
    # Only now: `canonical` has refused cards that are nested too deeply.
    sparse = sdk_form(card)
    payloads.setdefault(canonical(sparse), "sdk")
    # One SDK leaves the security schemes out of what it signs. That form is not accepted: whoever could change the
    # schemes could have the caller's password sent elsewhere. It is tried only to say what is wrong.
    if sparse.pop("securitySchemes", None):
        payloads.setdefault(canonical(sparse), None)
    return payloads


def _payload_of(card: Json, form: Form) -> bytes:
    try:
        payload = canonical(specification_form(card))
        return payload if form == "specification" else canonical(sdk_form(card))
    except ValueError as error:
        raise BadCard(f"the card cannot be signed: {error}") from None


def _signature(payload: bytes, key: SigningKey, jku: str | None, header: Mapping[str, Any] | None) -> Json:
    protected_header = {"alg": key.alg, "kid": key.kid, "typ": "JOSE"} | ({"jku": jku} if jku else {})
    protected = encode_header(protected_header)
    read_header(protected, dict(header) if header else None)
    signature = {"protected": protected, "signature": sign(key, protected, payload)}
    return signature | ({"header": dict(header)} if header else {})


def _entries(card: Mapping[str, Any]) -> list[Json]:
    listed = card.get("signatures")
    if not isinstance(listed, list):
        return []
    return [cast("Json", each) for each in cast("list[Any]", listed)[:MAX_SIGNATURES] if isinstance(each, dict)]
