"""However many tasks there are, and whatever their callers send, the number of series stays. The long one is a soak."""

from __future__ import annotations

import pytest
from support.hostile_callers import check_cardinality


@pytest.mark.timeout(60)
async def test_ten_times_as_many_tasks_have_no_more_series() -> None:
    await check_cardinality(200, 2000, every=5)
