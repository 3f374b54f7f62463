"""A streamed answer arrives once, whole, in google-adk's own client, whatever its version and whatever the agent is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from interop.adk_conversations import drive, pieces_of, streams, texts, thoughts
from interop.field import ADKS, Peer

from dragoman import Agent, Context
from dragoman.outputs import Ask
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PIECES = ["The sum ", "of it ", "is five."]
WHOLE = "".join(PIECES)
PROGRAM = "import time\nfor piece in {pieces!r}:\n    print(piece, end='', flush=True)\n    time.sleep(0.05)\n"


async def _talk(ctx: Context) -> AsyncIterator[Any]:
    """Answer in pieces; `ask` pauses after the first one, `one` has only one, `late` ends long after its last."""
    if ctx.first_message.text == "one":
        yield WHOLE
        return
    for number, piece in enumerate(PIECES):
        if ctx.first_message.text == "ask" and (number == 0) is (ctx.resume is not None):
            continue
        yield piece
        await asyncio.sleep(0)
        if ctx.first_message.text == "ask" and ctx.resume is None:
            yield Ask("And?")
            return
    if ctx.first_message.text == "late":
        await ctx.progress("nearly")
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with ExitStack() as running:
        urls = {"agent": running.enter_context(served(Agent("talk", run=_talk)))}
        urls["front"] = running.enter_context(served(Agent.from_a2a(urls["agent"], name="front")))
        command = [sys.executable, "-c", PROGRAM.format(pieces=PIECES)]
        urls["program"] = running.enter_context(served(Agent.from_command(command, name="program")))
        yield urls


@pytest.mark.parametrize("adk", ADKS, ids=str)
@pytest.mark.parametrize("kind", ["agent", "front", "program"])
def test_the_client_of_adk_keeps_a_streamed_answer_once_and_whole(
    addresses: dict[str, str], adk: Peer, kind: str
) -> None:
    words = ["stream"] if kind == "program" else ["stream", "one", "late"]
    talks: dict[str, Any] = {word: [{"text": word}] for word in words}
    if kind != "program":
        talks["ask"] = [{"text": "ask"}, {"text": "on"}]
    received = drive(adk, addresses[kind], talks)
    for word in words:
        assert texts(received[word]["turns"][0]) == [WHOLE], word
        assert texts(received[word]["kept"]) == [WHOLE], word
        has_thought = word == "late" and streams(adk)
        assert thoughts(received[word]["kept"]) == ["nearly"] * has_thought, word
    if streams(adk):
        assert pieces_of(received["stream"]["turns"][0]) == PIECES
    if kind != "program":
        assert texts(received["ask"]["turns"][-1]) == [WHOLE]
        assert thoughts(received["ask"]["kept"]) == []
