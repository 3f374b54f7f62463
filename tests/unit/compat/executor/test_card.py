"""The card as a map and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.compat.executor import AgentCapabilities, AgentCard, AgentProvider, AgentSkill
from dragoman.model.card import AgentExtension
from dragoman.model.error import BadCard

SKILL = AgentSkill("s", "Skill", "does it", ("a",), ("do it",), ("text/plain",), ("application/json",))
CARD = AgentCard(
    name="n",
    description="d",
    url="https://x.example/a2a",
    version="1.2.3",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True, extensions=(AgentExtension("urn:x"),)),
    skills=(SKILL,),
    default_input_modes=("text/plain", "image/png"),
    default_output_modes=("application/json",),
    provider=AgentProvider("https://p.example", "P"),
    documentation_url="https://x.example/docs",
    icon_url="https://x.example/icon.png",
    supports_authenticated_extended_card=True,
    preferred_transport="JSONRPC",
)
SKILL_MAP: dict[str, Any] = {
    "id": "s",
    "name": "Skill",
    "description": "does it",
    "tags": ["a"],
    "examples": ["do it"],
    "inputModes": ["text/plain"],
    "outputModes": ["application/json"],
}
CARD_MAP: dict[str, Any] = {
    "name": "n",
    "description": "d",
    "url": "https://x.example/a2a",
    "version": "1.2.3",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True, "pushNotifications": True, "extensions": [{"uri": "urn:x"}]},
    "skills": [SKILL_MAP],
    "defaultInputModes": ["text/plain", "image/png"],
    "defaultOutputModes": ["application/json"],
    "provider": {"url": "https://p.example", "organization": "P"},
    "documentationUrl": "https://x.example/docs",
    "iconUrl": "https://x.example/icon.png",
    "supportsAuthenticatedExtendedCard": True,
    "preferredTransport": "JSONRPC",
}


@pytest.mark.requirement("S2-53", "S2-70", "S2-98")
def test_a_card_with_everything_goes_through_json_and_comes_back() -> None:
    assert CARD.to_map() == CARD_MAP
    assert AgentCard.from_map(json.loads(json.dumps(CARD.to_map()))) == ("ok", CARD)


@pytest.mark.requirement("S2-70", "S2-71")
def test_a_minimal_card_says_its_defaults_and_nothing_that_is_not_there() -> None:
    card = AgentCard("n", "d", "https://x.example", "1")
    assert card.to_map() == {
        "name": "n",
        "description": "d",
        "url": "https://x.example",
        "version": "1",
        "protocolVersion": "0.3.0",
        "capabilities": {},
        "skills": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
    }
    assert AgentCard.from_map(card.to_map()) == ("ok", card)


@pytest.mark.requirement("S2-71")
def test_a_card_that_does_not_say_its_version_speaks_0_3_0() -> None:
    silent = {key: value for key, value in CARD_MAP.items() if key != "protocolVersion"}
    assert AgentCard.from_map(silent) == ("ok", CARD)


@pytest.mark.parametrize("field", ["name", "description", "url", "version"])
def test_a_card_needs_name_description_address_and_version(field: str) -> None:
    status, reason = AgentCard.from_map({key: value for key, value in CARD_MAP.items() if key != field})
    assert status == "error"
    assert field in str(reason)


@pytest.mark.requirement("S2-86")
@pytest.mark.parametrize(
    ("capabilities", "map"),
    [
        (AgentCapabilities(), {}),
        (AgentCapabilities(streaming=True), {"streaming": True}),
        (AgentCapabilities(push_notifications=True), {"pushNotifications": True}),
        (AgentCapabilities(state_transition_history=True), {"stateTransitionHistory": True}),
    ],
)
def test_capabilities_an_agent_has_not_are_not_said(capabilities: AgentCapabilities, map: dict[str, Any]) -> None:
    assert capabilities.to_map() == map
    assert AgentCapabilities.from_map(map) == ("ok", capabilities)


@pytest.mark.requirement("S2-86", "S2-98")
def test_a_skill_comes_back_as_it_went() -> None:
    assert SKILL.to_map() == SKILL_MAP
    assert AgentSkill.from_map(SKILL_MAP) == ("ok", SKILL)


@pytest.mark.requirement("S2-86")
def test_what_a_skill_has_not_is_not_said_but_its_tags_are() -> None:
    assert AgentSkill("s", "n", "d", ()).to_map() == {"id": "s", "name": "n", "description": "d", "tags": []}


@pytest.mark.requirement("S2-53")
def test_a_card_becomes_the_models_and_comes_back() -> None:
    model = CARD.to_model()
    assert [(each.url, each.protocol_version) for each in model.supported_interfaces] == [(CARD.url, "0.3")]
    assert AgentCard.from_model(model) == CARD


def test_a_card_without_an_address_does_not_become_the_models() -> None:
    with pytest.raises(BadCard):
        AgentCard("n", "d", "", "1").to_model()
