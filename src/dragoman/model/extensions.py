"""The extensions of A2A that Dragoman knows of itself, by the names they have on cards."""

from __future__ import annotations

SKILL_SCHEMAS = "https://dragoman.dev/extensions/skill-schemas/v1"
"""The JSON schemas of skills, by skill id: `params` has them as `schemas`, or the `url` of a document that does."""
