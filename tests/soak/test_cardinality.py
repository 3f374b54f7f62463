"""A hundred thousand tasks of callers who want to be counted each on their own make no series more than a thousand."""

from __future__ import annotations

import logging

import pytest
from support.hostile_callers import check_cardinality


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_hundred_thousand_tasks_have_no_more_series_than_a_thousand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Thousands of tasks fail on purpose, each with a stack.
    caplog.set_level(logging.CRITICAL, "dragoman")
    await check_cardinality(1000, 100_000, every=25)
