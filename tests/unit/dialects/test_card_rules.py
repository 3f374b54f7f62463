"""Every problem of a card is found, at its field, with the rule that it breaks, and nothing else is."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Agent
from dragoman.dialects.cards.card import card_json
from dragoman.dialects.cards.rules.validate import CardProblem, card_problems
from dragoman.model.card import AgentExtension
from dragoman.server.cards.cache import build_card

SITE = "https://a.example/.well-known/agent-card.json"
GONE = object()


def coded(header: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")


HEADER = {"alg": "ES256", "typ": "JOSE", "kid": "key-1", "jku": "https://a.example/keys.json"}
SIGNATURE = {"protected": coded(HEADER), "signature": "c2lnbmVk", "header": {"x": 1}}
TOKEN = "https://id.example/token"
FLOW = {"tokenUrl": TOKEN, "refreshUrl": TOKEN, "scopes": {"read": "Read"}}
CODE = FLOW | {"authorizationUrl": "https://id.example/authorize"}
DEVICE = FLOW | {"deviceAuthorizationUrl": "https://id.example/device"}
EXTENSION = {"uri": "urn:example:x", "description": "x", "required": False, "params": {"a": 1}}
SHARED: dict[str, Any] = {
    "name": "Router",
    "description": "Plans routes",
    "version": "1.2.0",
    "provider": {"organization": "Maps", "url": "https://maps.example"},
    "iconUrl": "https://a.example/icon.png",
    "documentationUrl": "https://a.example/docs",
    "defaultInputModes": ["text/plain", "application/vnd.geo+json; charset=utf-8"],
    "defaultOutputModes": ["image/*"],
}
SKILL: dict[str, Any] = {
    "id": "route",
    "name": "Route",
    "description": "Plans a route",
    "tags": ["maps"],
    "examples": ["From here to there"],
    "inputModes": ["text/plain"],
    "outputModes": ["image/png"],
}
CARD_1: dict[str, Any] = SHARED | {
    "supportedInterfaces": [
        {"url": "https://a.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"},
        {"url": "https://a.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "a.example:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "wss://a.example/ws", "protocolBinding": "https://a.example/ws/v1", "protocolVersion": "1.0"},
    ],
    "capabilities": {
        "streaming": True, "pushNotifications": False, "extendedAgentCard": True, "extensions": [EXTENSION],
    },
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "http": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "code": {"oauth2SecurityScheme": {"flows": {"authorizationCode": CODE}}},
        "device": {"oauth2SecurityScheme": {"flows": {"deviceCode": DEVICE}}},
        "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example/configuration"}},
        "tls": {"mtlsSecurityScheme": {}},
    },
    "securityRequirements": [{"schemes": {"code": {"list": ["read"]}, "key": {}}}, {}],
    "skills": [SKILL | {"securityRequirements": [{"schemes": {"http": {"list": []}}}]}, SKILL | {"id": "map"}],
    "signatures": [SIGNATURE],
}  # fmt: skip
CARD_03: dict[str, Any] = SHARED | {
    "protocolVersion": "0.3.0",
    "url": "https://a.example/a2a",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": "https://a.example/a2a", "transport": "JSONRPC"},
        {"url": "https://a.example/grpc", "transport": "GRPC"},
        {"url": "a.example:50051", "transport": "GRPC"},
    ],
    "capabilities": {"streaming": True, "stateTransitionHistory": False, "extensions": [EXTENSION]},
    "securitySchemes": {
        "key": {"type": "apiKey", "in": "cookie", "name": "k"},
        "http": {"type": "http", "scheme": "Basic"},
        "oauth": {"type": "oauth2", "flows": {"authorizationCode": CODE, "clientCredentials": FLOW}},
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/configuration"},
        "tls": {"type": "mutualTLS"},
    },
    "security": [{"oauth": ["read"]}, {"key": [], "tls": []}],
    "skills": [SKILL | {"security": [{"http": []}]}, SKILL | {"id": "map", "tags": []}],
    "supportsAuthenticatedExtendedCard": True,
    "signatures": [SIGNATURE | {"protected": coded({"alg": "ES256"})}],
}
CARD_02: dict[str, Any] = {key: value for key, value in CARD_03.items() if key != "signatures"} | {
    "protocolVersion": "0.2.6",
    "securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}},
    "security": [{"key": []}],
    "skills": [SKILL],
}
CARD_01: dict[str, Any] = {
    "name": "Router",
    "url": "https://a.example/",
    "version": "1.2.0",
    "provider": {"organization": "Maps"},
    "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [{"id": "route", "name": "Route", "description": "Plans a route", "tags": [], "examples": []}],
}
BOTH = CARD_03 | CARD_1 | {
    "capabilities": {"streaming": True},
    "securitySchemes": {"http": {"type": "http", "scheme": "Basic", "httpAuthSecurityScheme": {"scheme": "Basic"}}},
    "securityRequirements": [{"schemes": {"http": {}}}],
    "security": [{"http": []}],
    "skills": [SKILL],
}  # fmt: skip
ALL = {"1.0": CARD_1, "0.3": CARD_03, "0.2": CARD_02, "0.1": CARD_01, "both": BOTH}


def changed(card: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """The card with another value at a place such as `skills/0/tags`."""
    card = json.loads(json.dumps(card))
    *steps, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    inner: Any = card
    for step in steps:
        inner = inner[step]
    if value is GONE:
        del inner[last]
    elif isinstance(inner, list) and last == len(inner):
        inner.append(value)
    else:
        inner[last] = value
    return card


def field(place: str) -> str:
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in place.split("/")).removeprefix(".")


@pytest.mark.parametrize("version", ALL)
def test_a_card_that_follows_its_version_has_no_problem(version: str) -> None:
    assert card_problems(ALL[version]) == []
    assert card_problems(json.dumps(ALL[version]).encode(), url=SITE) == []


# Where each version says what a card, an interface, a skill and so on must hold.
REQUIRED = {
    "1.0": {
        "4.4.1": ["name", "description", "version", "supportedInterfaces", "capabilities", "defaultInputModes",
                  "defaultOutputModes", "skills"],
        "4.4.2": ["provider/organization", "provider/url"],
        "4.4.4": ["capabilities/extensions/0/uri"],
        "4.4.5": [f"skills/1/{name}" for name in ("id", "name", "description", "tags")],
        "4.4.6": [f"supportedInterfaces/1/{name}" for name in ("url", "protocolBinding", "protocolVersion")],
        "4.5.2": [f"securitySchemes/key/apiKeySecurityScheme/{name}" for name in ("location", "name")],
        "4.5.3": ["securitySchemes/http/httpAuthSecurityScheme/scheme"],
        "4.5.4": ["securitySchemes/code/oauth2SecurityScheme/flows"],
        "4.5.5": ["securitySchemes/oidc/openIdConnectSecurityScheme/openIdConnectUrl"],
        "4.5.8": [f"securitySchemes/code/oauth2SecurityScheme/flows/authorizationCode/{name}"
                  for name in ("authorizationUrl", "tokenUrl", "scopes")],
        "4.5.10": [f"securitySchemes/device/oauth2SecurityScheme/flows/deviceCode/{name}"
                   for name in ("deviceAuthorizationUrl", "tokenUrl", "scopes")],
        "8.4.2": ["signatures/0/protected", "signatures/0/signature"],
    },
    "0.3": {
        "5.5": ["name", "description", "url", "version", "protocolVersion", "capabilities", "defaultInputModes",
                "defaultOutputModes", "skills"],
        "5.5.1": ["provider/organization", "provider/url"],
        "5.5.2.1": ["capabilities/extensions/0/uri"],
        "5.5.3": ["securitySchemes/key/type", "securitySchemes/key/in", "securitySchemes/key/name",
                  "securitySchemes/http/scheme", "securitySchemes/oauth/flows", "securitySchemes/oidc/openIdConnectUrl",
                  "securitySchemes/oauth/flows/clientCredentials/tokenUrl",
                  "securitySchemes/oauth/flows/clientCredentials/scopes",
                  "securitySchemes/oauth/flows/authorizationCode/authorizationUrl"],
        "5.5.4": [f"skills/1/{name}" for name in ("id", "name", "description", "tags")],
        "5.5.5": ["additionalInterfaces/1/url", "additionalInterfaces/1/transport"],
        "5.5.6": ["signatures/0/protected", "signatures/0/signature"],
    },
    "0.2": {
        "AgentCard": ["name", "description", "url", "version", "capabilities", "defaultInputModes",
                      "defaultOutputModes", "skills"],
        "AgentSkill": [f"skills/0/{name}" for name in ("id", "name", "description", "tags")],
        "SecurityScheme": ["securitySchemes/key/in"],
    },
    "0.1": {
        "AgentCard": ["name", "version", "capabilities", "skills"],
        "AgentProvider": ["provider/organization"],
        "AgentSkill": ["skills/0/id", "skills/0/name"],
    },
}  # fmt: skip
NEEDED = [
    (version, where, place)
    for version, wheres in REQUIRED.items()
    for where, places in wheres.items()
    for place in places
]


@pytest.mark.parametrize(("version", "where", "place"), NEEDED)
@pytest.mark.parametrize("value", [GONE, None])
def test_a_required_field_that_is_missing_is_an_error(version: str, where: str, place: str, value: object) -> None:
    (problem,) = card_problems(changed(ALL[version], place, value))
    assert (problem.level, problem.field) == ("error", field(place))
    assert problem.found == "missing"
    assert re.split(": | and ", problem.rule)[0] in (f"A2A {version}, {where}", f"A2A {version} schema, {where}")


@pytest.mark.parametrize(("version", "where", "place"), NEEDED)
def test_a_required_field_of_another_type_is_an_error(version: str, where: str, place: str) -> None:
    first, *_ = card_problems(changed(ALL[version], place, 7))
    assert (first.level, first.field) == ("error", field(place))


@pytest.mark.parametrize("place", ["name", "description", "version", "skills/0/id", "skills/0/name"])
@pytest.mark.parametrize("version", ["1.0", "0.3", "0.2"])
def test_a_required_text_that_is_empty_is_an_error(version: str, place: str) -> None:
    (problem,) = card_problems(changed(ALL[version], place, " "))
    assert problem[:2] == ("error", field(place))
    assert problem.found == "an empty text"


LOCAL = "http://localhost:8080/a2a"
API_KEY = "securitySchemes/key/apiKeySecurityScheme"
FLOWS = "securitySchemes/code/oauth2SecurityScheme/flows"
OIDC = "securitySchemes/oidc/openIdConnectSecurityScheme/openIdConnectUrl"
PROTECTED = "signatures/0/protected"
AGAIN = CARD_1["supportedInterfaces"][1]
ONCE = {key: value for key, value in CARD_1["supportedInterfaces"][0].items() if key != "tenant"}
# version, what is changed, to what, the problem's level, its field where it is another, part of its rule, part of found
WRONG: list[tuple[str, str, Any, str, str, str, str]] = [
    ("1.0", "capabilities/streaming", "yes", "error", "", "4.4.3", "'yes' instead of true or false"),
    ("1.0", "capabilities/stateTransitionHistory", True, "warning", "", "4.4.3", "not read"),
    ("1.0", "capabilities/extensions/0/uri", "x", "error", "", "4.4.4", "'x' is not a URI"),
    ("1.0", "capabilities/extensions/0/required", 1, "error", "", "4.4.4", "a number instead of true"),
    ("1.0", "capabilities/extensions/0/params", [], "error", "", "4.4.4", "a list instead of an object"),
    ("1.0", "capabilities/extensions/1", EXTENSION, "warning", "capabilities.extensions[1].uri", "Advice", "also"),
    ("1.0", "supportedInterfaces", [], "error", "", "4.4.1: an agent card names at least one", "an empty list"),
    ("1.0", "supportedInterfaces/1", "x", "error", "", "4.4.1", "'x' instead of an object"),
    ("1.0", "supportedInterfaces/0/url", "/a2a", "error", "", "4.4.6", "'/a2a' is not an absolute URL"),
    ("1.0", "supportedInterfaces/0/url", "localhost:5001", "error", "", "4.4.6: only GRPC", "not an absolute URL"),
    ("1.0", "supportedInterfaces/3/url", "localhost:5001", "error", "", "4.4.6: only GRPC", "not an absolute URL"),
    ("1.0", "supportedInterfaces/1/url", "localhost:grpc", "error", "", "GRPC also host:port", "'localhost:grpc'"),
    ("1.0", "supportedInterfaces/1/url", "localhost:0", "error", "", "GRPC also host:port", "'localhost:0'"),
    ("1.0", "supportedInterfaces/1/url", "localhost:65536", "error", "", "GRPC also host:port", "'localhost:65536'"),
    ("1.0", "supportedInterfaces/1/url", "0.0.0.0:5001", "warning", "", "Advice", "0.0.0.0"),
    ("1.0", "supportedInterfaces/1/url", "https://[::1", "error", "", "4.4.6", "is not an absolute URL"),
    ("1.0", "supportedInterfaces/1/url", "https://a:99999/", "error", "", "4.4.6", "is not an absolute URL"),
    ("1.0", "supportedInterfaces/1/url", "https://a b/", "error", "", "4.4.6", "is not an absolute URL"),
    ("1.0", "supportedInterfaces/1/url", "grpc://a.example", "error", "", "4.4.6: GRPC", "is none of them"),
    ("1.0", "supportedInterfaces/1/url", "http://a.example", "warning", "", "7.1", "plain http"),
    ("1.0", "supportedInterfaces/1/url", "http://127.0.0.1.a.example", "warning", "", "7.1", "plain http"),
    ("1.0", "supportedInterfaces/1/url", "http://0.0.0.0:80", "warning", "", "Advice", "0.0.0.0"),
    ("1.0", "supportedInterfaces/1/url", "https://me:x@a.example", "warning", "", "Advice", "a user name in the URL"),
    ("1.0", "supportedInterfaces/1/protocolBinding", "jsonrpc", "error", "", "5.8", "not how JSONRPC is written"),
    ("1.0", "supportedInterfaces/1/protocolBinding", "http-json", "error", "", "5.8", "not how HTTP+JSON is written"),
    ("1.0", "supportedInterfaces/1/protocolBinding", "PIGEON", "warning", "", "5.8", "'PIGEON' is none of them"),
    ("1.0", "supportedInterfaces/1/protocolVersion", "v1", "error", "", "3.6", "'v1' is not a version"),
    ("1.0", "supportedInterfaces/1/protocolVersion", "1.0.1", "warning", "", "3.6", "has a patch number"),
    ("1.0", "supportedInterfaces/0/tenant", "a/b", "warning", "", "Advice", "'a/b'"),
    ("1.0", "supportedInterfaces/4", AGAIN, "warning", "", "Advice", "the same as supportedInterfaces[1]"),
    ("1.0", "defaultInputModes", [], "error", "", "4.4.1", "an empty list"),
    ("1.0", "defaultOutputModes/0", "text", "error", "", "4.4.1", "'text' is not a media type"),
    ("1.0", "skills", [], "warning", "", "5.7", "an empty list"),
    ("1.0", "skills/0/tags", [], "warning", "", "5.7", "an empty list"),
    ("1.0", "skills/0/tags/0", 1, "error", "", "4.4.5", "a number instead of a text"),
    ("1.0", "skills/0/inputModes/0", "text", "error", "", "4.4.5", "is not a media type"),
    ("1.0", "skills/1/id", "route", "error", "", "4.4.5", "'route' is also that of skills[0]"),
    ("1.0", "provider/url", "maps", "warning", "", "4.4.2", "'maps' is not an absolute URL"),
    ("1.0", "iconUrl", "/icon.png", "warning", "", "4.4.1", "is not an absolute URL"),
    ("1.0", "iconUrl", True, "error", "", "4.4.1", "true instead of a text"),
    ("1.0", "documentation_url", "https://a.example", "error", "", "5.5", "snake_case"),
    ("1.0", "security", [{"code": []}], "warning", "", "4.4.1", "not read"),
    ("1.0", "supportsAuthenticatedExtendedCard", True, "warning", "", "4.4.1", "not read"),
    ("1.0", "securitySchemes", ["x"], "error", "", "4.4.1", "a list instead of an object"),
    ("1.0", "securitySchemes/tls", {"samlScheme": {}}, "error", "", "4.5.1", "none of them, but 'samlScheme'"),
    ("1.0", "securitySchemes/tls", {"type": "mutualTLS"}, "error", "", "4.5.1", "none of them, but 'type'"),
    ("1.0", "securitySchemes/tls/httpAuthSecurityScheme", {"scheme": "x"}, "error", "securitySchemes.tls", "4.5.1",
     "2 of them: httpAuthSecurityScheme, mtlsSecurityScheme"),
    ("1.0", f"{API_KEY}/location", "body", "error", "", "4.5.2", "'body' is not one of them"),
    ("1.0", FLOWS, {}, "error", "", "4.5.7", "none of them"),
    ("1.0", f"{FLOWS}/clientCredentials", FLOW, "error", field(FLOWS), "4.5.7", "2 of them"),
    ("1.0", FLOWS, {"clientCredentials": {"scopes": {}}}, "error", f"{field(FLOWS)}.clientCredentials.tokenUrl",
     "4.5.9", "missing"),
    ("1.0", FLOWS, {"implicit": {}}, "warning", f"{field(FLOWS)}.implicit", "4.5.7", "deprecated"),
    ("1.0", FLOWS, {"password": {}}, "warning", f"{field(FLOWS)}.password", "4.5.7", "deprecated"),
    ("1.0", f"{FLOWS}/authorizationCode/tokenUrl", "http://id.example", "error", "", "4.5.8", "is not https"),
    ("1.0", f"{FLOWS}/authorizationCode/scopes/read", 1, "error", "", "4.5.8", "a number instead of a text"),
    ("1.0", OIDC, "http://id.example", "error", "", "4.5.5", "is not https"),
    ("1.0", OIDC, "id.example", "error", "", "4.5.5", "is not an absolute URL"),
    ("1.0", "securityRequirements/0/schemes/none", {}, "error", "", "4.4.1", "'none' is not among securitySchemes"),
    ("1.0", "securityRequirements/1", {"key": []}, "error", "securityRequirements[1].schemes", "4.4.1", "form of 0.3"),
    ("1.0", "securityRequirements/0/schemes/key", ["x"], "error", "", "4.4.1", "a list instead of an object"),
    ("1.0", "skills/0/securityRequirements/0/schemes/none", {}, "error", "", "4.4.5", "not among securitySchemes"),
    ("1.0", PROTECTED, "not base64!", "error", "", "8.4.2", "no base64url of a JSON object"),
    ("1.0", PROTECTED, "abcde", "error", "", "8.4.2", "no base64url of a JSON object"),
    ("1.0", PROTECTED, coded([]), "error", "", "8.4.2", "no base64url of a JSON object"),
    ("1.0", PROTECTED, coded(HEADER | {"alg": ""}), "error", "", "8.4.2", "alg missing"),
    ("1.0", PROTECTED, coded(HEADER | {"alg": "none"}), "error", "", "8.4.2", "alg none"),
    ("1.0", PROTECTED, coded(HEADER | {"kid": None}), "error", "", "8.4.2", "kid missing"),
    ("1.0", PROTECTED, coded(HEADER | {"typ": "JWT"}), "warning", "", "8.4.2", "typ is 'JWT'"),
    ("1.0", PROTECTED, coded(HEADER | {"jku": "http://a.example"}), "warning", "", "8.4.2", "jku is"),
    ("1.0", "signatures/0/signature", "a=b", "error", "", "8.4.2", "is not base64url"),
    ("1.0", "signatures/0/signature", "", "error", "", "8.4.2", "an empty text"),
    ("1.0", "signatures/0/header", "x", "error", "", "8.4.2", "instead of an object"),
    ("0.3", "protocolVersion", "0.3.x.y", "error", "", "5.5", "is not a version"),
    ("0.3", "preferredTransport", GONE, "warning", "", "5.6.1", "missing"),
    ("0.3", "preferredTransport", "grpc", "error", "", "5.6.1", "is not how GRPC is written"),
    ("0.3", "url", "ftp://a.example/a2a", "error", "", "3.1", "is neither"),
    ("0.3", "url", "a.example:50051", "error", "", "3.1: only GRPC", "is not an absolute URL"),
    ("0.3", "additionalInterfaces/1/url", "ftp://a.example", "error", "", "3.1: GRPC", "is none of them"),
    ("0.3", "url", "/a2a", "error", "", "5.5", "is not an absolute URL"),
    ("0.3", "additionalInterfaces", {}, "error", "", "5.5", "an object instead of a list"),
    ("0.3", "additionalInterfaces/0", GONE, "warning", "additionalInterfaces", "5.6.4", "no such entry"),
    ("0.3", "additionalInterfaces/0/transport", "HTTP+JSON", "error", "", "5.6.4", "instead of 'JSONRPC'"),
    ("0.3", "additionalInterfaces/1/transport", "PIGEON", "warning", "", "5.5.5", "is not one of them"),
    ("0.3", "additionalInterfaces/1/url", "http://a.example", "warning", "", "4.1", "plain http"),
    ("0.3", "additionalInterfaces/2", CARD_03["additionalInterfaces"][1], "warning", "", "Advice", "the same as"),
    ("0.3", "securitySchemes/tls/type", "saml", "error", "", "5.5.3", "'saml' is not a known type"),
    ("0.3", "securitySchemes/tls", "x", "error", "", "5.5", "instead of an object"),
    ("0.3", "securitySchemes/oauth/flows", {}, "warning", "", "5.5.3", "none of them"),
    ("0.3", "securitySchemes/oauth/flows/implicit", CODE, "warning", "", "RFC 9700", "deprecated"),
    ("0.3", "securitySchemes/oauth/flows/password", FLOW, "warning", "", "RFC 9700", "deprecated"),
    ("0.3", "security/0/none", [], "error", "", "5.5", "'none' is not among securitySchemes"),
    ("0.3", "security/0/oauth", "read", "error", "", "5.5", "'read' instead of a list"),
    ("0.3", "skills/0/security/0/none", [], "error", "", "5.5.4", "not among securitySchemes"),
    ("0.3", "skills/1/id", "route", "error", "", "5.5.4", "also that of skills[0]"),
    ("0.3", PROTECTED, coded({}), "error", "", "5.5.6", "alg missing"),
    ("0.3", "protocolVersion", 2, "error", "", "5.5", "a number instead of a text"),
    ("0.2", "preferredTransport", "PIGEON", "warning", "", "AgentCard", "is not one of them"),
    ("0.2", "securitySchemes/key", {"type": "mutualTLS"}, "error", "securitySchemes.key.type", "SecurityScheme",
     "is not a known type"),
    ("0.2", "url", "http://a.example", "warning", "", "Advice", "plain http"),
    ("0.1", "url", "a2a", "error", "", "AgentCard", "is not an absolute URL"),
    ("0.1", "url", "a.example:80", "error", "", "AgentCard", "is not an absolute URL"),
    ("0.1", "defaultInputModes/0", 1, "error", "", "AgentCard", "a number instead of a text"),
    ("0.1", "skills/0/description", GONE, "warning", "", "AgentSkill", "missing"),
    ("0.1", "authentication", {"schemes": ["cookie"]}, "warning", "", "A2A 0.2", "deprecated"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "place", "value", "level", "at", "rule", "found"), WRONG)
def test_what_is_wrong_is_one_problem_at_its_field(
    version: str, place: str, value: object, level: str, at: str, rule: str, found: str
) -> None:
    card = changed(ALL[version], place, value)
    problems = card_problems(card)
    assert [(each.level, each.field) for each in problems] == [(level, at or field(place))]
    assert rule in problems[0].rule
    assert found in problems[0].found


@pytest.mark.parametrize(
    ("card", "place"), [(CARD_1, "capabilities.extendedAgentCard"), (CARD_03, "supportsAuthenticatedExtendedCard")]
)
def test_an_extended_card_without_security_schemes_is_an_error(card: dict[str, Any], place: str) -> None:
    plain = {key: value for key, value in card.items() if "security" not in key} | {"skills": [SKILL]}
    (problem,) = card_problems(plain)
    assert problem[:2] == ("error", place)
    assert problem.found == "true without securitySchemes"


ELSEWHERE = [
    ("https://b.example/a2a", SITE, "origin", "while the card is at"),
    ("https://a.example:8443/a2a", SITE, "origin", "while the card is at"),
    (LOCAL, SITE, "own machine", "localhost"),
    ("http://[::1]:80", SITE, "own machine", "::1"),
    ("http://0.0.0.0:8080", SITE, "listen", "0.0.0.0"),
    ("http://[::]:8080", SITE, "listen", "[::]"),
    ("http://127.0.0.1:9/", "http://127.0.0.1:8/", "origin", "while"),
]


@pytest.mark.parametrize(("address", "source", "rule", "found"), ELSEWHERE)
def test_an_address_that_the_callers_of_the_card_cannot_use_is_a_warning(
    address: str, source: str, rule: str, found: str
) -> None:
    card = changed(CARD_1, "supportedInterfaces", [ONCE | {"url": address}])
    (problem,) = card_problems(card, url=source)
    assert problem[:2] == ("warning", "supportedInterfaces[0].url")
    assert rule in problem.rule
    assert found in problem.found


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("https://a.example:443/x", SITE), ("https://A.example./x", SITE), (LOCAL, "http://localhost:8080/"),
        (LOCAL, None), ("http://127.3.2.1/", None), ("http://my.localhost/", None),
        ("http://0.0.0.0:8080/a2a", "http://0.0.0.0:8080/"),
    ],
)  # fmt: skip
def test_an_address_at_the_origin_of_the_card_is_no_problem(address: str, source: str | None) -> None:
    assert card_problems(changed(CARD_1, "supportedInterfaces", [ONCE | {"url": address}]), url=source) == []


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("a.example:50051", SITE), ("https://a.example:50051", SITE), ("dns:///a.example:443", SITE),
        ("localhost:50051", None), ("127.0.0.1:50051", "http://127.0.0.1:8080/"), ("[::1]:50051", "http://[::1]:8080/"),
    ],
)  # fmt: skip
def test_grpc_has_a_port_of_its_own_on_the_host_of_the_card(address: str, source: str | None) -> None:
    card = changed(CARD_1, "supportedInterfaces", [ONCE | {"url": address, "protocolBinding": "GRPC"}])
    assert card_problems(card, url=source) == []


@pytest.mark.parametrize("address", ["b.example:50051", "https://b.example"])
def test_grpc_on_another_host_than_the_card_is_a_warning(address: str) -> None:
    card = changed(CARD_1, "supportedInterfaces", [ONCE | {"url": address, "protocolBinding": "GRPC"}])
    (problem,) = card_problems(card, url=SITE)
    assert problem[:2] == ("warning", "supportedInterfaces[0].url")
    assert "while the card is at" in problem.found


def test_an_identity_provider_on_the_same_machine_may_do_without_https() -> None:
    assert card_problems(changed(CARD_1, OIDC, "http://127.0.0.1:9000/configuration")) == []


def test_older_addresses_are_compared_with_the_origin_too() -> None:
    problems = card_problems(CARD_03, url="https://b.example/")
    assert [each.field for each in problems] == ["url", *(f"additionalInterfaces[{index}].url" for index in range(3))]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "nothing"),
        (b" \n<!doctype html>", "HTML or XML"),
        (b'{"name"', "truncated"),
        (b"\xff", "malformed"),
        (b"[" * 100_000, ""),
        (b"[]", "a list"),
        (b'"card"', "'card'"),
        (b"null", "null"),
    ],
)
def test_a_document_that_is_no_card_is_one_problem(data: bytes, found: str) -> None:
    (problem,) = card_problems(data, url=SITE)
    assert problem[:2] == ("error", "(card)")
    assert found in problem.found


def test_a_card_of_more_than_one_megabyte_is_a_warning() -> None:
    card = json.dumps(CARD_1 | {"padding": "x" * 1024 * 1024}).encode()
    (problem,) = card_problems(card)
    assert problem[:2] == ("warning", "(card)")
    assert problem.found == "1.0 MB"


def test_problems_come_in_the_order_of_the_card_and_what_is_missing_last() -> None:
    card = {"version": "", "skills": [SKILL, SKILL | {"tags": 1, "name": ""}], "name": 3, "capabilities": {}}
    card |= {"supportedInterfaces": [ONCE | {"tenant": 1, "url": 2}], "defaultInputModes": ["text/plain"]}
    assert [each.field for each in card_problems(card)] == [
        "version", "skills[1].id", "skills[1].name", "skills[1].tags", "name", "supportedInterfaces[0].url",
        "supportedInterfaces[0].tenant", "description", "defaultOutputModes",
    ]  # fmt: skip


def test_what_two_versions_of_one_card_both_forbid_is_one_problem_in_the_words_of_the_newer() -> None:
    (problem,) = card_problems(changed(BOTH, "name", GONE))
    assert problem == CardProblem(
        "error", "name", "A2A 1.0, 4.4.1: an agent card has name, a text that is not empty", "missing"
    )


def test_a_card_of_two_versions_is_checked_as_both() -> None:
    card = changed(changed(BOTH, "supportedInterfaces", []), "securitySchemes/http/type", "saml")
    assert [(each.field, each.rule[:7]) for each in card_problems(card)] == [
        ("securitySchemes.http.type", "A2A 0.3"),
        ("supportedInterfaces", "A2A 1.0"),
    ]


@pytest.mark.parametrize(
    ("card", "version", "field"),
    [
        ({}, "A2A 1.0, 4.4.1", "supportedInterfaces"),
        ({"protocolVersion": "1.0", "url": "https://a.example"}, "A2A 1.0, 4.4.1", "supportedInterfaces"),
        ({"protocolVersion": "0.3.0"}, "A2A 0.3, 5.5", "url"),
        ({"preferredTransport": "GRPC"}, "A2A 0.3, 5.5", "url"),
        ({"url": "https://a.example", "preferredTransport": "GRPC"}, "A2A 0.3, 5.5", "protocolVersion"),
        ({"protocolVersion": "0.2.6"}, "A2A 0.2 schema, AgentCard", "url"),
        ({"url": "https://a.example", "securitySchemes": {}}, "A2A 0.2 schema, AgentCard", "protocolVersion"),
        ({"url": "https://a.example", "defaultInputModes": ["a/b"]}, "A2A 0.2 schema, AgentCard", "description"),
        ({"url": "https://a.example"}, "A2A 0.1 schema, AgentCard", "skills"),
        ({"url": "https://a.example", "authentication": {"schemes": []}}, "A2A 0.1 schema, AgentCard", "skills"),
    ],
)
def test_the_version_of_a_card_is_inferred_from_its_fields(card: dict[str, Any], version: str, field: str) -> None:
    rules = {each.field: each.rule for each in card_problems(card) if each.found == "missing"}
    assert rules[field].startswith(f"{version}: ")
    assert {rule.split(", ")[0].split(" schema")[0] for rule in rules.values()} == {
        version.split(",")[0].split(" sch")[0]
    }


def test_a_required_field_in_snake_case_is_one_problem() -> None:
    card = CARD_1 | {"default_input_modes": ["text/plain"]}
    del card["defaultInputModes"]
    (problem,) = card_problems(card)
    assert problem[:2] == ("error", "default_input_modes")
    assert problem.rule.endswith("so this is defaultInputModes")


def test_what_a_card_says_is_shown_short_and_without_control_characters() -> None:
    card = CARD_1 | {"defaultInputModes": ["\x1b[31m\u202e" + "x" * 500], "securitySchemes": {"a.b \x07": 1}}
    card |= {"securityRequirements": [], "skills": [SKILL]}
    problems = {each.field: each.found for each in card_problems(card)}
    assert set(problems) == {"defaultInputModes[0]", "securitySchemes['a.b \\x07']"}
    assert problems["defaultInputModes[0]"].isprintable()
    assert len(problems["defaultInputModes[0]"]) < 120


def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


def agent() -> Agent:
    """An agent with a skill that says everything about itself."""
    made = Agent("crier", description="Shouts", extensions=(AgentExtension("urn:example:x"),))

    made.skill(tags=["voice"], examples=["hello"])(shout)
    return made


SECURITY: dict[str, Any] = {
    "security_schemes": CARD_1["securitySchemes"],
    "security_requirements": ({"schemes": {"key": {}}}, {"schemes": {"code": {"list": ["read"]}, "tls": {}}}),
}


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("version", ["both", "1.0", "0.3"])
def test_the_cards_we_serve_have_no_error(version: Any, secured: bool) -> None:
    base = "http://127.0.0.1:8080"
    card = replace(build_card(agent(), base), **(SECURITY if secured else {}))
    problems = card_problems(card_json(card, {}, version), url=f"{base}/.well-known/agent-card.json")
    assert [each for each in problems if each.level == "error"] == []
    # 0.3 would like the main address twice, and has no device flow.
    assert {each.field for each in problems} <= {"additionalInterfaces", "securitySchemes.device.flows"}


@pytest.mark.parametrize("version", ["both", "1.0", "0.3"])
def test_a_card_of_ours_without_skills_or_tags_has_no_error(version: Any) -> None:
    untagged = Agent("echo")
    untagged.skill(shout)
    for made in (Agent("echo"), untagged):
        problems = card_problems(card_json(build_card(made, LOCAL), {}, version))
        assert [each for each in problems if each.level == "error"] == []
        assert {each.field for each in problems} <= {"skills", "skills[0].tags", "additionalInterfaces"}


# The sample cards of the specifications, 1.0 section 8.5 and 0.3 section 5.7, in their shape: the one names its
# requirements as 0.3 does, the other calls itself 0.2.9.
SAMPLE_SCHEME = {"openIdConnectUrl": "https://id.example/.well-known/openid-configuration"}
SAMPLE_1 = {key: value for key, value in CARD_1.items() if key != "securityRequirements"} | {
    "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": True},
    "securitySchemes": {"id": {"openIdConnectSecurityScheme": SAMPLE_SCHEME}},
    "security": [{"id": ["openid", "profile", "email"]}],
    "skills": [SKILL],
}
SAMPLE_03 = CARD_03 | {
    "protocolVersion": "0.2.9",
    "capabilities": {"streaming": True, "pushNotifications": True, "stateTransitionHistory": False},
    "securitySchemes": {"id": {"type": "openIdConnect", **SAMPLE_SCHEME}},
    "security": [{"id": ["openid", "profile", "email"]}],
    "skills": [SKILL],
    "signatures": [SIGNATURE],
}


def test_the_sample_cards_of_the_specifications_have_no_error() -> None:
    assert [(each.level, each.field) for each in card_problems(SAMPLE_1)] == [("warning", "security")]
    assert card_problems(SAMPLE_03) == []


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["http://[", "https://a:x/", "1" * 5000 + ".0", "0.3.0", "0.1", "//", "a:b", "JSONRPC"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
PLACES = [
    "protocolVersion", "url", "supportedInterfaces", "additionalInterfaces", "preferredTransport", "skills", "name",
    "capabilities", "securitySchemes", "securityRequirements", "security", "signatures", "defaultInputModes",
    "authentication", "provider",
]  # fmt: skip
INSIDE = [
    ("1.0", "supportedInterfaces/0/url"), ("1.0", "supportedInterfaces/0"), ("1.0", "skills/0"),
    ("1.0", "securitySchemes/code"), ("1.0", FLOWS), ("1.0", "securityRequirements/0"), ("1.0", PROTECTED),
    ("1.0", "securityRequirements/0/schemes"), ("1.0", "capabilities/extensions/0"), ("1.0", "signatures/0"),
    ("0.3", "securitySchemes/key/type"), ("0.3", "security/0"), ("0.3", "additionalInterfaces/0"), ("0.3", "url"),
    ("0.3", "additionalInterfaces/0/url"), ("0.1", "skills/0"),
]  # fmt: skip
# A slow machine is no failure.
calm = settings(deadline=None)


@calm
@given(VALUES)
def test_no_json_value_makes_it_raise(value: object) -> None:
    assert all(isinstance(each, CardProblem) for each in card_problems(value, url="http://["))


@calm
@given(st.binary(max_size=50))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    assert card_problems(data)


@calm
@given(st.dictionaries(st.sampled_from(PLACES), VALUES), st.sampled_from(["1.0", "0.3", "0.1", "both"]))
def test_no_card_with_strange_fields_makes_it_raise(fields: dict[str, Any], version: str) -> None:
    for problem in card_problems(ALL[version] | fields, url=SITE):
        assert problem.level in ("error", "warning")
        assert problem.field and problem.found
        assert ": " in problem.rule


@calm
@given(st.sampled_from(INSIDE), VALUES)
def test_no_strange_value_inside_a_card_makes_it_raise(place: tuple[str, str], value: object) -> None:
    version, at = place
    assert isinstance(card_problems(changed(ALL[version], at, value), url=SITE), list)
