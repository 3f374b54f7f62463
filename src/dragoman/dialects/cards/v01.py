"""The plain 0.1 card: skills by id and description, and only the members of 0.1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from dragoman.dialects.cards.security import schemes_to_01
from dragoman.dialects.table import V0_1, row_of
from dragoman.model.card import AgentCard
from dragoman.model.json import as_object

Json = dict[str, Any]

_MODES = ["text"]


def plain_card(card: AgentCard, base: str, skills: Iterable[tuple[str, str]], extra: Json) -> Json:
    """Build the plain 0.1 JSON of a card of the agent at `base`. `skills` are ids with descriptions.

    `extra`, the author's own members, overrides it where 0.1 has such a member.
    """
    defaults: Json = {
        "name": card.name,
        "description": card.description,
        "url": base + row_of(V0_1).card_path,
        "version": card.version,
        "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
        # Listed also where anonymous callers are allowed, so that 0.1 clients learn the schemes.
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
    """Return the card with the author's values for members that it has."""
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
