"""A filled file is one a server could have written."""

from __future__ import annotations

from pathlib import Path

from bench import stored
from bench.fill import SCOPE, fill

from dragoman.engine.ports.store import TaskQuery
from dragoman.model.json import decode_task
from dragoman.model.state import State
from dragoman.stores.sqlite.store import SqliteStore

COUNT = 700


async def test_a_filled_file_has_the_tasks_the_generator_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    await fill(file, 0, 600)
    await fill(file, 600, COUNT)  # a larger file goes on where a smaller one ended
    store = SqliteStore(file)
    await store.open()
    try:
        for number in (0, 1, 2, COUNT - 1):
            found = await store.task(stored.task_id(number))
            assert found is not None
            assert found.row.state == stored.state(number)
            assert found.snapshot is not None
            assert decode_task(found.snapshot).text == stored.text(number)
            assert len(await store.records(found.row.number, 0, 10)) == found.row.generation == 4
        assert (await store.page(TaskQuery(SCOPE))).total == COUNT
        failed = await store.page(TaskQuery(SCOPE, state=State.FAILED))
        assert failed.total == COUNT // stored.ONE_IN
        assert (await store.page(TaskQuery(SCOPE, context_id=stored.context_id(5)))).total == stored.PER_CONTEXT
        recent = TaskQuery(SCOPE, since_ms=stored.status_ms(stored.recent_from(COUNT)))
        assert (await store.page(recent)).total == COUNT // 100
        assert not await store.unfinished(stored.AGENT)
    finally:
        await store.close()
