"""google-adk's own client, driven in an environment of its own, and how the events that it reports are read."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from interop.field import Peer

SECONDS = 55

Event = dict[str, Any]
Conversations = dict[str, list[dict[str, Any]]]


def drive(adk: Peer, url: str, conversations: Conversations) -> dict[str, dict[str, Any]]:
    """Have the client of one version play conversations; what it reports of each."""
    if adk.missing:
        pytest.skip(adk.missing)
    done = subprocess.run(
        [*adk.client, url],
        input=json.dumps(conversations),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "OTEL_SDK_DISABLED": "true"},
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {each["name"]: each for each in reports}


def streams(adk: Peer) -> bool:
    """Whether this version streams: the first line does not."""
    return not adk.version.startswith("1.")


def parts(event: Event) -> list[dict[str, Any]]:
    """The parts of an event."""
    return event.get("content", {}).get("parts") or []


def text(event: Event) -> str:
    """What an event says, without thoughts."""
    return "".join(part.get("text", "") for part in parts(event) if not part.get("thought"))


def texts(events: list[Event]) -> list[str]:
    """The whole answers of the agent."""
    answers = [event for event in events if not event.get("partial") and event["author"] != "user"]
    return [text(event) for event in answers if text(event)]


def pieces_of(turn: list[Event]) -> list[str]:
    """The pieces of a streamed answer.

    The first one is empty, and left out: older versions take the update that opens the text for an answer.
    """
    return [text(event) for event in turn if event.get("partial") and text(event)]


def thoughts(events: list[Event]) -> list[str]:
    """What the agent has thought: older versions take the user's words and its questions for that."""
    return [part["text"] for event in events for part in parts(event) if part.get("text") and part.get("thought")]
