"""A server with a hundred running streams is killed once; tests/soak kills one twenty times."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.fault


@pytest.fixture
def load() -> ModuleType:
    # By path: in importlib mode neither tests/ nor its parent is on sys.path.
    spec = importlib.util.spec_from_file_location("fault_load", Path(__file__).with_name("load.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hundred_streams_survive_a_kill(launch: Any, load: ModuleType) -> None:
    (told,) = load.rounds(launch, number=1, streams=100, seed=7)
    print(told)
