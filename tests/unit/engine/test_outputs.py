"""What an agent returns or yields, and the events it becomes."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

from dragoman import Agent, File, Part
from dragoman.engine.ports.agent import OutputMetadata
from dragoman.model.error import InvalidAgentResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import PROGRESS_KEY, Message
from dragoman.model.state import State
from dragoman.outputs import Ask, Replace, Reply
from dragoman.server.agent.base import Backend

from .conftest import artifact_updates, yielding

if TYPE_CHECKING:
    from pathlib import Path


# The life of a task


async def test_statuses_are_stamped_with_the_clock(start: Any, clock: Any) -> None:
    clock.move(1.5)
    engine = await start(yielding("hello"))
    task = await engine.send()
    assert task.status.timestamp == "2027-01-15T08:00:01.500Z"


@pytest.mark.requirement("S2-87")
async def test_ids_are_random_uuids_and_never_the_same(start: Any) -> None:
    from uuid import UUID

    engine = await start(yielding(Ask("q")))
    tasks = [await engine.send() for _ in range(20)]
    ids = {task.id for task in tasks} | {task.context_id for task in tasks}
    ids |= {task.status.message.message_id for task in tasks}
    assert len(ids) == 60
    assert all(UUID(one).version == 4 and str(UUID(one)) == one for one in ids)


# Text


async def test_a_chunk_that_stays_alone_for_a_while_is_closed_too(start: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "only"
        await turns(3)

    whole = await start(Agent("test", run=run, closing="whole"))
    assert artifact_updates(await whole.journal(await whole.send())) == [
        ("", False, False),
        ("only", True, False),
        ("only", False, True),
    ]
    last = await start(Agent("test", run=run, closing="last"))
    task = await last.send()
    assert artifact_updates(await last.journal(task)) == [("only", False, False), ("", True, True)]
    assert task.text == "only"


async def test_empty_chunks_are_nothing(start: Any) -> None:
    engine = await start(yielding("", "a", ""))
    task = await engine.send()
    assert artifact_updates(await engine.journal(task)) == [("a", False, True)]


async def test_no_output_completes_the_task_with_no_artifact(start: Any) -> None:
    for run in (yielding(), yielding(None), yielding("")):
        engine = await start(run)
        task = await engine.send()
        assert task.state is State.COMPLETED
        assert task.artifacts == ()


# Other values


@dataclasses.dataclass
class Point:
    x: int
    y: float


class City(msgspec.Struct):
    name: str
    at: Point


class Trip(pydantic.BaseModel):
    city: str
    days: int


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [1.0, None]}, {"b": 1, "a": [1.0, None]}),
        ([], []),
        ([1, "two"], [1, "two"]),
        ((1, 2), [1, 2]),
        (Point(1, 2.0), {"x": 1, "y": 2.0}),
        (City("Porto", Point(1, 2.0)), {"name": "Porto", "at": {"x": 1, "y": 2.0}}),
        (Trip(city="Porto", days=2), {"city": "Porto", "days": 2}),
        ([Trip(city="Porto", days=2)], [{"city": "Porto", "days": 2}]),
        ({1: Point(1, 2.0)}, {"1": {"x": 1, "y": 2.0}}),
    ],
)
async def test_structured_values_become_a_data_part(start: Any, value: Any, data: Any) -> None:
    engine = await start(yielding(value))
    task = await engine.send()
    assert [part.kind for part in task.parts] == ["data"]
    assert msgspec.json.encode(task.data) == msgspec.json.encode(data)  # 1.0 is not 1, and the keys keep their order


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (1.0, "1.0"), (True, "true"), (-2.5, "-2.5")])
async def test_numbers_are_text_that_every_client_shows_and_ours_gives_back(start: Any, value: Any, text: str) -> None:
    engine = await start(yielding(value))
    task = await engine.send()
    assert task.parts == (Part(text=text, media_type="application/json"),)
    assert task.value == value
    assert type(task.value) is type(value)


async def test_bytes_and_files_become_file_parts(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"from disk")
    values = [b"raw", File(b"named", name="a.png"), File(path), File(url="https://example.org/x.pdf")]
    engine = await start(yielding(*values))
    task = await engine.send()
    assert task.files == [
        Part(raw=b"raw", media_type="application/octet-stream"),
        Part(raw=b"named", filename="a.png", media_type="image/png"),
        Part(raw=b"from disk", filename="notes.txt", media_type="text/plain"),
        Part(url="https://example.org/x.pdf", media_type="application/pdf"),
    ]


async def test_a_part_is_sent_as_given_and_a_list_of_parts_is_one_artifact(start: Any) -> None:
    part = Part(text="<b>", media_type="text/html", metadata={"k": 1})
    engine = await start(yielding([part, File(b"x", name="x.bin")]))
    task = await engine.send()
    assert len(task.artifacts) == 1
    assert task.parts[0] == part
    assert task.parts[1].raw == b"x"


async def test_every_value_that_is_not_text_is_an_artifact_of_its_own_and_travels_once(start: Any) -> None:
    engine = await start(yielding({"n": 1}, {"n": 2}, b"x"))
    task = await engine.send()
    assert [artifact.artifact_id for artifact in task.artifacts] == ["test-result", "test-result-2", "test-result-3"]
    assert {artifact.name for artifact in task.artifacts} == {"test-result"}
    journaled = [event for event in await engine.journal(task) if isinstance(event, ArtifactUpdate)]
    assert [(event.append, event.last_chunk) for event in journaled] == [(False, True)] * 3


@pytest.mark.parametrize(
    "values",
    [
        [{"n": 1}, "text"],
        ["text", {"n": 1}],
        [{"n": 1}, "te", "xt"],
        ["te", {"n": 1}, "xt"],
        [7, "te", "xt"],
        [b"x", "text", {"n": 1}],
    ],
)
async def test_text_and_other_values_never_overwrite_each_other(start: Any, values: list[Any]) -> None:
    engine = await start(yielding(*values))
    task = await engine.send()
    plain = [part for part in task.parts if part.kind == "text" and part.media_type is None]
    assert "".join(part.text for part in plain) == "text"
    others = [value for value in values if not isinstance(value, str)]
    kept = [part for part in task.parts if part not in plain]
    assert [part.text or part.raw or part.data for part in kept] == ["7" if value == 7 else value for value in others]


async def test_what_has_no_json_form_fails_the_task_and_leaves_the_journal_whole(start: Any, caplog: Any) -> None:
    engine = await start(yielding("text", object()))
    task = await engine.send()
    assert task.state is State.FAILED
    assert task.text == "text"
    assert "a object has no JSON form" in caplog.text
    assert await engine.states(task) == [State.SUBMITTED, State.WORKING, State.FAILED]


@pytest.mark.parametrize("value", ["\ud800", Part(text="\udcff"), Part(data={"x": object()}), {"x": "\ud800"}])
async def test_what_cannot_be_written_as_json_fails_the_task_and_nothing_else(start: Any, value: Any) -> None:
    engine = await start(yielding("before", value, "after"))
    task = await engine.send()
    assert task.state is State.FAILED
    assert task.text == "before"


# Replace


async def test_replace_supersedes_the_chunks(start: Any) -> None:
    engine = await start(yielding("dra", "ft", Replace("final")))
    task = await engine.send()
    assert task.text == "final"
    # "ft" was still held when it was superseded: nobody needs to see it.
    assert artifact_updates(await engine.journal(task)) == [("dra", False, False), ("final", False, True)]


async def test_text_after_a_replacement_goes_on_from_it(start: Any) -> None:
    for values in (["draft", Replace("a"), "b"], [Replace("a"), "b"]):
        engine = await start(yielding(*values))
        task = await engine.send()
        assert task.text == "ab"
        assert len(task.artifacts) == 1


async def test_a_replacement_that_is_not_text_is_never_repeated_or_lost(start: Any) -> None:
    for values in (["draft", Replace({"n": 1})], [Replace({"n": 1})], [Replace({"n": 1}), "and text"]):
        engine = await start(yielding(*values))
        task = await engine.send()
        assert task.data == {"n": 1}
        sent = [event for event in await engine.journal(task) if isinstance(event, ArtifactUpdate)]
        assert sum(part.kind == "data" for event in sent for part in event.artifact.parts) == 1


# Reply


async def test_a_reply_may_hold_any_value(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Reply({"n": 1})

    engine = await start(run)
    assert (await engine.send()).data == {"n": 1}


async def test_a_reply_after_other_output_is_the_agents_mistake(start: Any, caplog: Any) -> None:
    for values in (["text", Reply("hi")], [{"n": 1}, Reply("hi")]):
        engine = await start(yielding(*values))
        with pytest.raises(InvalidAgentResponse, match="a Reply must be the only output") as caught:
            await engine.send()
        task = await engine.get(caught.value.metadata["taskId"])
        assert (task.state, task.error) == (State.FAILED, "a Reply must be the only output")
        assert task.artifacts
        assert "a Reply must be the only output" in caplog.text
        caplog.clear()


async def test_an_agent_that_may_reply_and_does_not_makes_an_ordinary_task(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.text == "reply":
            yield Reply("hi")
        elif ctx.text == "artifact":
            await ctx.artifact("beside")
        elif ctx.text == "once":
            await ctx.once("key", int)
        elif ctx.text == "progress":
            await ctx.progress("half")
        elif ctx.text == "fail":
            raise ValueError
        elif ctx.text == "ask":
            yield Ask("?")
        else:
            yield "text"

    engine = await start(Agent("test", run=run, replies=True))
    working = [State.SUBMITTED, State.WORKING]
    for text in ("text", "artifact", "once", "nothing"):
        task = await engine.send(text)
        assert await engine.states(task) == [*working, State.COMPLETED], text
    assert await engine.states(await engine.send("progress")) == [*working, State.COMPLETED]
    assert await engine.states(await engine.send("fail")) == [*working, State.FAILED]
    assert await engine.states(await engine.send("ask")) == [*working, State.INPUT_REQUIRED]


async def test_nothing_an_agent_says_after_its_reply_makes_a_task(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        try:
            yield Reply("hi")
        finally:
            await ctx.progress("late")
            await ctx.artifact("late")
            assert await ctx.once("late", lambda: 1) == 1

    engine = await start(Agent("test", run=run, replies=True))
    assert isinstance(await engine.send(), Message)
    await engine.idle()
    assert (await engine.list()).tasks == ()


# Beside the answer


async def test_artifacts_beside_the_answer_keep_their_place_names_and_metadata(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "one "
        await ctx.artifact({"side": 1}, b"x", name="extra", metadata={"k": 1})
        await ctx.artifact("note", id="mine")
        yield "two"

    engine = await start(run)
    task = await engine.send()
    text, extra, mine = task.artifacts
    assert text.text == "one two"
    assert (extra.name, extra.metadata, [part.kind for part in extra.parts]) == ("extra", {"k": 1}, ["data", "raw"])
    assert (mine.artifact_id, mine.name, mine.text) == ("mine", None, "note")
    order = [event.artifact.text for event in await engine.journal(task) if isinstance(event, ArtifactUpdate)]
    assert order == ["one ", "", "note", "two"]


async def test_progress_is_a_working_status_with_a_measure_and_stays_in_the_history_with_a_mark(start: Any) -> None:
    conversations: list[list[str]] = []

    async def run(ctx: Any) -> Any:
        await ctx.progress("half", done=1, total=2)
        await ctx.progress("more")
        conversations.append([message.text for message in ctx.history])
        if ctx.resume is None:
            yield Ask("sure?")
            return
        yield "done"

    engine = await start(run)
    task = await engine.send()
    # A caller who polls sees what there was, in its place in the conversation.
    assert [message.text for message in task.history] == ["go", "half", "more"]
    task = await engine.send("yes", task=task)
    assert [message.text for message in task.history] == ["go", "half", "more", "sure?", "yes", "half", "more"]
    marks = [(message.metadata or {}).get(PROGRESS_KEY) for message in task.history]
    assert marks == [None, {"done": 1, "total": 2}, True, None, None, {"done": 1, "total": 2}, True]
    assert [message.text for message in (await engine.get(task, history_length=2)).history] == ["half", "more"]
    # What the agent reads as its conversation has none of it.
    assert conversations == [["go"], ["go", "sure?", "yes"]]


async def test_a_caller_who_polls_sees_the_last_fifty_progress_messages(start: Any, turns: Any) -> None:
    gate = asyncio.Event()

    async def run(ctx: Any) -> Any:
        for number in range(120):
            await ctx.progress(f"step {number}")
        await gate.wait()
        yield "done"

    engine = await start(run)
    task = await engine.send(wait=False)
    await turns()
    working = await engine.get(task)
    assert working.status.message is not None
    assert working.status.message.text == "step 119"
    assert [message.text for message in working.history] == ["go", *(f"step {number}" for number in range(69, 119))]
    gate.set()
    ended = await engine.until_state(task, State.COMPLETED)
    assert [message.text for message in ended.history] == ["go", *(f"step {number}" for number in range(70, 120))]
    assert ended.text == "done"


async def test_a_side_artifact_that_cannot_be_written_is_an_error_where_it_was_sent(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        with pytest.raises(TypeError):
            await ctx.artifact(object())
        with pytest.raises(TypeError):
            await ctx.artifact("x", metadata={"x": object()})
        yield "fine"

    engine = await start(run)
    task = await engine.send()
    assert task.state is State.COMPLETED
    assert [artifact.text for artifact in task.artifacts] == ["fine"]


# The question


async def test_a_pause_shows_the_question_with_its_details_and_ends_the_run(start: Any) -> None:
    later = []

    async def run(ctx: Any) -> Any:
        yield "so far "
        yield Ask("how many?", details=({"min": 1}, Part(url="https://example.org/help")))
        later.append("never")

    engine = await start(run)
    task = await engine.send()
    assert task.state is State.INPUT_REQUIRED
    assert task.question == "how many?"
    assert [part.kind for part in task.status.message.parts] == ["text", "data", "url"]
    assert task.text == "so far "
    await engine.idle()
    assert later == []
    assert engine.left() == {}


async def test_a_reference_that_is_not_json_fails_the_task(start: Any) -> None:
    engine = await start(yielding(Ask("?", ref=object())))
    assert (await engine.send()).state is State.FAILED


async def test_a_text_of_a_frameworks_own_kind_is_a_text(start: Any) -> None:
    class FrameworkText(str):
        pass

    engine = await start(yielding(FrameworkText("Hel"), FrameworkText("lo")))
    task = await engine.send("go")
    assert [artifact.text for artifact in task.artifacts] == ["Hello"]
    engine = await start(yielding(Replace(FrameworkText("Hello"))))
    assert [artifact.text for artifact in (await engine.send("go")).artifacts] == ["Hello"]


async def test_the_marks_of_an_agent_are_on_its_task_its_statuses_and_its_notes(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        await ctx.progress("looking", done=1)
        yield "found"

    agent = Agent("marked", Backend(run, output_metadata=OutputMetadata({"their/key": True}, {"thought": True})))
    engine = await start(agent)
    task = await engine.send("go")
    events = await engine.journal(task)
    assert task.metadata == {"their/key": True}
    statuses = [event for event in events if isinstance(event, StatusUpdate)]
    assert [event.metadata for event in statuses] == [
        {"their/key": True},
        {"their/key": True, "done": 1},
        {"their/key": True},
    ]
    note = statuses[1].status.message
    assert note is not None and note.parts[0].metadata == {"thought": True}
