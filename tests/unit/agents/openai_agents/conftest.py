"""The scripted model, found by path: tests are no packages here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    path = Path(__file__).with_name("scripted_model.py")
    spec = importlib.util.spec_from_file_location("openai_scripted_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module `scripted_model`."""
    return _load()
