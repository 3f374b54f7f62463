"""How the last events of a streamed text look to the client that asked, in every dialect."""

from __future__ import annotations

from typing import Any

import pytest

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


@pytest.mark.parametrize("metadata", [{"is_user_input": True}, {"adk_type": "text"}])
def test_the_client_of_adk_gets_the_whole_text_at_the_end(speaker: Any, metadata: dict[str, Any]) -> None:
    with speaker.stream(message=parts(speaker, metadata)) as reading:
        assert updates(speaker, reading) == WHOLE


@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
def test_so_does_who_asks_for_the_extension_of_adk(speaker: Any, name: str) -> None:
    with speaker.stream(message=parts(speaker, None), headers={name: f"urn:other, {EXTENSION}"}) as reading:
        assert updates(speaker, reading) == WHOLE
        # It is not on the card of this agent, so it is not said to be active.
        assert EXTENSION not in str(reading.headers)


def test_whoever_reads_a_task_later_reads_the_same_and_the_text_once(speaker: Any) -> None:
    for metadata, form in ((None, LAST), ({"is_user_input": True}, WHOLE)):
        with speaker.stream(message=parts(speaker, metadata)) as reading:
            first = speaker.event(reading.next())
            task = first.get("task", first)["id"]
            list(reading)
        with speaker.subscribe(task, after=0) as reading:
            assert updates(speaker, reading) == form
        assert speaker.texts(speaker.get(task)) == ["1 2 "]
