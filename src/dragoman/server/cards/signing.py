"""Signs cards with the server's own key, and for no URL that a caller chose."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.dialects.table import CARD_FORMATS, CardVersion
from dragoman.model.card import AgentCardSignature
from dragoman.model.error import ConfigError
from dragoman.model.json import decode_any, encode
from dragoman.net.exchange import is_loopback

if TYPE_CHECKING:
    from dragoman.model.card import AgentCard
    from dragoman.server.http.lazy import LazyKeys
    from dragoman.transports.http import Request

logger = logging.getLogger("dragoman.server")
JWKS = "/.well-known/jwks.json"


class CardSigning:
    """Signs the cards of one server.

    Without the setting `url`, the URL on a card comes from the caller's Host header. A caller who could get any URL
    signed could show others a signed card that leads to a server of their own. So then only cards for loopback URLs are
    signed, and only for requests that arrive at a loopback address.
    """

    def __init__(self, keys: LazyKeys, *, url: str | None, host: str, version: CardVersion) -> None:
        """Create the signer of a server's cards.

        Raises:
            ConfigError: cards cannot be signed with these settings.
        """
        if not CARD_FORMATS[version].modern:
            raise ConfigError("sign: a card of A2A 0.3 alone cannot be signed: set card_version to both or 1.0")
        if url is None and not _is_loopback(host):
            raise ConfigError(
                "sign: what is signed must not say where a caller says we are: set url, as in --url https://…"
            )
        self._keys = keys
        self._is_fixed = url is not None
        self._has_warned = False

    def may_sign(self, request: Request, root: str) -> bool:
        """True when a card with this root URL may be signed for this request."""
        server = request.scope.get("server")
        if self._is_fixed or (is_loopback(root) and server and _is_loopback(str(server[0]))):
            return True
        if not self._has_warned:
            self._has_warned = True
            logger.warning("the card at %s is not signed: a caller chose that address. Set url", root)
        return False

    def sign(self, card: dict[str, Any], root: str) -> dict[str, Any]:
        """Add signatures to a card that every reader can verify. `root` is the URL of the server, not of the agent.

        Existing signatures are kept.

        Raises:
            BadCard: the card has a number or a text that cannot be signed.
            ConfigError: the keys cannot be read.
        """
        existing: Any = card.get("signatures")
        return card | {"signatures": [*(existing if isinstance(existing, list) else ()), *self._signatures(card, root)]}

    def sign_model(self, card: AgentCard, root: str) -> AgentCard:
        """Do the same for a card that is sent in the form of 1.0, such as an extended one."""
        signatures = self._signatures(decode_any(encode(card)), root)
        return replace(card, signatures=(*card.signatures, *(AgentCardSignature(**each) for each in signatures)))

    def _signatures(self, card: dict[str, Any], root: str) -> list[dict[str, Any]]:
        from dragoman.keys.card_signature import signatures_for

        return signatures_for(card, self._keys.ring.signer(), jku=root + JWKS)


def _is_loopback(host: str) -> bool:
    return is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}")
