"""Which messages are taken for those of ADK's client."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.negotiate import is_from_adk
from dragoman.dialects.table import ADK_EXTENSION
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role


def message(*metadata: dict[str, Any] | None) -> Message:
    return Message("m", Role.USER, tuple(Part(text="hi", metadata=each) for each in metadata))


@pytest.mark.parametrize(
    "metadata", [{"is_user_input": True}, {"adk_type": "function_response"}, {"other": 1, "adk_thought": False}]
)
def test_metadata_of_adk_on_a_part_identifies_its_client(metadata: dict[str, Any]) -> None:
    assert is_from_adk(message(metadata), {})
    assert is_from_adk(message(None, metadata), {})


@pytest.mark.parametrize("name", ["a2a-extensions", "x-a2a-extensions"])
@pytest.mark.parametrize("value", [ADK_EXTENSION, f"urn:one , {ADK_EXTENSION}", f"{ADK_EXTENSION},urn:two"])
def test_the_extension_of_adk_identifies_its_client(name: str, value: str) -> None:
    assert is_from_adk(message(None), {name: value})


@pytest.mark.parametrize("metadata", [None, {}, {"adk": 1}, {"is_user_inputs": True}, {"dragoman/adk_type": 1}])
@pytest.mark.parametrize("headers", [{}, {"a2a-extensions": f"{ADK_EXTENSION}v2, urn:one"}, {"a2a-version": "1.0"}])
def test_no_other_metadata_or_header_identifies_the_client_of_adk(
    metadata: dict[str, Any] | None, headers: dict[str, str]
) -> None:
    assert not is_from_adk(message(metadata), headers)


def test_metadata_of_the_message_is_not_that_of_its_parts() -> None:
    assert not is_from_adk(Message("m", Role.USER, (Part(text="hi"),), metadata={"adk_type": 1}), {})
