"""The servers of tests/faults, for longer."""

from __future__ import annotations

from faults.conftest import launch

__all__ = ["launch"]
