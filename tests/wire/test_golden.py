"""One conversation in every dialect over every transport, byte for byte as in `golden/`.

Ids and times are replaced by names, so that the files stay the same and read like a conversation. After a change that
is meant, `DRAGOMAN_UPDATE_GOLDEN=1 python -m pytest tests/wire/test_golden.py` writes them anew: read the difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing import served

SPEAKERS = (
    *("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "1.1-grpc"),
    *("0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc"),
)
GOLDEN = Path(__file__).parent / "golden"
# Taken out at once: the settings refuse a name they do not know.
UPDATE = os.environ.pop("DRAGOMAN_UPDATE_GOLDEN", "") == "1"

KINDS = {"id": "task", "taskId": "task", "contextId": "context", "sessionId": "context", "messageId": "message"}
_ID = re.compile(r'"(id|taskId|contextId|sessionId|messageId)":"([^"]+)"')
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def normalized(text: str, *, all_messages: bool = False) -> str:
    """The text with ids and times replaced by names, in the order they appear.

    Only ids made by the server are replaced; with `all_messages`, also those a caller gave its messages.
    """
    names: dict[str, str] = {}
    for key, value in _ID.findall(text):
        if _UUID.fullmatch(value) or (all_messages and key == "messageId"):
            kind = KINDS[key]
            number = sum(name.startswith(f"<{kind}-") for name in names.values()) + 1
            names.setdefault(value, f"<{kind}-{number}>")
    for value, name in names.items():
        text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", name, text)
    return _TIME.sub("<time>", text)


def exchange(asked: str, answer: Any, text: str) -> str:
    """One request and its answer as they stand in a golden file."""
    status = answer.headers.get("grpc-status") or f"{answer.status} {answer.headers['content-type']}"
    return f"> {asked}\n< {status}\n{text}\n"


def conversation(speaker: Any) -> Iterator[str]:
    """A question, its answer, and what is left of them."""
    number = {} if speaker.version == "0.1" else {"messageId": "m2"}
    asked = speaker.send("Greet me", tool="ask_name")
    yield exchange(asked.asked, asked, asked.text)
    task = speaker.id_of(asked)
    with speaker.stream("Ada", task=task, message=number) as reading:
        yield exchange(reading.asked, reading, "".join(reading.response.iter_text()).rstrip("\n"))
    got = speaker.get(task)
    yield exchange(got.asked, got, got.text)
    if speaker.is_modern:
        listed = speaker.list(pageSize=10)
        yield exchange(listed.asked, listed, listed.text)
    canceled = speaker.cancel(task)
    yield exchange(canceled.asked, canceled, canceled.text)


def compare(name: str, text: str) -> None:
    """Compare with a golden file, or write it."""
    path = GOLDEN / name
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text.encode() == path.read_bytes()


@pytest.fixture
def alone(speaker: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """The speaker, with a server that nobody else talks to and that stays silent between events."""
    with served(new_agent(), heartbeat=600) as url:
        yield speaker.wire.at(url).speaker(speaker.name)


def test_a_conversation_is_spelled_as_it_always_was(alone: Any) -> None:
    compare(f"{alone.name}.txt", normalized("\n".join(conversation(alone))))


def test_a_task_of_every_dialect_is_the_same_in_1_0(alone: Any) -> None:
    asked = alone.send("Greet me", tool="ask_name")
    alone.send("Ada", task=asked, message={} if alone.version == "0.1" else {"messageId": "m2"})
    read = alone.wire.speaker("1.0-rpc").get(alone.id_of(asked))
    compare("task-read-in-1.0.txt", normalized(read.text, all_messages=True) + "\n")
    assert alone.wire.rest("GET", f"/tasks/{alone.id_of(asked)}").json == read.result


def test_there_is_a_golden_file_for_every_speaker_and_no_other() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.txt" for name in [*SPEAKERS, "task-read-in-1.0"]}


@pytest.mark.parametrize("version", ["1.0", "1.1", "0.3"])
def test_a_conversation_over_grpc_says_what_it_says_over_rest(version: str) -> None:
    """Both are the JSON of the same protobuf messages, in which an empty value is as good as none."""
    assert answers_in(GOLDEN / f"{version}-grpc.txt") == answers_in(GOLDEN / f"{version}-rest.txt")


def answers_in(path: Path) -> list[Any]:
    """What was answered in a golden file: the JSON of results and events, and the ids of these."""
    lines = path.read_text(encoding="utf-8").splitlines()
    answers = [line.removeprefix("data: ") for line in lines if line.startswith(("{", "data: {", "id: "))]
    # A request ends with its JSON too, if it has any.
    asked = {line for before, line in pairwise(lines) if before[:1].isalpha() or before[:1] == ">"}
    return [
        plain(json.loads(each)) if each.startswith("{") else each
        for each in answers
        if each.startswith("id: ") or each not in asked
    ]


def plain(value: Any) -> Any:
    """The value without members that are empty, with numbers for those in quotes, and of an error what 1.0 says."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    members = {"error": value["error"]} if "error" in value else value
    filled = {key: plain(each) for key, each in members.items() if each not in ("", 0, [], False)}
    return {key: int(each) if key == "generation" else each for key, each in filled.items()}
