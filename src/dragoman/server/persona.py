"""What kind of character an agent is, as its description tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# An archetype that says nothing.
_CUSTOM = "custom"


def enriched(description: str, persona: Mapping[str, Any] | None, bundles: Sequence[str]) -> str:
    """A description, with what kind of character the agent is and the bundles of skills it was given."""
    archetype: Any = None if persona is None else persona.get("archetype")
    if isinstance(archetype, str) and archetype and archetype != _CUSTOM:
        description += f" | Archetype: {archetype}"
    if bundles:
        description += f" | Skills: {', '.join(bundles)}"
    return description
