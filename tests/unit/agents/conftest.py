"""The engine's fixtures, for agents made of functions."""

from __future__ import annotations

from unit.engine.conftest import clock, failing_store, held_store, start
from unit.engine.conftest import turns_fixture as turns
from unit.engine.conftest import until_fixture as until

__all__ = ["clock", "failing_store", "held_store", "start", "turns", "until"]
