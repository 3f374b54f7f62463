"""Lists of tasks: every task once, newest status first, in pages of any size."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import InvalidParams
from dragoman.model.message import Message
from dragoman.model.operation import ListTasksRequest, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.outputs import Ask
from dragoman.server.agent.in_process import connect
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock


async def run(ctx: Any) -> Any:
    if ctx.text == "ask":
        yield Ask("?")
    elif ctx.text == "fail":
        raise ValueError
    elif ctx.text == "hang":
        await asyncio.Event().wait()
    else:
        yield {"text": ctx.text}


async def pages(engine: Any, **filters: Any) -> list[Any]:
    """All tasks of a list, page by page."""
    found: list[Any] = []
    token = None
    while True:
        page = await engine.list(page_token=token, **filters)
        found += page.tasks
        token = page.next_page_token
        if not token:
            return found


async def test_a_time_that_is_none_is_named(start: Any) -> None:
    engine = await start(run)
    with pytest.raises(InvalidParams, match="is a time like") as raised:
        await engine.list(status_timestamp_after="yesterday")
    assert raised.value.field == "statusTimestampAfter"


async def test_a_page_ends_at_its_bytes_and_the_next_one_goes_on(start: Any, clock: Any) -> None:
    engine = await start(run, settings=EngineSettings(page_bytes=5000, drain=0))
    sent = []
    for text in ("x" * 3000, "small", "y" * 9000, "z" * 1000, "tiny"):
        clock.move(1)
        sent.append((await engine.send(text)).id)
    first = await engine.list()
    assert [task.id for task in first.tasks] == [sent[4], sent[3]]  # each text is there twice: as said, as answered
    second = await engine.list(page_token=first.next_page_token)
    assert [task.id for task in second.tasks] == [sent[2]]
    assert second.tasks[0].history[0].parts[0].text == "y" * 9000
    assert [task.id for task in await pages(engine)] == sent[::-1]
    assert (second.total_size, second.page_size) == (5, 50)


async def test_tasks_at_work_count_by_their_size_too(start: Any, clock: Any) -> None:
    engine = await start(run, settings=EngineSettings(page_bytes=5000, drain=0))
    running = []
    for letter in "abcd":
        clock.move(1)
        running.append((await engine.send("hang", message_metadata={"more": letter * 1500}, wait=False)).id)
    page = await engine.list()
    assert [task.id for task in page.tasks] == running[:1:-1]
    assert [task.id for task in await pages(engine)] == running[::-1]


async def test_the_size_of_pages_may_change_from_one_to_the_next_and_their_filters_may_not(start: Any) -> None:
    engine = await start(run)
    for _ in range(3):
        await engine.send("one")
    token = (await engine.list(page_size=1)).next_page_token
    assert len((await engine.list(page_size=2, page_token=token)).tasks) == 2
    with pytest.raises(InvalidParams, match="other filters"):
        await engine.list(page_size=1, page_token=token, status=State.COMPLETED)


async def test_a_token_with_numbers_no_store_can_take_is_refused(start: Any) -> None:
    engine = await start(run)
    for _ in range(2):
        await engine.send("one")
    token = (await engine.list(page_size=1)).next_page_token
    parts = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    for place in (0, 1):
        forged = [*parts]
        forged[place] = 10**30
        text = base64.urlsafe_b64encode(msgspec.json.encode(forged)).rstrip(b"=").decode()
        with pytest.raises(InvalidParams):
            await engine.list(page_token=text)


Step = st.tuples(st.sampled_from(["one", "ask", "fail"]), st.sampled_from(["a", "b"]), st.integers(0, 2))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(Step, max_size=12),
    size=st.integers(1, 5),
    context=st.sampled_from([None, "a"]),
    state=st.sampled_from([None, State.INPUT_REQUIRED, State.COMPLETED]),
)
def test_pages_of_any_size_show_every_task_once_and_in_order(
    steps: list[tuple[str, str, int]], size: int, context: str | None, state: State | None
) -> None:
    async def check() -> None:
        clock = Clock()
        connection = connect(Agent("test", run=run), store=MemoryStore(), clock=clock)
        await connection.open()
        service = connection.service
        for text, context_id, pause in steps:
            clock.move(pause)
            message = Message("m", Role.USER, (Part(text=text),), context_id)
            await service.send(CallContext(), SendMessageRequest(message))
        whole = await service.list(CallContext(), ListTasksRequest(context, state, 100))
        found: list[Any] = []
        token = ""
        while True:
            page = await service.list(CallContext(), ListTasksRequest(context, state, size, token))
            assert page.total_size == whole.total_size == len(whole.tasks)
            assert len(page.tasks) == min(size, len(whole.tasks) - len(found))
            found += page.tasks
            token = page.next_page_token
            if not token:
                break
        assert found == list(whole.tasks)
        times = [task.status.timestamp for task in found]
        assert times == sorted(times, reverse=True)
        await connection.close()

    asyncio.run(check())
