"""One call of a tool, and the words that describe how its result is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast


@dataclass(frozen=True)
class Answer:
    """What is said to a question of a tool."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@dataclass(frozen=True)
class Step:
    """One call. Later steps find what earlier ones have left behind."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    view: Callable[[Any], Any] | None = None
    """How its values are looked at, where something in them differs by nature."""
    answers: tuple[Answer, ...] = ()


def without(*patterns: str) -> Callable[[Any], Any]:
    """A view in which whatever fits one of the patterns is the same."""
    pattern = re.compile("|".join(patterns))

    def view(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub("…", value)
        if isinstance(value, bytes):
            return pattern.sub("…", value.decode("latin-1"))
        if isinstance(value, dict):
            return {key: view(each) for key, each in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [view(each) for each in cast("list[Any]", value)]
        return value

    return view
