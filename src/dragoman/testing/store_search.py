"""The store contract for who looks at all tasks: searches over several scopes, counts, and journals with times."""

from __future__ import annotations

from dragoman.engine.ports.store import Cursor, JournalRecord, Scope, ScopeFilter, Store, TaskRow, TaskSearch
from dragoman.model.state import State
from dragoman.testing.store_writes import NOW, SCOPE, Contract, append, body, create, row_of, write

contract = Contract()
_SCOPES = tuple(Scope(agent, tenant, owner) for agent in ("a", "b") for tenant in ("", "t") for owner in ("", "anna"))


async def _fill(store: Store) -> list[TaskRow]:
    """Create tasks in several scopes, with many equal times; newest first."""
    rows: list[TaskRow] = []
    states = (State.WORKING, State.COMPLETED, State.INPUT_REQUIRED, State.FAILED, State.CANCELED)
    for place in range(40):
        row = row_of(
            store,
            f"t{place}",
            scope=_SCOPES[place * 5 % 8 if place % 3 else 1],
            context_id=f"c{place % 4}",
            state=states[place * 3 % 5],
            status_ms=NOW + place * 7 % 11,
        )
        rows.append(await create(store, row))
    return sorted(rows, key=lambda row: (row.status_ms, row.number), reverse=True)


async def _find(store: Store, query: TaskSearch) -> list[str]:
    page = await store.search(query)
    assert not page.more, "a page that has all tasks says that more follow"
    return [stored.row.id for stored in page.tasks]


@contract.check
async def a_search_shows_the_tasks_of_all_scopes_once_newest_status_first(store: Store) -> None:
    """Also among equal times, whatever the size of the page."""
    expected = await _fill(store)
    for limit in (1, 3, 39, 40, 100):
        listed: list[TaskRow] = []
        cursor: Cursor | None = None
        more = True
        while more:
            tasks, more = await store.search(TaskSearch(limit=limit, after=cursor))
            assert more is (len(listed) + limit < 40), f"more is {more} after {len(listed)} and a page of {limit}"
            listed += [stored.row for stored in tasks]
            cursor = Cursor(listed[-1].status_ms, listed[-1].number)
        assert listed == expected, f"pages of {limit} are not in order"


@contract.check
async def a_search_selects_by_each_filter(store: Store) -> None:
    """By the parts of scopes, context, state and time, and by all of them at once."""
    rows = await _fill(store)
    for agents in (None, (), ("a",), ("b", "a"), ("nobody",)):
        for owner in (None, "", "anna", "nobody"):
            scopes = ScopeFilter(agents, owner=owner)
            expected = [row.id for row in rows if scopes.matches(row.scope)]
            assert await _find(store, TaskSearch(scopes)) == expected, f"the tasks of {scopes} differ"
    assert await _find(store, TaskSearch(ScopeFilter(tenant="t"))) == [r.id for r in rows if r.scope.tenant == "t"]
    assert await _find(store, TaskSearch(context_id="c1")) == [row.id for row in rows if row.context_id == "c1"]
    assert await _find(store, TaskSearch(context_id="\0")) == [], "a context is found that no task has"
    assert await _find(store, TaskSearch(state=State.FAILED)) == [row.id for row in rows if row.state is State.FAILED]
    between = TaskSearch(since_ms=NOW + 2, until_ms=NOW + 5)
    assert await _find(store, between) == [row.id for row in rows if NOW + 2 <= row.status_ms < NOW + 5]
    every = TaskSearch(
        ScopeFilter(("a",), "", "anna"), "c3", State.WORKING, NOW, NOW + 9, after=Cursor(NOW + 8, rows[0].number)
    )
    assert await _find(store, every) == [
        row.id
        for row in rows
        if row.scope == Scope("a", "", "anna")
        and (row.context_id, row.state) == ("c3", State.WORKING)
        and row.status_ms < NOW + 9
        and (row.status_ms, row.number) < (NOW + 8, rows[0].number)
    ]


