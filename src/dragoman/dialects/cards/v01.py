"""The card of 0.1 in its plainest form: skills by their own ids and words, and only what 0.1 has a name for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from dragoman.dialects.cards.security import schemes_to_01
from dragoman.model.card import AgentCard
from dragoman.model.json import as_object

Json = dict[str, Any]

_MODES = ["text"]


def plain_card(card: AgentCard, skills: Iterable[tuple[str, str]], extra: Json) -> Json:
    """Present a card plainly. `skills` are ids with descriptions.

    What the author says in `extra` counts before it, as far as a plain card has a place for it.
    """
    defaults: Json = {
        "name": card.name,
        "description": card.description,
        "url": next((each.url for each in card.supported_interfaces if each.protocol_binding == "JSONRPC"), ""),
        "version": card.version,
        "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
        # Where strangers are welcome, nothing is required, and readers of 0.1 are still told what counts.
        "authentication": {"schemes": schemes_to_01(card.security_schemes or {})},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": [_skill({"id": name, "description": description}) for name, description in skills],
    }
    result = _apply_overrides(defaults, extra)
    if not result["authentication"]["schemes"]:
        del result["authentication"]
    return result


def _apply_overrides(card: Json, extra: Json) -> Json:
    """What is shown, in the author's words where there are some of the same kind."""
    result: Json = {}
    for key, value in card.items():
        own: Any = extra.get(key, value)
        if isinstance(value, dict):
            result[key] = _apply_overrides(cast("Json", value), as_object(own))
        elif key == "skills" and isinstance(own, list):
            result[key] = [_skill(as_object(each)) for each in cast("list[Any]", own)]
        else:
            result[key] = own
    return result


def _skill(skill: Json) -> Json:
    name = skill.get("id", "")
    defaults: Json = {"id": name, "name": name, "description": "", "tags": [], "examples": []}
    return {key: skill.get(key, value) for key, value in defaults.items()}
