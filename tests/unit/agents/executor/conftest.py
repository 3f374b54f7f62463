"""Shares the scripted executor with the tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _share(name: str, file: str) -> None:
    # By path: in importlib mode no folder of tests is on sys.path. The name is what tests import.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_share("executor_scripted", "scripted.py")
