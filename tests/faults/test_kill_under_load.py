"""A server with a hundred running streams is killed once; tests/soak kills one twenty times."""

from __future__ import annotations

from typing import Any

import pytest
from faults.load import rounds

pytestmark = pytest.mark.fault


def test_a_hundred_streams_survive_a_kill(launch: Any) -> None:
    (report,) = rounds(launch, number=1, streams=100, seed=7)
    print(report)
