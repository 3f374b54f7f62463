"""What a remote agent does, as events of ADK: told once, whole, and no more than that."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events import Event
from google.genai import types
from support.stub_server import AgentStub, event, head, result
from unit.agents.adk import remote_talk as talks

from dragoman import Artifact, Context, Failed, File, Part, Rejected
from dragoman.adk import RemoteAgent
from dragoman.agents.adk.parts import from_genai
from dragoman.agents.adk.remote.events import RemoteEvents, file_name, join_texts, new_parts
from dragoman.model.event import ArtifactUpdate
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.outputs import Replace, Reply

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, text_of, texts_of = talks.Talk, talks.text_of, talks.texts_of

Run = Callable[[Context], AsyncGenerator[Any, None]]
BOTH = pytest.mark.parametrize("streaming", [False, True])


def written(*chunks: tuple[str, bool, bool], artifact_id: str = "a") -> Run:
    """An agent that writes an artifact in pieces: text, append, last chunk."""

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        for text, append, last in chunks:
            artifact = Artifact(artifact_id, (Part(text=text),))
            await ctx.update_artifact(artifact, append=append, last_chunk=last)
        return
        yield

    return run


def check_one_answer(events: list[Event], kept: list[Event], text: str) -> None:
    """The answer is there once, whole, in one event that stays; nothing is empty, nothing comes twice."""
    assert texts_of(events) == texts_of(kept) == [text]
    assert all(event.content is not None and event.content.parts for event in events)
    assert [event.is_final_response() for event in kept] == [True]
    assert [event.turn_complete for event in events if event.turn_complete] == [True]


# -- chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([("The sum ", False, False), ("is five.", True, False)], id="never says which chunk is the last"),
        pytest.param([("The sum ", False, False), ("is five.", True, True)], id="the last piece is the last chunk"),
        pytest.param([("The sum ", False, True), ("is five.", True, True)], id="every chunk is the last"),
        pytest.param(
            [("The sum ", False, False), ("is five.", True, False), ("", True, True)], id="an empty last chunk"
        ),
        pytest.param(
            [("The sum ", False, False), ("is five.", True, False), ("The sum is five.", False, True)],
            id="closed with the whole text",
        ),
        pytest.param([("The", False, False), ("The sum is five.", False, False)], id="written anew with what it had"),
    ],
)
async def test_a_streamed_answer_arrives_once_and_whole(talk_with: Any, chunks: Any) -> None:
    talk = talk_with(written(*chunks))
    events = await talk.say("2 + 3?")
    check_one_answer(events, await talk.kept(), "The sum is five.")
    assert "".join(texts_of(events, partial=True)) == "The sum is five."


async def test_chunks_come_as_they_are_written_and_have_the_id_of_what_becomes_of_them(talk_with: Any) -> None:
    events = await talk_with(written(("one ", False, False), ("two ", True, False), ("three", True, True))).say("count")
    assert texts_of(events, partial=True) == ["one ", "two ", "three"]
    assert len({event.id for event in events}) == 1


async def test_an_answer_that_comes_at_once_has_no_chunks(talk_with: Any) -> None:
    events = await talk_with(written(("All of it.", False, True))).say("go")
    assert texts_of(events, partial=True) == []
    assert texts_of(events) == ["All of it."]


async def test_an_answer_that_is_replaced_is_kept_as_it_is_in_the_end(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "A guess. "
        yield "Another."
        yield Replace("The truth.")

    talk = talk_with(run)
    check_one_answer(await talk.say("go"), await talk.kept(), "The truth.")


@BOTH
async def test_each_artifact_is_one_event_and_only_the_last_completes_the_turn(talk_with: Any, streaming: bool) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        for name in ("one", "two", "three"):
            for append in (False, True):
                piece = Artifact(name, (Part(text=f"{name} "),))
                await ctx.update_artifact(piece, append=append, last_chunk=append and name != "two")
        return
        yield

    talk = talk_with(run, streaming=streaming)
    events = await talk.say("go")
    assert sorted(texts_of(events)) == ["one one ", "three three ", "two two "]
    assert texts_of(await talk.kept()) == texts_of(events)
    kept = [event for event in events if not event.partial]
    assert [event.turn_complete for event in kept] == [None, None, True]


def says_it_while_it_works(got: Any) -> bytes:
    """As Microsoft Agent Framework answers by default: messages of a working task, then a bare end."""

    def status(state: str, text: str = "") -> dict[str, Any]:
        message = {"messageId": f"m-{text}", "role": "ROLE_AGENT", "parts": [{"text": text}]} if text else None
        return {"state": f"TASK_STATE_{state}"} | ({"message": message} if message else {})

    asked = {"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    spoken = [status("WORKING", text)["message"] for text in ("One.", "Two.")]
    task = {"id": "t", "contextId": "c", "status": status("COMPLETED"), "history": [asked, *spoken]}
    if "Stream" not in got.json["method"]:
        return result(got, task)
    ids = {"taskId": "t", "contextId": "c"}
    statuses = [status("WORKING", "One."), status("WORKING", "Two."), status("COMPLETED")]
    updates = [{"statusUpdate": {**ids, "status": each}} for each in statuses]
    begun = {"task": {"id": "t", "contextId": "c", "status": status("SUBMITTED"), "history": [asked]}}
    events = b"".join(event(got, each) for each in (begun, *updates))
    return head(200, "text/event-stream", Connection="close") + events


@BOTH
async def test_an_answer_only_in_messages_of_a_working_task_is_an_event(streaming: bool) -> None:
    async with AgentStub(says_it_while_it_works) as stub:
        agent = RemoteAgent(name="far", url=stub.url)
        talk = Talk(agent, streaming=streaming)
        events = await talk.say("go")
        assert texts_of(events)[-1:] == texts_of(await talk.kept())[-1:] == ["One.\n\nTwo."]
        await agent.close()


@BOTH
async def test_an_answer_without_a_task_is_an_event(talk_with: Any, streaming: bool) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield Reply("Just words.")

    talk = talk_with(run, streaming=streaming)
    check_one_answer(await talk.say("go"), await talk.kept(), "Just words.")


@BOTH
async def test_an_agent_that_has_nothing_to_say_ends_the_turn_with_one_event(talk_with: Any, streaming: bool) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        return
        yield

    (event,) = await talk_with(run, streaming=streaming).say("go")
    assert event.turn_complete and event.content is None and event.error_code is None


async def test_notes_on_the_way_are_thoughts_that_do_not_stay(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        await ctx.progress("looking it up")
        yield "Found."

    talk = talk_with(run)
    note, *_ = events = await talk.say("go")
    assert note.partial and note.content.parts == [types.Part(text="looking it up", thought=True)]
    check_one_answer(events, await talk.kept(), "Found.")


# -- what is not text ------------------------------------------------------------------------------------------------


@BOTH
async def test_files_and_data_arrive_and_files_are_saved_as_artifacts(talk_with: Any, streaming: bool) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield {"total": 2}
        yield File(b"\x89PNG", name="../user:plot.png", media_type="image/png")

    talk = talk_with(run, streaming=streaming)
    data, file = await talk.say("go")
    assert from_genai(data.content.parts[0]).data == {"total": 2}
    assert isinstance(from_genai(data.content.parts[0]).data["total"], int)
    assert file.content.parts[0].inline_data.data == b"\x89PNG"
    assert file.actions.artifact_delta == {"user_plot.png": 0}
    session = await talk.session()
    saved = await talk.runner.artifact_service.load_artifact(
        app_name=session.app_name, user_id=session.user_id, session_id=session.id, filename="user_plot.png"
    )
    assert (saved.inline_data.data, saved.inline_data.mime_type) == (b"\x89PNG", "image/png")


async def test_a_file_that_cannot_be_saved_does_not_cost_the_answer(talk_with: Any, caplog: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield File(b"x", name="plot.png")

    class Full(InMemoryArtifactService):
        async def save_artifact(self, **_: Any) -> int:
            raise OSError("disk full")

    talk = talk_with(run)
    talk.runner.artifact_service = Full()
    (event,) = await talk.say("go")
    assert event.content.parts[0].inline_data.data == b"x"
    assert "plot.png" in caplog.text


async def test_thoughts_of_a_remote_agent_stay_thoughts(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        parts = (Part(text="Hm.", metadata={"adk_thought": True}), Part(text="Yes."))
        await ctx.update_artifact(Artifact("a", parts))
        return
        yield

    (event,) = await talk_with(run).say("go")
    assert [(part.text, bool(part.thought)) for part in event.content.parts] == [("Hm.", True), ("Yes.", False)]


# -- failure ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("error", "message"),
    [(Failed("No such city"), "No such city"), (Rejected("Not for you"), "Not for you"), (Failed(""), None)],
)
async def test_a_task_that_fails_is_an_error_and_no_text(
    talk_with: Any, streaming: bool, error: Exception, message: str | None
) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        yield "So far. "
        raise error

    talk = talk_with(run, streaming=streaming)
    events = await talk.say("go")
    last = events[-1]
    assert (last.error_code, last.error_message) == ("remote_agent_error", message or "remote agent failed")
    assert last.content is None
    assert texts_of(await talk.kept()) == ["So far. ", ""]


@BOTH
async def test_after_a_failure_the_conversation_goes_on(talk_with: Any, streaming: bool) -> None:
    contexts: list[str] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        contexts.append(ctx.context_id)
        if len(contexts) == 1:
            raise Failed("Once")
        yield "Fine."

    talk = talk_with(run, streaming=streaming)
    await talk.say("one")
    assert texts_of(await talk.say("two")) == ["Fine."]
    assert len(set(contexts)) == 1


# -- how much stays --------------------------------------------------------------------------------------------------


async def test_a_session_stays_small_however_many_events_there_were(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        for number in range(200):
            yield f"{number:03} {'x' * 105} "

    talk = talk_with(run)
    events = await talk.say("go")
    assert len(events) > 200
    session = await talk.session()
    assert len(text_of(session.events[-1])) == 200 * 110
    assert len(session.model_dump_json()) < 30_000
    assert set(session.events[-1].custom_metadata) == {"a2a:task_id", "a2a:context_id", "a2a:state"}


async def test_a_session_of_many_results_stays_as_small(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        for number in range(100):
            await ctx.artifact(f"{number:03} {'x' * 216}", id=f"a{number}")
        return
        yield

    talk = talk_with(run)
    assert len(await talk.say("go")) == 100
    assert len((await talk.session()).model_dump_json(exclude_none=True)) < 100_000


async def test_the_cost_of_an_artifact_does_not_grow_with_those_before_it() -> None:
    looks = 0

    class Looked:
        """An event of a stream that counts who has the whole task put together."""

        def __init__(self, number: int) -> None:
            self.raw = ArtifactUpdate("t", "c", Artifact(f"a{number}", (Part(data=number),)), last_chunk=True)
            self.state, self.text, self.replaces = State.WORKING, "", False

        @property
        def task(self) -> Task:
            nonlocal looks
            looks += 1
            return Task("t", "c", TaskStatus(State.WORKING))

    ctx: Any = SimpleNamespace(invocation_id="i", branch=None, artifact_service=None, session=None)
    telling = RemoteEvents(ctx, "far")
    taken: list[Event] = []
    for number in range(50):
        event: Any = Looked(number)
        taken += await telling.take(event)
    assert [from_genai(event.content.parts[0]).data for event in taken] == list(range(49))
    assert {event.custom_metadata["a2a:context_id"] for event in taken} == {"c"}
    assert looks <= 1


async def test_an_artifact_continued_after_its_event_is_reported_as_far_as_it_is_new(talk_with: Any) -> None:
    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        for key, text, append in (("a", "one ", False), ("b", "B", False), ("a", "two", True), ("c", "C", False)):
            await ctx.update_artifact(Artifact(key, (Part(text=text),)), append=append, last_chunk=True)
        return
        yield

    assert texts_of(await talk_with(run).say("go")) == ["one ", "B", "two", "C"]


# -- parts -----------------------------------------------------------------------------------------------------------


def test_the_new_parts_of_an_artifact() -> None:
    one, two = Part(text="one"), Part(text="two")
    data = Part(data=1)
    assert join_texts((one, Part(text=""), two, data, one)) == (Part(text="onetwo"), data, one)
    assert join_texts((Part(text=""),)) == ()
    assert new_parts((), (one, data)) == (one, data)
    assert new_parts((one,), (Part(text="onetwo"), data)) == (two, data)
    assert new_parts((one, data), (one, data, two)) == (two,)
    assert new_parts((one, data), (one, data)) == ()
    # What says something else is new altogether.
    assert new_parts((one,), (two,)) == (two,)
    assert new_parts((one, data), (one,)) == (one,)


def test_a_file_keeps_to_the_files_of_its_session() -> None:
    assert file_name(Part(raw=b"", filename="a/b/plan.pdf"), "x") == "plan.pdf"
    assert file_name(Part(raw=b"", filename="user:plan.pdf"), "x") == "user_plan.pdf"
    assert file_name(Part(raw=b""), "the artifact") == "the artifact"
    assert file_name(Part(raw=b"", filename="..\\.."), "x") == "file"
