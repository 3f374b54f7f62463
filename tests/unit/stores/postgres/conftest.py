"""What tests of the shared store need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from unit.stores.postgres.cluster import Cluster


@pytest.fixture
async def cluster(postgres_url: str) -> AsyncIterator[Cluster]:
    """A real database, and as many nodes on it as a test makes."""
    cluster = Cluster(postgres_url)
    yield cluster
    await cluster.close()
