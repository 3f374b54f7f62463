"""Checks the signatures of a card for `dragoman card --validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from dragoman.client.cards import CardVerifier, jwks_url_of, key_url_of, load_keys
from dragoman.client.connection import Sender
from dragoman.clock import SystemClock
from dragoman.dialects.cards.rules.validate import CardProblem
from dragoman.keys.card_signature import headers_of
from dragoman.keys.errors import BadSignature
from dragoman.model.error import CannotConnect, ServerError
from dragoman.net.sockets import SocketClient

if TYPE_CHECKING:
    from dragoman.cli.remote.session import Options
    from dragoman.keys.jws import Header

_RULE = "A2A 1.0, 8.4.3: the card is verified with the key that its signature names"
_TIMEOUT = 20.0


class SignatureReport(NamedTuple):
    """The signature of a card: key id, algorithm and signed form. `form` is empty when it was not verified."""

    kid: str
    alg: str
    form: str
    keys: str
    """Where the keys were fetched from."""

    def __str__(self) -> str:
        key = f"by key {self.kid} ({self.alg})"
        if self.form:
            return f"{key}, {'specification' if self.form == 'specification' else 'SDK'} form, keys from {self.keys}"
        return f"{key}, not checked: the keys are at {self.keys}, and nobody asked there. --jwks checks with given keys"


async def check_signature(
    body: bytes, url: str, options: Options, jwks: str | None
) -> tuple[SignatureReport | None, list[CardProblem]]:
    """Verify the signatures of a card from `url`. Keys are fetched from that origin only, or from `jwks`.

    Raises:
        ConfigError: `jwks` is no address, no file or no key set.
    """
    keys = load_keys(jwks)
    try:
        decoded: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, []  # `card_problems` reports it
    if not isinstance(decoded, dict):
        return None, []
    card = cast("dict[str, Any]", decoded)
    if not card.get("signatures") and keys is None:
        return None, []
    headers = headers_of(card)
    elsewhere = keys is None and bool(headers) and all(key_url_of(header, url) is None for header in headers)
    if elsewhere:
        first = headers[0]
        return SignatureReport(first.kid, first.alg, "", first.jku or ""), []
    http = SocketClient(verify=options.verification())
    sender = Sender(http, origin=options.target.url, headers=options.headers, interceptors=options.interceptors())
    trust = CardVerifier(True if keys is None else keys, sender, SystemClock(), timeout=_TIMEOUT)
    try:
        signature = await trust.verify(card, url)
    except (BadSignature, CannotConnect, ServerError) as error:
        has_no_key_url = keys is None and _has_no_key_url(headers, error)
        level = "warning" if has_no_key_url else "error"
        hint = "; --jwks checks with given keys" if has_no_key_url else ""
        return None, [CardProblem(level, "signatures", _RULE, f"{error}{hint}")]
    finally:
        await http.close()
    return SignatureReport(signature.kid, signature.alg, signature.form, jwks or signature.jku or jwks_url_of(url)), []


def _has_no_key_url(headers: list[Header], error: Exception) -> bool:
    """True when no signature names a key URL, and the key is not at the default place either."""
    return all(header.jku is None for header in headers) and getattr(error, "reason", "") != "BAD_SIGNATURE"
