"""The databases of the tests of several nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.processes.postgres import crashable_postgres
from cluster.real_database import RealDatabase
from cluster.simulated_database import SimulatedDatabase
from cluster.tables import NOW, Tables
from postgres_server import PostgresServer


@pytest.fixture(params=["simulated", "postgres"])
async def tables(request: pytest.FixtureRequest) -> AsyncIterator[Tables]:
    """An empty database with two nodes: the simulated one, and PostgreSQL."""
    if request.param == "simulated":
        tables = Tables(SimulatedDatabase(lambda: NOW / 1000))
        await tables.open()
        yield tables
        return
    database = RealDatabase(request.getfixturevalue("postgres_url"), lambda: NOW)
    await database.open()
    tables = Tables(database)
    await tables.open()
    yield tables
    await database.close()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test alone, which may crash."""
    with crashable_postgres() as server:
        yield server
