"""How a streamed text ends: decided once, for each task, by how the caller who creates it reads it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent, Client, Context, Part
from dragoman.agents.functions import run as functions
from dragoman.engine.call import CallContext, Closing
from dragoman.engine.settings import EngineSettings
from dragoman.errors import ConfigError
from dragoman.model.event import ArtifactUpdate
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task
from dragoman.outputs import Ask

from .conftest import artifact_updates

ADDS_UP, TAKES_THE_LAST = CallContext(), CallContext(closing="whole")
Update = tuple[str, bool, bool]
LAST: list[Update] = [("one ", False, False), ("two", True, True)]
WHOLE: list[Update] = [("", False, False), ("one ", True, False), ("two", True, False), ("one two", False, True)]


async def two_pieces(ctx: Any) -> Any:
    yield "one "
    yield "two"


async def asks_between_two_pieces(ctx: Any) -> Any:
    if ctx.resume is None:
        yield "one "
        yield Ask("?")
    else:
        yield "two"


async def updates(engine: Any, task: Any) -> list[Update]:
    return artifact_updates(await engine.journal(task))


# Who decides


async def test_the_caller_who_creates_a_task_decides(start: Any) -> None:
    engine = await start(two_pieces)
    assert await updates(engine, await engine.send(call=ADDS_UP)) == LAST
    assert await updates(engine, await engine.send(call=TAKES_THE_LAST)) == WHOLE


@pytest.mark.parametrize("creates", [ADDS_UP, TAKES_THE_LAST])
@pytest.mark.parametrize("answers", [ADDS_UP, TAKES_THE_LAST])
async def test_answering_a_task_keeps_the_form_it_was_created_with(
    start: Any, creates: CallContext, answers: CallContext
) -> None:
    engine = await start(asks_between_two_pieces)
    task = await engine.send(call=creates)
    ended = await engine.send("on", task=task, call=answers)
    assert [artifact.text for artifact in ended.artifacts] == ["one two"]
    assert await updates(engine, task) == (WHOLE if creates is TAKES_THE_LAST else LAST)


@pytest.mark.parametrize("setting", ["auto", "last", "whole"])
@pytest.mark.parametrize("creates", [ADDS_UP, TAKES_THE_LAST])
async def test_an_answering_caller_gets_the_earlier_text_in_the_last_update_or_in_the_task(
    start: Any, setting: Any, creates: CallContext
) -> None:
    engine = await start(asks_between_two_pieces, settings=EngineSettings(drain=0, closing=setting))
    task = await engine.send(call=creates)
    first, *rest = [record.event for record in await engine.stream("on", task=task, call=TAKES_THE_LAST)]
    assert isinstance(first, Task)
    [end] = [event for event in rest if isinstance(event, ArtifactUpdate) and event.last_chunk]
    repeats = setting == "whole" or (setting == "auto" and creates is TAKES_THE_LAST)
    assert (first.text, end.artifact.text) == (("", "one two") if repeats else ("one ", "two"))


@pytest.mark.parametrize("creates", [ADDS_UP, TAKES_THE_LAST])
async def test_a_restart_and_a_callback_inherit_the_decision(start: Any, disk: Any, turns: Any, creates: Any) -> None:
    agent, hangs = Agent("test"), [True]

    @agent.skill(restart=True)
    async def work(ctx: Context) -> Any:
        yield "one "
        if hangs:
            await asyncio.Event().wait()
        await ctx.ask_auth("?", url=link)
        yield "two"

    before = await start(agent, store=disk)
    task = await before.send(call=creates, wait=False)
    await turns()
    left = disk.crash()
    hangs.clear()
    after = await start(agent, store=left)
    await after.service.resume(handle_of(await after.until_state(task, State.AUTH_REQUIRED)), {})
    ended = await after.until_state(task, State.COMPLETED)
    assert ended.parts == (Part(text="one two"),)
    end = [("two", True, False), ("one two", False, True)] if creates is TAKES_THE_LAST else [("two", True, True)]
    assert (await updates(after, task))[-len(end) :] == end


@pytest.mark.parametrize("call", [ADDS_UP, TAKES_THE_LAST])
async def test_an_agent_can_force_it_and_the_settings_can_force_every_agent(start: Any, call: CallContext) -> None:
    forms: dict[Any, list[Update]] = {"last": LAST, "whole": WHOLE}
    for agents in ("last", "whole"):
        agent = Agent("test", run=two_pieces, closing=agents)
        engine = await start(agent)
        assert await updates(engine, await engine.send(call=call)) == forms[agents]
        for setting in ("last", "whole"):
            engine = await start(agent, settings=EngineSettings(drain=0, closing=setting))
            assert await updates(engine, await engine.send(call=call)) == forms[setting]


def test_a_form_that_is_none_is_refused() -> None:
    half: Any = "half"
    with pytest.raises(ConfigError, match="""closing is "auto", "whole" or "last", not 'half'"""):
        Agent("test", run=two_pieces, closing=half)


async def test_a_text_in_one_piece_is_sent_once_either_way(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "all of it"

    engine = await start(run)
    for call in (ADDS_UP, TAKES_THE_LAST):
        assert await updates(engine, await engine.send(call=call)) == [("all of it", False, True)]


# Artifacts that come from elsewhere, as those of a remote agent

FORMS: dict[str, list[Update]] = {
    "by its last chunk": LAST,
    "by an empty chunk": [("one ", False, False), ("two", True, False), ("", True, True)],
    "by the whole": [("one ", False, False), ("two", True, False), ("one two", False, True)],
    "by a whole that is longer": [("one ", False, False), ("one two", False, True)],
    "by nothing": [("one ", False, False), ("two", True, False)],
    "by the whole in parts": [("one ", False, False), ("two", True, False), ("one |two", False, True)],
    "with ever more of it": [("one ", False, False), ("one t", False, False), ("one two", False, False)],
    "by the whole twice": [("one ", False, False), ("one two", False, True), ("one two", False, True)],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("closing", ["last", "whole"])
async def test_a_text_from_elsewhere_ends_as_our_caller_reads_it(start: Any, form: str, closing: Closing) -> None:
    async def run(ctx: Any) -> Any:
        for text, append, last in FORMS[form]:
            artifact = Artifact("a", tuple(Part(text=piece) for piece in text.split("|")))
            await ctx.update_artifact(artifact, append=append, last_chunk=last)
        if False:
            yield

    engine = await start(run)
    task = await engine.send(call=CallContext(closing=closing))
    assert (task.text, len(task.artifacts)) == ("one two", 1)
    sent = await updates(engine, task)
    assert [last for _, _, last in sent] == [*[False] * (len(sent) - 1), True]
    if closing == "last":  # who adds up has it once
        assert "".join(text for text, _, _ in sent) == "one two"
    else:  # so have those who take the last chunk for all of it, and those who take what does not append for the answer
        assert sent[-1] == ("one two", False, True)
        assert [text for text, append, _ in sent if text and not append] == ["one two"]


@pytest.mark.parametrize("closing", ["last", "whole"])
async def test_what_is_no_streamed_text_is_sent_as_given(start: Any, closing: Closing) -> None:
    data, text = Part(data={"a": 1}), Part(text="t")
    given = [
        ArtifactUpdate("", "", Artifact("one", (text,), "n"), last_chunk=True),
        ArtifactUpdate("", "", Artifact("two", (data,)), last_chunk=False),
        ArtifactUpdate("", "", Artifact("two", (data, text)), append=True, last_chunk=True),
        ArtifactUpdate("", "", Artifact("one", (Part(text="t2"),), "another name"), last_chunk=True),
        ArtifactUpdate("", "", Artifact("one", (Part(text="other"),), "another name"), last_chunk=True),
        ArtifactUpdate("", "", Artifact("html", (Part(text="<p>", media_type="text/html"),)), last_chunk=False),
        ArtifactUpdate("", "", Artifact("html", (Part(text="</p>", media_type="text/html"),)), True, True, {"k": 1}),
    ]

    async def run(ctx: Any) -> Any:
        for each in given:
            await ctx.update_artifact(
                each.artifact, append=each.append, last_chunk=each.last_chunk, metadata=each.metadata
            )
        if False:
            yield

    engine = await start(run)
    task = await engine.send(call=CallContext(closing=closing))
    sent = [event for event in await engine.journal(task) if isinstance(event, ArtifactUpdate)]
    assert [(event.artifact, event.append, event.last_chunk, event.metadata) for event in sent] == [
        (event.artifact, event.append, event.last_chunk, event.metadata) for event in given
    ]


@pytest.mark.parametrize("closing", ["last", "whole"])
async def test_a_chunk_costs_the_same_however_long_the_text_before_it(
    start: Any, closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[str] = []
    copy = Folding.artifact

    def artifact(folding: Folding, artifact_id: str) -> Artifact | None:
        copies.append(artifact_id)
        return copy(folding, artifact_id)

    monkeypatch.setattr(Folding, "artifact", artifact)

    async def run(ctx: Any) -> Any:
        for number in range(100):
            await ctx.update_artifact(Artifact("a", (Part(text="x"),)), append=number > 0, last_chunk=False)
        if False:
            yield

    engine = await start(run)
    task = await engine.send(call=CallContext(closing=closing))
    assert task.text == "x" * 100
    assert len(copies) < 5


@pytest.mark.parametrize("touches", [False, True])
@pytest.mark.parametrize("closing", ["last", "whole"])
async def test_a_text_left_open_at_a_question_is_closed_at_the_end(start: Any, closing: Closing, touches: bool) -> None:
    async def run(ctx: Any) -> Any:
        if ctx.resume is None:
            await ctx.update_artifact(Artifact("done", (Part(text="1"),)), last_chunk=False)
            await ctx.update_artifact(Artifact("done", (Part(text="2"),)), append=True)
            await ctx.update_artifact(Artifact("open", (Part(text="one "),)), last_chunk=False)
        elif touches and len(ctx.answers) == 2:
            await ctx.update_artifact(Artifact("open", (Part(text="two"),)), append=True, last_chunk=True)
        if len(ctx.answers) < 2:
            yield Ask("?")

    engine = await start(run)
    task = await engine.send(call=CallContext(closing=closing))
    await engine.send("on", task=task)
    before = len(await updates(engine, task))
    ended = await engine.send("on", task=task)
    added = "two" if touches else ""
    assert [artifact.text for artifact in ended.artifacts] == ["12", f"one {added}"]
    if closing == "last":
        expected = [(added, True, True)]
    else:
        expected = [*([(added, True, False)] if touches else []), (f"one {added}", False, True)]
    assert (await updates(engine, task))[before:] == expected


# Generators in threads: their end is known only after a change of threads


async def _chunks(agent: Agent) -> list[Update]:
    async with Client(agent) as client:
        events = [event.raw async for event in client.stream("go")]
    return artifact_updates(events)


async def test_the_last_chunk_of_a_plain_generator_closes_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine takes long to change threads; here it may.
    monkeypatch.setattr(functions, "_HOLD_SECONDS", 60.0)
    agent = Agent("plain")

    @agent.skill
    def pieces() -> Iterator[str]:
        """Say two words."""
        yield "one "
        yield "two"

    assert await _chunks(agent) == LAST


async def test_a_plain_generator_that_goes_on_later_keeps_no_chunk_to_itself() -> None:
    agent, seen = Agent("plain"), threading.Event()

    @agent.skill
    def pieces() -> Iterator[str]:
        """Say one word, and go on when somebody has read it."""
        yield "one "
        assert seen.wait(10)

    async with Client(agent) as client:
        async for event in client.stream("go"):
            if event.text:
                seen.set()
    assert seen.is_set()
