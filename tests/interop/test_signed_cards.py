"""Signed cards between us and the official SDKs, in both directions."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from support.server_process import ServerProcess

from dragoman.dialects.cards.card import card_json, read_card
from dragoman.keys.card_signature import sign_card, signatures_for, verify_card
from dragoman.keys.errors import BadSignature
from dragoman.keys.ring import KeyRing

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".peers"
PEER_TIMEOUT = 60
COMMANDS = {
    "a2a-sdk": (INSTALLED / "a2a-sdk" / "bin" / "python", HERE / "peers" / "a2a_sdk_cards.py"),
    "js": ("node", HERE / "peers" / "js" / "cards.mjs"),
}
KEYS = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
FULL: dict[str, Any] = {
    "name": "Reiseführer 🧭",
    "description": 'Plans "trips"\n\tto Zürich \u2028 \x7f',
    "supportedInterfaces": [
        {"url": "https://agent.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"},
        {"url": "https://agent.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ],
    "provider": {"url": "https://example.com", "organization": "Example"},
    "version": "1.0.0",
    "documentationUrl": "https://agent.example/docs",
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "https://x.example/e",
                "required": True,
                # Numbers and an order of keys that naive JSON would spell otherwise.
                "params": {"n": [0.1, 1e21, 1e-7, 123456789.5, -0.5, 7, 1e15], "\ufb33": 1, "😀": 2, "é": {"z": True}},
            }
        ],
    },
    "securitySchemes": {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "d"}},
        "login": {
            "oauth2SecurityScheme": {
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://login.example/a",
                        "tokenUrl": "https://login.example/t",
                        "scopes": {"read": "Reads", "write": "Writes"},
                        "pkceRequired": True,
                    }
                }
            }
        },
    },
    "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "application/json"],
    "skills": [
        {
            "id": "plan",
            "name": "Plan",
            "description": "Plans",
            "tags": ["trips"],
            "examples": ["To Zürich"],
            "securityRequirements": [{"schemes": {"login": {"list": ["write"]}}}],
        }
    ],
}
# Where the forms differ: empty fields, required or not, at several levels.
SPARSE: dict[str, Any] = FULL | {
    "description": "",
    "documentationUrl": "",
    "provider": {"url": "", "organization": "Example"},
    "capabilities": {"streaming": False, "extensions": [{"uri": "u", "params": {"a": None, "b": "", "c": [], "d": 0}}]},
    "securitySchemes": {**FULL["securitySchemes"], "mtls": {"mtlsSecurityScheme": {}}},
    "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
    "skills": [{"id": "plan", "name": "Plan", "description": "", "tags": []}],
}
CARDS = {"full": FULL, "sparse": SPARSE}
SIGNER = KeyRing.random().signer()

pytestmark = [pytest.mark.interop, pytest.mark.timeout(PEER_TIMEOUT + 30)]


@pytest.fixture(params=COMMANDS)
def peer(request: pytest.FixtureRequest) -> str:
    if not (INSTALLED / request.param / "ready").exists():
        pytest.skip(f"no .peers/{request.param}: run `make interop`")
    return request.param


def ask(peer: str, what: str, **asked: Any) -> dict[str, Any]:
    """Let the peer sign or verify."""
    done = subprocess.run(
        [*COMMANDS[peer], what],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=PEER_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def signed_by(
    peer: str, card: dict[str, Any], alg: str = "ES256", **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The card with the peer's signature, and the key set to verify it."""
    key, algorithm = KEYS[alg](), jwt.get_algorithm_by_name(alg)
    private = algorithm.to_jwk(key, as_dict=True)
    public = algorithm.to_jwk(key.public_key(), as_dict=True)
    answer = ask(peer, "sign", card=card, key=private, alg=alg, kid="theirs", **options)
    return answer["card"], {"keys": [public | {"kid": "theirs"}]}


