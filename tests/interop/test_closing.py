"""A streamed answer arrives once, whole, in google-adk's own client, whatever its version and whatever the agent is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.outputs import Ask
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 55
PIECES = ["The sum ", "of it ", "is five."]
WHOLE = "".join(PIECES)
STREAMING = ("adk-2-5", "adk")  # the first line does not stream
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


def converse(environment: str, url: str, conversations: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Have the client of that environment play conversations; what it made of each."""
    python = ROOT / ".peers" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the environment {environment} is not installed: make interop")
    done = subprocess.run(
        [python, Path(__file__).parent / "peers" / "adk_client.py", url],
        input=json.dumps(conversations),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "OTEL_SDK_DISABLED": "true"},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {each["name"]: each for each in found}


def texts(events: list[dict[str, Any]]) -> list[str]:
    """The texts of events that are not partial; those of the agent."""
    parts = [
        event.get("content", {}).get("parts") or []
        for event in events
        if not event.get("partial") and event["author"] != "user"
    ]
    found = ["".join(part.get("text", "") for part in each if not part.get("thought")) for each in parts]
    return [text for text in found if text]


def pieces(turn: list[dict[str, Any]]) -> str:
    """What was shown before the answer was whole."""
    found = [part for event in turn if event.get("partial") for part in event.get("content", {}).get("parts") or []]
    return "|".join(part["text"] for part in found if part.get("text"))


def thoughts(events: list[dict[str, Any]]) -> list[str]:
    """What the agent is said to have thought: older versions take the user's words and its questions for that."""
    found = [part for event in events for part in event.get("content", {}).get("parts") or []]
    return [part["text"] for part in found if part.get("thought")]


@pytest.mark.parametrize("environment", ["adk-1-31", "adk-1", "adk-2-5", "adk"])
@pytest.mark.parametrize("kind", ["agent", "front", "program"])
def test_the_client_of_adk_keeps_a_streamed_answer_once_and_whole(
    addresses: dict[str, str], environment: str, kind: str
) -> None:
    words = ["stream"] if kind == "program" else ["stream", "one", "late"]
    talks: dict[str, Any] = {word: [{"text": word}] for word in words}
    if kind != "program":
        talks["ask"] = [{"text": "ask"}, {"text": "on"}]
    received = converse(environment, addresses[kind], talks)
    for word in words:
        assert texts(received[word]["turns"][0]) == [WHOLE], word
        assert texts(received[word]["kept"]) == [WHOLE], word
        has_thought = word == "late" and environment in STREAMING
        assert thoughts(received[word]["kept"]) == ["nearly"] * has_thought, word
    if environment in STREAMING:
        assert pieces(received["stream"]["turns"][0]) == "|".join(PIECES)
    if kind != "program":
        assert texts(received["ask"]["turns"][-1]) == [WHOLE]
        assert thoughts(received["ask"]["kept"]) == []
