"""The tool handlers of the source document: a map of arguments in, the text of a tool result out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dragoman.compat.remote.cards import fetch_agent_card
from dragoman.compat.remote.invoke import TIMEOUT_MS, invoke_remote_agent
from dragoman.compat.sessions.errors import ValidationError
from dragoman.model.error import DragomanError
from dragoman.model.json import encode
from dragoman.net.exchange import redact_url

_MS_PER_MINUTE = 60_000


async def handle_discover_agent(arguments: Mapping[str, Any]) -> str:
    """Handle `corvid_discover_agent` with `url`: return the card as JSON text, or why there is none.

    Raises:
        ValidationError: `url` is missing.
    """
    url = _text(arguments, "url")
    try:
        return encode(await fetch_agent_card(url)).decode()
    except DragomanError as error:
        return f"Failed to discover agent at {redact_url(url)}: {error}"


async def handle_invoke_remote_agent(arguments: Mapping[str, Any]) -> str:
    """Handle `corvid_invoke_remote_agent` with `agent_url`, `message`, and optional `skill` and `timeout_minutes`.

    Returns the text of the agent's answer, or why there is none.

    Raises:
        ValidationError: `agent_url` or `message` is missing, or `timeout_minutes` is not a number.
    """
    result = await invoke_remote_agent(
        _text(arguments, "agent_url"),
        _text(arguments, "message"),
        skill=arguments.get("skill"),
        timeout_ms=_timeout_ms(arguments.get("timeout_minutes")),
    )
    return result.response_text or "" if result.success else f"Remote agent failed: {result.error}"


def _timeout_ms(minutes: Any) -> int:
    if minutes is None:
        return TIMEOUT_MS
    try:
        return int(float(minutes) * _MS_PER_MINUTE)
    except (ValueError, TypeError, OverflowError):
        raise ValidationError("timeout_minutes must be a number, such as 5 or 0.5") from None


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ValidationError(f"{name} is required, as a text")
    return value
