"""The servers of tests/faults, for longer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _faults(name: str) -> ModuleType:
    # By path: in importlib mode neither tests/ nor its parent is on sys.path.
    path = Path(__file__).parents[1] / "faults" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"soak_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launch = _faults("conftest").launch


@pytest.fixture
def load() -> ModuleType:
    return _faults("load")
