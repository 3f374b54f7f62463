"""All followers of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from contract.followers import adk, clients, front, mcp_host
from contract.followers.follower import Behavior

KINDS = [*clients.KINDS, *front.KINDS, *adk.KINDS, *mcp_host.KINDS]

# The behaviors that a test shows.
ROWS: set[Behavior] = set()

Test = TypeVar("Test", bound=Callable[..., object])


def row(behavior: Behavior) -> Callable[[Test], Test]:
    """Run the test once for every kind of follower. Where one lacks the behavior, it is skipped with the reason."""
    ROWS.add(behavior)
    rows: list[object] = []
    for kind in KINDS:
        reason = kind.lacks.get(behavior)
        marks = () if reason is None else (pytest.mark.skip(reason=f"{kind.name}: {reason}"),)
        rows.append(pytest.param(kind, id=kind.name, marks=marks))
    return pytest.mark.parametrize("kind", rows)
