"""How the last events of a streamed text look to the client that asked, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Part, State, Task
from dragoman.model.event import ArtifactUpdate
from dragoman.outputs import Ask
from dragoman.testing import served

EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"
LAST = [("1 ", False, False), ("2 ", True, True)]
WHOLE = [("", False, False), ("1 ", True, False), ("2 ", True, False), ("1 2 ", False, True)]


def parts(speaker: Any, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """The members of a message that calls a skill and whose first part has that metadata."""
    call = speaker.part({"tool": "count", "arguments": {"n": 2}})
    first = {**speaker.part("go"), **({} if metadata is None else {"metadata": metadata})}
    return {"content" if speaker.name == "0.3-rest" else "parts": [first, call]}


def updates(speaker: Any, reading: Any) -> list[tuple[str, bool, bool]]:
    """Text, append and lastChunk of every artifact event."""
    found: list[tuple[str, bool, bool]] = []
    for event in reading:
        update = speaker.event(event)
        update = update.get("artifactUpdate", update)
        if "artifact" in update:
            artifact = update["artifact"]
            flags = artifact if speaker.version == "0.1" else update
            texts = "".join(part.get("text", "") for part in artifact["parts"])
            found.append((texts, flags.get("append", False), flags.get("lastChunk", False)))
    return found


def test_most_callers_get_each_piece_once(speaker: Any) -> None:
    with speaker.stream(message=parts(speaker, {"theirs": True})) as reading:
        assert updates(speaker, reading) == LAST


@pytest.mark.parametrize("speaker", ["0.3-rest", "1.0-rest"], indirect=True)
def test_the_library_of_javascript_gets_the_whole_text_in_0_3_where_it_loses_append(wire: Any, speaker: Any) -> None:
    path = "/v1/message:stream" if speaker.name == "0.3-rest" else "/message:stream"
    message = {"messageId": "m", "role": "ROLE_USER", **parts(speaker, None)}
    with wire.reading("POST", path, json={"message": message}, headers={"User-Agent": "node"}) as reading:
        assert updates(speaker, reading) == (WHOLE if speaker.name == "0.3-rest" else LAST)


@pytest.mark.parametrize("metadata", [{"is_user_input": True}, {"adk_type": "text"}])
def test_the_client_of_adk_gets_the_whole_text_at_the_end(speaker: Any, metadata: dict[str, Any]) -> None:
    with speaker.stream(message=parts(speaker, metadata)) as reading:
        assert updates(speaker, reading) == WHOLE


def test_a_later_reader_gets_the_same_events_and_the_text_once(speaker: Any) -> None:
    for metadata, form in ((None, LAST), ({"is_user_input": True}, WHOLE)):
        with speaker.stream(message=parts(speaker, metadata)) as reading:
            first = speaker.event(reading.next())
            task = first.get("task", first)["id"]
            list(reading)
        with speaker.subscribe(task, after=0) as reading:
            assert updates(speaker, reading) == form
        assert speaker.texts(speaker.get(task)) == ["1 2 "]


def test_a_task_that_the_client_of_adk_streams_says_how_to_read_it(speaker: Any) -> None:
    # A stream of 0.1 begins with a status. ADK never spoke 0.1.
    for metadata, is_marked in ((None, False), ({"is_user_input": True}, speaker.version != "0.1")):
        with speaker.stream(message=parts(speaker, metadata)) as reading:
            first = speaker.event(reading.next())
            task = first.get("task", first)
            assert (EXTENSION in task.get("metadata", {})) is is_marked
            list(reading)
        # Up to google-adk 2.5 the reason of a failed task that is not streamed would be lost.
        assert EXTENSION not in str(speaker.send(message=parts(speaker, metadata)).result)


async def test_the_client_of_adk_gets_no_text_twice_after_a_question() -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        if ctx.resume is None:
            await ctx.progress("begun")
            yield "The sum "
            yield Ask("Of what?")
        else:
            yield f"of {ctx.message.text}"
            await asyncio.sleep(0)
            yield " is 5."

    def user_part(text: str) -> Part:
        return Part(text=text, metadata={"is_user_input": True})

    with served(Agent("talk", run=run)) as url:
        async with Client(url) as client:
            asking = client.stream(files=[user_part("add")])
            progress = [
                event.raw.status.message
                async for event in asking
                if event.kind == "status" and event.state is State.WORKING
            ]
            assert [part.metadata for message in progress if message for part in message.parts] == [
                {"adk_thought": True}
            ]
            answer = client.stream(files=[user_part("2 and 3")], task=asking.task)
            first, *_, last, _ = [event.raw async for event in answer]
            assert isinstance(first, Task)
            assert [artifact.text for artifact in first.artifacts] == [""]
            assert isinstance(last, ArtifactUpdate)
            assert (last.artifact.text, last.append) == ("The sum of 2 and 3 is 5.", False)
            # Another reader gets all of it.
            assert (await client.get_task(asking.task)).text == "The sum of 2 and 3 is 5."
