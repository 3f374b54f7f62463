"""What of a card is signed."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.keys.canonical import canonical
from dragoman.keys.card_form import sdk_form, specification_form

# The example of specification 8.4.1.
FRAGMENT = {
    "name": "Example Agent",
    "description": "",
    "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
    "skills": [],
}


def card(**fields: Any) -> dict[str, Any]:
    return {"name": "a", **fields}


def test_the_example_of_the_specification_comes_out_byte_by_byte():
    assert canonical(specification_form(FRAGMENT)) == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"description":"",'
        b'"name":"Example Agent","skills":[]}'
    )


def test_the_sdks_drop_what_is_required_and_empty():
    assert canonical(sdk_form(FRAGMENT)) == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}'
    )


def test_signatures_and_what_1_0_does_not_know_are_part_of_neither_form():
    extra = card(signatures=[{"protected": "x"}], url="https://a.example", preferredTransport="JSONRPC", mine=1)
    scheme = {"type": "http", "scheme": "bearer", "httpAuthSecurityScheme": {"scheme": "bearer", "in": "header"}}
    extra["securitySchemes"] = {"b": scheme}
    known = card(securitySchemes={"b": {"httpAuthSecurityScheme": {"scheme": "bearer"}}})
    assert specification_form(extra) == sdk_form(extra) == known


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        # Optional: kept when said.
        ({"documentationUrl": "", "iconUrl": ""}, {"documentationUrl": "", "iconUrl": ""}),
        ({"capabilities": {"extendedAgentCard": False}}, {"capabilities": {"extendedAgentCard": False}}),
        # null is not said.
        ({"documentationUrl": None, "provider": None, "version": None}, {}),
        # Required: kept when empty, also inside.
        ({"supportedInterfaces": [], "capabilities": {}}, {"supportedInterfaces": [], "capabilities": {}}),
        ({"provider": {"url": "", "organization": ""}}, {"provider": {"url": "", "organization": ""}}),
        (
            {"skills": [{"id": "", "tags": [], "examples": [], "inputModes": [], "securityRequirements": []}]},
            {"skills": [{"id": "", "tags": []}]},
        ),
        (
            {"supportedInterfaces": [{"url": "u", "tenant": "", "protocolVersion": ""}]},
            {"supportedInterfaces": [{"url": "u", "protocolVersion": ""}]},
        ),
        # Neither: dropped when empty.
        ({"securitySchemes": {}, "securityRequirements": []}, {}),
        (
            {"capabilities": {"extensions": [{"uri": "", "description": "", "required": False}]}},
            {"capabilities": {"extensions": [{}]}},
        ),
        # An object is said or not, however empty; a name in a map is said.
        ({"provider": {}}, {"provider": {}}),
        (
            {"securitySchemes": {"m": {"mtlsSecurityScheme": {"description": ""}}}},
            {"securitySchemes": {"m": {"mtlsSecurityScheme": {}}}},
        ),
        (
            {"securityRequirements": [{"schemes": {"m": {"list": []}}}, {"schemes": {}}]},
            {"securityRequirements": [{"schemes": {"m": {}}}, {}]},
        ),
        (
            {
                "securitySchemes": {
                    "o": {"oauth2SecurityScheme": {"flows": {"password": {"scopes": {}, "tokenUrl": ""}}}}
                }
            },
            {"securitySchemes": {"o": {"oauth2SecurityScheme": {"flows": {"password": {}}}}}},
        ),
        (
            {"securitySchemes": {"o": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"scopes": {}}}}}}},
            {"securitySchemes": {"o": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"scopes": {}}}}}}},
        ),
        # What is the author's own is left as it is.
        (
            {"capabilities": {"extensions": [{"params": {"a": None, "b": "", "c": [], "d": False, "e": {}}}]}},
            {"capabilities": {"extensions": [{"params": {"a": None, "b": "", "c": [], "d": False, "e": {}}}]}},
        ),
        # What is of another type is not a default.
        (
            {"capabilities": {"extensions": [{"required": 0, "uri": False}]}, "skills": "x", "securitySchemes": [1]},
            {"capabilities": {"extensions": [{"required": 0, "uri": False}]}, "skills": "x", "securitySchemes": [1]},
        ),
    ],
)
def test_the_specification_keeps_required_and_present_fields(fields: dict[str, Any], kept: dict[str, Any]):
    # As text: 0 and false are equal in Python.
    assert canonical(specification_form(card(**fields))) == canonical(card(**kept))


def test_a_complete_form_has_the_required_fields_that_were_left_out():
    assert specification_form({"name": "a", "skills": [{"id": "s"}]}, complete=True) == {
        "name": "a",
        "description": "",
        "supportedInterfaces": [],
        "version": "",
        "capabilities": {},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [{"id": "s", "name": "", "description": "", "tags": []}],
    }


def test_the_sdks_drop_empty_things_at_every_level():
    given = card(
        provider={"url": "", "organization": ""},
        documentationUrl="",
        capabilities={"streaming": False, "extensions": [{"params": {"a": None, "b": [{}, [""]], "c": 0, "d": False}}]},
        securityRequirements=[{"schemes": {"m": {"list": []}}}],
        securitySchemes={"m": {"mtlsSecurityScheme": {}}},
        defaultInputModes=["", "text/plain"],
    )
    assert sdk_form(given) == {
        "name": "a",
        "capabilities": {"streaming": False, "extensions": [{"params": {"c": 0, "d": False}}]},
        "defaultInputModes": ["text/plain"],
    }
    assert sdk_form({}) == {}