@contract.check
async def a_search_brings_snapshots_and_ends_at_its_bytes(store: Store) -> None:
    """But it has at least one task, so that it gets on."""
    for place, size in enumerate((10, 1000, 10, 10)):
        row = await create(store, row_of(store, f"t{place}", status_ms=NOW - place, scope=_SCOPES[place % 2]))
        await append(store, row, snapshot=b"x" * size)
    first = await store.search(TaskSearch(budget=500))
    assert [(stored.row.id, len(stored.snapshot or b"")) for stored in first.tasks] == [("t0", 10)]
    assert first.more
    second = await store.search(TaskSearch(budget=500, after=Cursor(NOW, first.tasks[0].row.number)))
    assert [(stored.row.id, len(stored.snapshot or b"")) for stored in second.tasks] == [("t1", 1000)]
    whole = await store.search(TaskSearch())
    assert [(len(stored.snapshot or b""), stored.snapshot_generation) for stored in whole.tasks] == [
        (10, 2),
        (1000, 2),
        (10, 2),
        (10, 2),
    ]


@contract.check
async def drafts_are_neither_found_nor_counted(store: Store) -> None:
    """Nobody sees a task that may yet be answered with a bare message."""
    row = row_of(store, "draft")
    await write(store, row, draft=True, snapshot=b"{}")
    assert await _find(store, TaskSearch()) == []
    assert not any((await store.counts(ScopeFilter())).values())


@contract.check
async def tasks_are_counted_by_state_over_scopes(store: Store) -> None:
    """Whatever the scopes are selected by."""
    rows = await _fill(store)
    for scopes in (ScopeFilter(), ScopeFilter(("a",)), ScopeFilter(("a", "b"), "t", ""), ScopeFilter(owner="nobody")):
        counted = await store.counts(scopes)
        for state in State:
            expected = sum(row.state is state and scopes.matches(row.scope) for row in rows)
            assert counted.get(state, 0) == expected, f"{state} is counted {counted.get(state, 0)} times in {scopes}"


@contract.check
async def a_journal_has_the_time_of_each_commit(store: Store) -> None:
    """Times never go back, and the records of one write have one time."""
    row = await create(store, row_of(store, "a"))
    for place in range(4):
        row = await append(store, row, body(str(place)))
    entries = await store.journal(row.number, 0, 100, 1 << 20)
    records = await store.records(row.number, 0, 100)
    assert [(entry.generation, entry.body) for entry in entries] == [(each.generation, each.body) for each in records]
    times = [entry.at_ms for entry in entries if entry.at_ms is not None]
    assert len(times) == 5, "an event has no time"
    assert times == sorted(times), "the times of a journal go back"


@contract.check
async def reading_a_journal_keeps_to_after_limit_and_bytes(store: Store) -> None:
    """A page has at least one record, however large that is."""
    row = await create(store, row_of(store, "a"))
    for size in (10, 100, 1000, 10):
        row = await append(store, row, b"x" * size)

    async def generations(after: int, limit: int, budget: int) -> list[int]:
        entries: list[JournalRecord] = await store.journal(row.number, after, limit, budget)
        return [entry.generation for entry in entries]

    assert await generations(0, 3, 1 << 20) == [1, 2, 3]
    assert await generations(3, 100, 1 << 20) == [4, 5]
    assert await generations(5, 100, 1 << 20) == []
    assert await generations(1, 100, 1) == [2]
    assert await generations(1, 100, 100) == [2, 3]
    assert await generations(1, 100, 111) == [2, 3, 4]
    assert await store.journal(row.number + 1, 0, 10, 100) == [], "a task that is not there has a journal"


@contract.check
async def a_search_follows_the_status_of_its_tasks(store: Store) -> None:
    """A task moves to the top with its next status, and is counted in its new state."""
    first = await create(store, row_of(store, "first", status_ms=NOW))
    await create(store, row_of(store, "second", status_ms=NOW + 1, scope=_SCOPES[0]))
    moved = TaskRow(
        first.number, "first", SCOPE, first.context_id, first.origin, State.WORKING, NOW + 2, 1, first.created_ms
    )
    await append(store, moved, previous_state=State.SUBMITTED)
    assert await _find(store, TaskSearch()) == ["first", "second"]
    assert await _find(store, TaskSearch(state=State.WORKING)) == ["first"]
    counted = await store.counts(ScopeFilter())
    assert (counted.get(State.WORKING, 0), counted.get(State.SUBMITTED, 0)) == (1, 1)
