"""ADK without a network: scripted models, no traces."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")


def _share(name: str) -> None:
    # By path: in importlib mode no folder of tests is on sys.path. The name is what tests import.
    path = Path(__file__).parent / "scripted.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_share("adk_scripted")