def one_letter_changed(card: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(card)
    changed["skills"][0]["name"] = "Plam"
    return changed


@pytest.mark.parametrize("version", ["1.0", "both"])
@pytest.mark.parametrize("name", CARDS)
def test_a_card_signed_here_holds_there(peer: str, name: str, version: Any):
    # As it is served: with fields of 0.3 beside those of 1.0, or without.
    shown = card_json(read_card(CARDS[name]), {}, version)
    jku = "https://agent.example/.well-known/jwks.json"
    card = shown | {"signatures": signatures_for(shown, SIGNER, jku=jku)}
    assert len(card["signatures"]) == (1 if name == "full" else 2)
    assert ask(peer, "verify", card=card, jwks=SIGNER.jwks()) == {"ok": True, "says": ""}
    assert verify_card(card, SIGNER.jwks()).form == "specification"

    assert not ask(peer, "verify", card=one_letter_changed(card), jwks=SIGNER.jwks())["ok"]
    with pytest.raises(BadSignature):
        verify_card(one_letter_changed(card), SIGNER.jwks())


def test_a_card_that_dragoman_serves_signed_holds_there(peer: str, tmp_path: Path):
    (tmp_path / "shout.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    with ServerProcess.serve(tmp_path, "shout.py:shout", "--sign") as server:
        with urlopen(f"{server.url}/.well-known/agent-card.json", timeout=10) as answer:
            card = json.load(answer)
        with urlopen(f"{server.url}/.well-known/jwks.json", timeout=10) as answer:
            jwks = json.load(answer)
    assert ask(peer, "verify", card=card, jwks=jwks) == {"ok": True, "says": ""}
    changed = card | {"supportedInterfaces": [card["supportedInterfaces"][0] | {"url": "http://127.0.0.1:9/a2a"}]}
    assert not ask(peer, "verify", card=changed, jwks=jwks)["ok"]


@pytest.mark.parametrize("name", CARDS)
def test_a_card_signed_there_holds_here(peer: str, name: str):
    card, jwks = signed_by(peer, CARDS[name])
    verified = verify_card(card, jwks)
    assert (verified.kid, verified.alg) == ("theirs", "ES256")
    assert verified.form == ("specification" if name == "full" else "sdk")
    assert read_card(verified.card).name == FULL["name"]

    with pytest.raises(BadSignature) as caught:
        verify_card(one_letter_changed(card), jwks)
    assert caught.value.reason == "BAD_SIGNATURE"
    assert not ask(peer, "verify", card=one_letter_changed(card), jwks=jwks)["ok"]


@pytest.mark.parametrize("alg", [each for each in KEYS if each != "ES256"])
def test_every_algorithm_of_theirs_holds_here(peer: str, alg: str):
    card, jwks = signed_by(peer, FULL, alg)
    assert verify_card(card, jwks).alg == alg
    with pytest.raises(BadSignature):
        verify_card(one_letter_changed(card), jwks)


def test_a_signature_in_the_form_of_the_specification_alone_does_not_hold_there(peer: str):
    # Why a card gets a signature for each form: the day this fails, one is enough.
    card = SPARSE | {"signatures": [sign_card(SPARSE, SIGNER)]}
    assert verify_card(card, SIGNER.jwks()).form == "specification"
    assert not ask(peer, "verify", card=card, jwks=SIGNER.jwks())["ok"]
    card = SPARSE | {"signatures": [sign_card(SPARSE, SIGNER, form="sdk")]}
    assert verify_card(card, SIGNER.jwks()).form == "sdk"
    assert ask(peer, "verify", card=card, jwks=SIGNER.jwks())["ok"]


@pytest.mark.parametrize("peer", ["js"], indirect=True)
def test_a_card_that_js_holds_as_objects_is_signed_without_its_security_schemes(peer: str):
    card, jwks = signed_by(peer, FULL, objects=True)
    assert card["securitySchemes"] == FULL["securitySchemes"]
    with pytest.raises(BadSignature, match="left out the security schemes"):
        verify_card(card, jwks)
    assert not ask(peer, "verify", card=card, jwks=jwks)["ok"]  # not even there

    bare = {name: value for name, value in FULL.items() if name != "securitySchemes"}
    card, jwks = signed_by(peer, bare, objects=True)
    assert verify_card(card, jwks).form == "specification"
    ours = bare | {"signatures": signatures_for(bare, SIGNER)}
    assert ask(peer, "verify", card=ours, jwks=SIGNER.jwks(), objects=True)["ok"]
