"""Statements find their rows by indexes, in new tables as in large ones.

A prepared statement keeps its plan. One that was made for a table that looked small would read all of it later on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from unit.stores.postgres.changes import SCOPE

from dragoman.engine.ports.store import Cursor, ScopeFilter, TaskQuery, TaskSearch
from dragoman.model.state import State
from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.postgres.sql import claims, reader
from dragoman.stores.postgres.sql.session import PLANS
from dragoman.stores.postgres.sql.statement import COLUMNS, commit_statement


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[PostgresConnection]:
    """A connection with the settings of those that a node uses."""
    connection = await connect(postgres_url, PLANS)
    yield connection
    await connection.close()


STREAM = ("updates", "events")
CREATION = ("keys", "creates", "events", "notes", "counts")
PARTS = [STREAM, CREATION, tuple(COLUMNS)]


async def plan_of(connection: PostgresConnection, text: str, arguments: list[str]) -> list[dict[str, Any]]:
    """All nodes of the plan of a prepared statement."""
    await connection.execute(f"PREPARE statement AS {text}")
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE statement({', '.join(arguments)})"))
    await connection.execute("DEALLOCATE statement")
    return nodes_of(plan[0]["Plan"])


def nodes_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """A node and all below it."""
    nodes: list[dict[str, Any]] = []
    open_nodes = [plan]
    while open_nodes:
        node = open_nodes.pop()
        nodes.append(node)
        open_nodes += node.get("Plans", [])
    return nodes


def check(nodes: list[dict[str, Any]]) -> None:
    """Every stored row is found by an index and a condition on it."""
    for node in nodes:
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), str(node)
            assert "Index Cond" in node, str(node)
        assert node["Node Type"] not in ("Hash Join", "Merge Join"), str(node)


@pytest.mark.parametrize("parts", PARTS, ids=["stream", "creation", "everything"])
async def test_a_commit_reads_no_table_as_a_whole(parts: tuple[str, ...], connection: PostgresConnection) -> None:
    text = commit_statement(frozenset(parts), ())
    arguments = ["1", "2", *["NULL"] * sum(len(COLUMNS[part]) for part in parts)]
    check(await plan_of(connection, text, arguments))
    await connection.execute(
        f"""
INSERT INTO scopes (agent, tenant, owner) VALUES ('{SCOPE.agent}', '', '');
INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, epoch)
SELECT n, 't' || n, 1, 'c' || n, '', 3, n, 1, n, 1 FROM generate_series(1, 200) n;
"""
    )
    check(await plan_of(connection, text, arguments))
    await connection.execute("ANALYZE tasks, scopes")
    check(await plan_of(connection, text, arguments))


async def test_a_commit_reads_as_few_pages_before_the_first_analyze_as_after_it(connection: PostgresConnection) -> None:
    """The statement of 64 records on new tables, planned when they were empty."""
    await connection.execute(f"PREPARE statement AS {commit_statement(frozenset(STREAM), ())}")
    await connection.execute("INSERT INTO scopes (agent, tenant, owner) VALUES ('agent', '', '')")
    pages: list[int] = []
    for first in (1, 10_001):
        await connection.execute(
            "INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, epoch)"
            f" SELECT n, 't' || n, 1, 'c' || n, '', 2, n, 1, n, 1 FROM generate_series({first}, {first + 9999}) n"
        )
        numbers = f"ARRAY{list(range(first, first + 64))}"
        twice, none = "array_fill(2, ARRAY[64])", "array_fill(0, ARRAY[64])"
        arguments = ["1", "2", numbers, "array_fill(1, ARRAY[64])", twice, twice, twice, none]
        arguments += ["array_fill(1, ARRAY[64])", none, numbers, twice, r"array_fill('\x00'::bytea, ARRAY[64])"]
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE statement({', '.join(arguments)})"
        plan = json.loads(await connection.fetchval(text))[0]["Plan"]
        assert await connection.fetchval("SELECT count(*) FROM events WHERE task >= $1", first) == 64
        pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        await connection.execute("ANALYZE")
    assert pages[0] <= 1.5 * pages[1], f"pages before and after: {pages}"


class TextRecorder:
    """Takes a query instead of a connection, and answers with nothing."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, int]] = []

    async def fetch(self, query: str, *args: object) -> list[object]:
        self.queries.append((query, len(args)))
        return []

    fetchrow = fetchval = fetch


QUERIES = [
    TaskQuery(SCOPE),
    TaskQuery(SCOPE, after=Cursor(1, 1)),
    TaskQuery(SCOPE, state=State.FAILED, after=Cursor(1, 1)),
    TaskQuery(SCOPE, context_id="c"),
    TaskQuery(SCOPE, context_id="c", state=State.FAILED),
    TaskQuery(SCOPE, since_ms=1),
]


async def test_tasks_and_pages_are_found_by_an_index(connection: PostgresConnection) -> None:
    recorder: Any = TextRecorder()
    for query in QUERIES:
        await reader.page(recorder, query)
    await reader.generations(recorder, ["a"])
    await reader.records(recorder, 1, 1, 1)
    await reader.tasks(recorder, [("a",)])
    await reader.records_of_many(recorder, [(1, 1, 1)])
    await reader.notes(recorder, 1)
    await reader.notes_of_many(recorder, [(1,)])
    await claims.release_many(recorder, [(1, 1, 1, False)])
    await reader.mail(recorder, 1, 1)
    await reader.context_state(recorder, SCOPE, "c")
    await reader.duplicate_of(recorder, b"k", 1)
    for text, count in recorder.queries:
        nodes = await plan_of(connection, text, ["NULL"] * count)
        check(nodes)
        # A page is in the order of its index: the rows before its limit are not sorted.
        limited = [below for node in nodes if node["Node Type"] == "Limit" for below in nodes_of(node)]
        assert not [node for node in limited if node["Node Type"] == "Sort"], text


SEARCHES = [
    TaskSearch(),
    TaskSearch(ScopeFilter(("a", "b"), "", "anna"), after=Cursor(1, 1)),
    TaskSearch(state=State.FAILED, after=Cursor(1, 1)),
    TaskSearch(context_id="c"),
    TaskSearch(since_ms=1, until_ms=5),
]


async def test_a_search_over_scopes_finds_the_tasks_of_each_by_an_index(connection: PostgresConnection) -> None:
    recorder: Any = TextRecorder()
    for query in SEARCHES:
        await reader.search(recorder, query)
    await reader.journal(recorder, 1, 1, 1, 1)
    for text, count in recorder.queries:
        # All scopes may be read, which are few beside tasks.
        nodes = [
            node
            for node in await plan_of(connection, text, ["NULL"] * count)
            if node.get("Relation Name") != "scopes" and node["Node Type"] not in ("Hash Join", "Merge Join")
        ]
        check(nodes)


async def test_work_is_taken_without_reading_all_tasks(connection: PostgresConnection) -> None:
    nodes = await plan_of(connection, claims._TAKE.format(claims._ORDER), ["1", "'agent'", "10", "10"])  # pyright: ignore
    tasks = {node.get("Index Name") for node in nodes if node.get("Relation Name") == "tasks"} - {None}
    assert tasks <= {"tasks_queued", "tasks_owned", "tasks_unfinished", "tasks_pkey"}
    # Nodes are few.
    assert {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} <= {"nodes"}
