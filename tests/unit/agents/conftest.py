"""The engine's fixtures, for agents made of functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def _engine_fixtures() -> ModuleType:
    # By path: in importlib mode neither tests/ nor its parent is on sys.path.
    path = Path(__file__).resolve().parents[1] / "engine" / "conftest.py"
    spec = importlib.util.spec_from_file_location("engine_fixtures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_fixtures = _engine_fixtures()
clock, start = _fixtures.clock, _fixtures.start
held_store, failing_store = _fixtures.held_store, _fixtures.failing_store
until, turns = _fixtures.until_fixture, _fixtures.turns_fixture
