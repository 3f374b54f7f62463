"""What tests of the shared store need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from unit.stores.postgres.cluster import Cluster, ClusterNode


@pytest.fixture
async def cluster(postgres_url: str) -> AsyncIterator[Cluster]:
    """A real database, and as many nodes on it as a test makes."""
    cluster = Cluster(postgres_url)
    yield cluster
    await cluster.close()


@pytest.fixture
async def node(cluster: Cluster) -> ClusterNode:
    """The only node of a test, or the first of several."""
    return await cluster.node()


@pytest.fixture
async def one(node: ClusterNode) -> ClusterNode:
    """The first of two nodes."""
    return node


@pytest.fixture
async def two(cluster: Cluster, one: ClusterNode) -> ClusterNode:
    """The second of two nodes, which has joined after the first."""
    return await cluster.node()
