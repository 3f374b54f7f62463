"""One card, presented to readers of 1.0, of 0.3 and of both, and read from every version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.dialects.cards.card import card_json, parse_card, read_card
from dragoman.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from dragoman.model.error import BadCard

URL = "https://a.example/"
SKILL = AgentSkill("add", "Add", "adds", ("math",), ("1+1",), ("text/plain",), ("text/plain",))
SMALL = AgentCard(
    "calc",
    "Adds numbers",
    (AgentInterface(URL, "JSONRPC", "0.3"),),
    "1.2.3",
    AgentCapabilities(streaming=True, push_notifications=False),
    ("text/plain",),
    ("text/plain",),
    (SKILL,),
)
FULL = replace(
    SMALL,
    supported_interfaces=(
        AgentInterface(URL, "JSONRPC", "1.0"),
        AgentInterface(URL, "HTTP+JSON", "1.0", "tenant"),
        AgentInterface(URL + "rpc", "JSONRPC", "0.3"),
        AgentInterface(URL, "HTTP+JSON", "0.3"),
    ),
    capabilities=AgentCapabilities(True, True, (AgentExtension("urn:x", "d", True, {"a": 1}),), True),
    skills=(replace(SKILL, security_requirements=({"schemes": {"bearer": {"list": ["s"]}}},)),),
    provider=AgentProvider("https://p.example", "P"),
    documentation_url="https://d.example",
    icon_url="https://i.example",
    security_schemes={
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "k"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
        "code": {
            "oauth2SecurityScheme": {
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "a",
                        "tokenUrl": "t",
                        "scopes": {"s": "S"},
                        "pkceRequired": True,
                    }
                },
                "oauth2MetadataUrl": "m",
            }
        },
        "device": {
            "oauth2SecurityScheme": {
                "flows": {"deviceCode": {"deviceAuthorizationUrl": "a", "tokenUrl": "t", "scopes": {}}}
            }
        },
        "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "o"}},
        "tls": {"mtlsSecurityScheme": {}},
    },
    security_requirements=({"schemes": {"bearer": {}}}, {"schemes": {"key": {}, "code": {"list": ["s"]}}}),
    signatures=(AgentCardSignature("p", "s", {"kid": "1"}),),
)
KEYS_1_0 = {
    "name", "description", "supportedInterfaces", "provider", "version", "documentationUrl", "capabilities",
    "securitySchemes", "securityRequirements", "defaultInputModes", "defaultOutputModes", "skills", "signatures",
    "iconUrl",
}  # fmt: skip
KEYS_0_3 = {
    "protocolVersion", "name", "description", "url", "preferredTransport", "additionalInterfaces", "provider",
    "version", "documentationUrl", "capabilities", "securitySchemes", "security", "defaultInputModes",
    "defaultOutputModes", "skills", "supportsAuthenticatedExtendedCard", "signatures", "iconUrl",
}  # fmt: skip
SCHEMES_0_3 = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "k"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "code": {
        "type": "oauth2",
        "flows": {"authorizationCode": {"authorizationUrl": "a", "tokenUrl": "t", "scopes": {"s": "S"}}},
        "oauth2MetadataUrl": "m",
    },
    "device": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "o"},
    "tls": {"type": "mutualTLS"},
}


def parsed(card: Any) -> AgentCard:
    return parse_card(json.dumps(card).encode())


def test_a_1_0_card_has_exactly_the_keys_of_1_0() -> None:
    shown = card_json(FULL, {}, "1.0")

    assert shown.keys() == KEYS_1_0
    assert shown["capabilities"]["extendedAgentCard"] is True
    assert parsed(shown) == FULL


def test_a_0_3_card_has_exactly_the_keys_of_0_3() -> None:
    shown = card_json(FULL, {}, "0.3")

    assert shown.keys() == KEYS_0_3
    assert shown["protocolVersion"] == "0.3.0"
    assert (shown["url"], shown["preferredTransport"]) == (URL + "rpc", "JSONRPC")
    assert shown["additionalInterfaces"] == [
        {"url": URL + "rpc", "transport": "JSONRPC"},
        {"url": URL, "transport": "HTTP+JSON"},
    ]
    assert shown["capabilities"] == {
        "streaming": True,
        "pushNotifications": True,
        "extensions": [{"uri": "urn:x", "description": "d", "required": True, "params": {"a": 1}}],
    }
    assert shown["securitySchemes"] == SCHEMES_0_3
    assert shown["security"] == [{"bearer": []}, {"key": [], "code": ["s"]}]
    assert shown["supportsAuthenticatedExtendedCard"] is True
    assert shown["skills"] == [
        {
            "id": "add",
            "name": "Add",
            "description": "adds",
            "tags": ["math"],
            "examples": ["1+1"],
            "inputModes": ["text/plain"],
            "outputModes": ["text/plain"],
            "security": [{"bearer": ["s"]}],
        }
    ]


def test_a_card_for_both_has_the_keys_of_both_and_1_0_wins() -> None:
    shown = card_json(FULL, {}, "both")

    assert shown.keys() == KEYS_1_0 | KEYS_0_3 | {"authentication"}
    assert shown["capabilities"]["extendedAgentCard"] is True
    assert shown["skills"][0]["security"] == [{"bearer": ["s"]}]
    assert shown["skills"][0]["securityRequirements"] == [{"schemes": {"bearer": {"list": ["s"]}}}]
    assert shown["securitySchemes"]["bearer"] == {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"},
    }
    for name, scheme in SCHEMES_0_3.items():
        assert shown["securitySchemes"][name].items() >= {k: v for k, v in scheme.items() if k != "flows"}.items()
    assert parsed(shown) == FULL


@pytest.mark.requirement("S2-53", "S2-70", "S2-71", "S2-86")
def test_a_0_3_card_survives_the_round_trip() -> None:
    card = replace(
        SMALL,
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        provider=AgentProvider("https://p.example", "P"),
        documentation_url="https://d.example",
        icon_url="https://i.example",
    )
    text = json.dumps(card_json(card, {}, "0.3"))

    assert json.loads(text)["protocolVersion"] == "0.3.0"
    assert parse_card(text.encode()) == card
    assert card_json(parse_card(text.encode()), {}, "0.3") == json.loads(text)


def test_what_a_card_does_not_say_is_left_out() -> None:
    assert card_json(SMALL, {}, "0.3") == {
        "protocolVersion": "0.3.0",
        "name": "calc",
        "description": "Adds numbers",
        "version": "1.2.3",
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "url": URL,
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": True, "pushNotifications": False},
        "skills": [
            {
                "id": "add",
                "name": "Add",
                "description": "adds",
                "tags": ["math"],
                "examples": ["1+1"],
                "inputModes": ["text/plain"],
                "outputModes": ["text/plain"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("interfaces", "url", "transport"),
    [
        ([("r", "HTTP+JSON", "0.3"), ("j", "JSONRPC", "0.3")], "j", "JSONRPC"),
        ([("r", "HTTP+JSON", "0.3"), ("j", "JSONRPC", "1.0")], "j", "JSONRPC"),
        ([("r", "HTTP+JSON", "0.3"), ("g", "GRPC", "1.0")], "r", "HTTP+JSON"),
        ([("g", "GRPC", "1.0")], "g", "GRPC"),
    ],
)
def test_the_main_address_is_the_best_a_0_3_reader_can_use(interfaces: Any, url: str, transport: str) -> None:
    card = replace(SMALL, supported_interfaces=tuple(AgentInterface(*each) for each in interfaces))
    shown = card_json(card, {}, "0.3")

    assert (shown["url"], shown["preferredTransport"]) == (url, transport)


def test_a_card_without_an_address_is_shown_without_one() -> None:
    assert "url" not in card_json(replace(SMALL, supported_interfaces=()), {}, "0.3")


@pytest.mark.parametrize("version", ["both", "1.0", "0.3"])
def test_the_authors_own_words_are_merged_last(version: Any) -> None:
    shown = card_json(
        SMALL,
        {
            "name": "mine",
            "capabilities": {"stateTransitionHistory": True, "streaming": False},
            "authentication": {"schemes": ["cookie"]},
            "skills": [],
        },
        version,
    )

    assert shown["name"] == "mine"
    assert shown["capabilities"] == {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True}
    assert shown["authentication"] == {"schemes": ["cookie"]}
    assert shown["skills"] == []
    assert SMALL.capabilities.streaming is True


def test_presenting_a_card_changes_nothing_in_it() -> None:
    before = json.dumps(card_json(FULL, {}, "1.0"))
    card_json(FULL, {"securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "x"}}}}, "both")
    card_json(FULL, {}, "0.3")

    assert json.dumps(card_json(FULL, {}, "1.0")) == before


class TestReading:
    def test_a_0_3_card(self) -> None:
        card = parsed(card_json(FULL, {}, "0.3"))

        assert card.supported_interfaces == (
            AgentInterface(URL + "rpc", "JSONRPC", "0.3"),
            AgentInterface(URL, "HTTP+JSON", "0.3"),
        )
        assert card.security_requirements == FULL.security_requirements
        assert card.skills == FULL.skills
        assert card.security_schemes is not None
        assert card.security_schemes["key"] == {
            "apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "k"}
        }
        assert card.capabilities == FULL.capabilities

    def test_a_0_2_card(self) -> None:
        card = parsed(
            {
                "name": "n",
                "description": "d",
                "url": URL,
                "version": "1",
                "capabilities": {},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
                "additionalInterfaces": [{"url": URL, "transport": "JSONRPC"}, {"url": "g", "transport": "GRPC"}],
                "security": None,
            }
        )

        assert card.supported_interfaces == (AgentInterface(URL, "JSONRPC", "0.3"), AgentInterface("g", "GRPC", "0.3"))

    def test_a_0_1_card(self) -> None:
        card = parsed(
            {
                "name": "elixir-mcp-agent",
                "url": "https://localhost/a2a",
                "version": "1.0.0",
                "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
                "authentication": {"schemes": ["cookie", "Bearer", 5]},
                "skills": [{"id": "add", "name": "add"}],
                "provider": {"organization": "P"},
            }
        )

        assert card == AgentCard(
            "elixir-mcp-agent",
            "",
            (AgentInterface("https://localhost/a2a", "JSONRPC", "0.1"),),
            "1.0.0",
            AgentCapabilities(False, False),
            ("text",),
            ("text",),
            (AgentSkill("add", "add", "", ()),),
            AgentProvider("", "P"),
            security_schemes={"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            security_requirements=({"schemes": {"bearer": {}}},),
        )

    @pytest.mark.parametrize(
        ("change", "version"),
        [
            ({"authentication": {"schemes": []}}, "0.1"),
            ({"authentication": {}}, "0.1"),
            ({"defaultInputModes": ["text"]}, "0.1"),
            ({"defaultInputModes": None}, "0.1"),
            ({}, "0.3"),
            ({"protocolVersion": "0.2.5"}, "0.2"),
            ({"protocolVersion": "0.3.0", "authentication": {"schemes": ["Bearer"]}}, "0.3"),
            ({"preferredTransport": "JSONRPC", "defaultInputModes": ["text"]}, "0.3"),
        ],
    )
    def test_the_version_of_a_card_that_does_not_say_it(self, change: Any, version: str) -> None:
        card = parsed({"name": "n", "version": "1", "url": URL, "defaultInputModes": ["text/plain"], **change})

        assert card.supported_interfaces == (AgentInterface(URL, "JSONRPC", version),)

    def test_a_1_0_card_as_protojson_writes_it(self) -> None:
        card = parsed(
            {"name": "n", "version": "1", "supported_interfaces": None, "supportedInterfaces": [{"url": URL}]}
        )

        assert card.supported_interfaces == (AgentInterface(URL, "", ""),)
        assert card.default_input_modes == ("text/plain",)

    def test_a_scheme_of_no_known_kind_stays(self) -> None:
        card = parsed({"name": "n", "version": "1", "url": URL, "securitySchemes": {"x": {"type": "magic"}, "y": {}}})

        assert card.security_schemes == {"x": {"type": "magic"}, "y": {}}
        assert card_json(card, {}, "0.3")["securitySchemes"] == {"x": {"type": "magic"}, "y": {}}

    def test_a_requirement_in_1_0_form_under_its_0_3_name(self) -> None:
        card = parsed({"name": "n", "version": "1", "url": URL, "security": [{"schemes": {"k": {"list": ["s"]}}}]})

        assert card.security_requirements == ({"schemes": {"k": {"list": ["s"]}}},)

    @pytest.mark.parametrize(
        ("card", "says"),
        [
            ([], "not a JSON object"),
            ({"url": URL}, "name is required"),
            ({"name": "n"}, "neither supportedInterfaces nor url"),
            ({"name": "n", "supportedInterfaces": []}, "neither supportedInterfaces nor url"),
            ({"name": "n", "url": URL}, "version is required"),
            ({"name": "n", "url": URL, "version": ""}, "version is required"),
            ({"name": 5, "url": URL}, "name must be a string"),
            ({"name": "n", "url": 5}, r"supportedInterfaces\[0\]\.url must be a string"),
            ({"name": "n", "url": URL, "skills": [5]}, r"skills\[0\] must be an object"),
            ({"name": "n", "url": URL, "skills": [{"tags": [1]}]}, r"skills\[0\]\.tags\[0\] must be a string"),
            ({"name": "n", "url": URL, "skills": "s"}, "skills must be an array"),
            ({"name": "n", "url": URL, "capabilities": 5}, "capabilities must be an object"),
            (
                {"name": "n", "url": URL, "capabilities": {"streaming": "maybe"}},
                r"capabilities\.streaming must be true or false",
            ),
            (
                {"name": "n", "url": URL, "capabilities": 5, "supportsAuthenticatedExtendedCard": True},
                "capabilities must be an object",
            ),
        ],
    )
    def test_a_wrong_card_names_the_field(self, card: Any, says: str) -> None:
        with pytest.raises(BadCard, match=says):
            parsed(card)
        with pytest.raises(BadCard, match=says):
            read_card(card)

    @pytest.mark.parametrize("text", [b"", b"<html>", b"[" * 100_000])
    def test_what_is_not_json_is_no_card(self, text: bytes) -> None:
        with pytest.raises(BadCard, match="not JSON"):
            read_card(text)
