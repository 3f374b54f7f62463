"""Sign agent cards and verify them with a2a-sdk. Reads one JSON object from stdin, writes one to stdout.

    python a2a_sdk_cards.py sign    {"card", "key", "alg", "kid"}  ->  {"card"}
    python a2a_sdk_cards.py verify  {"card", "jwks"}               ->  {"ok", "says"}

`key` is a private key as JWK. A card goes through the SDK's own reader and its own JSON, as on a real way.
"""

import json
import sys

from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import SignatureVerificationError, create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import MessageToDict
from jwt import PyJWK

ALGORITHMS = ["ES256", "ES384", "RS256", "PS256", "EdDSA"]


def sign(asked):
    protected = {"alg": asked["alg"], "kid": asked["kid"], "typ": "JOSE"}
    signer = create_agent_card_signer(PyJWK(asked["key"], asked["alg"]), protected)
    return {"card": MessageToDict(signer(parse_agent_card(asked["card"])))}


def verify(asked):
    keys = {each["kid"]: PyJWK(each) for each in asked["jwks"]["keys"]}
    verifier = create_signature_verifier(lambda kid, jku: keys[kid], ALGORITHMS)
    try:
        verifier(parse_agent_card(asked["card"]))
    except SignatureVerificationError as error:
        return {"ok": False, "says": f"{type(error).__name__}: {error}"}
    return {"ok": True, "says": ""}


print(json.dumps({"sign": sign, "verify": verify}[sys.argv[1]](json.load(sys.stdin))))
