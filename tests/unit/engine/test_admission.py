"""Who is let in, and under which name: chosen task ids, demanded extensions, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dragoman import User
from dragoman.engine.call import CallContext
from dragoman.model.error import (
    InvalidParams,
    UnsupportedOperation,
)
from dragoman.model.state import State
from dragoman.stores.sqlite.store import SqliteStore

from .conftest import Gate

# Ids that callers choose, as version 0.1 lets them


async def test_two_messages_with_one_new_id_at_once_make_one_task(start: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run)  # whether there will be a task at all is open until the first output
    sending = [engine.sending("go", new_task_id="mine") for _ in range(2)]
    await turns()
    agent.open.set()
    first, second = await asyncio.gather(*sending, return_exceptions=True)
    assert first.state is State.COMPLETED
    assert isinstance(second, UnsupportedOperation) or second.state is State.COMPLETED
    assert agent.runs == 1
    assert len((await engine.list()).tasks) == 1


async def test_an_id_that_was_answered_without_a_task_is_free(start: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run)
    sending = [engine.sending(text, new_task_id="mine") for text in ("reply", "go")]
    await turns()
    agent.open.set()
    reply, task = await asyncio.gather(*sending)
    assert (reply.text, task.id, task.state) == ("hi", "mine", State.COMPLETED)


async def test_two_who_choose_one_id_at_one_moment_do_not_harm_each_other(start: Any, tmp_path: Path) -> None:
    async def run(ctx: Any) -> Any:
        yield f"for {ctx.user.id}"

    engine = await start(run, store=SqliteStore(tmp_path / "t.db"))
    ada, eve = CallContext(User("ada")), CallContext(User("eve"))
    sent = await asyncio.gather(
        *(engine.send("go", new_task_id="mine", call=call) for call in (ada, eve)), return_exceptions=True
    )
    assert (sent[0].state, sent[0].text) == (State.COMPLETED, "for ada")
    assert isinstance(sent[1], InvalidParams)
    assert (await engine.get("mine", call=ada)).state is State.COMPLETED


# Races that only a store with a disk shows
