"""What tests of sessions share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# By path: in importlib mode no folder of tests is on sys.path. The name is what tests import.
_spec = importlib.util.spec_from_file_location("fake_manager", Path(__file__).with_name("fake_manager.py"))
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules["fake_manager"] = _module
_spec.loader.exec_module(_module)
