"""The agent of `make run`: it talks, asks back, reports progress and returns a file, and has two typed skills."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dragoman import Client, Task
from dragoman.examples import demo


@pytest_asyncio.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(demo, "PAUSE", 0)
    async with Client(demo.agent) as client:
        yield client


async def sent(client: Client, text: str, task: Task | None = None) -> Task:
    answer = await client.send(text, task=task)
    assert isinstance(answer, Task)
    return answer


@pytest.mark.asyncio
async def test_a_greeting_is_answered_with_what_to_try_word_by_word(client: Client) -> None:
    pieces = [event.text async for event in client.stream("hello") if event.text]
    assert len(pieces) > 1
    assert "".join(pieces).startswith("Hello! You said: hello\n")
    assert "a trip to Lisbon" in "".join(pieces)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "text", ["a trip to Lisbon", "Plan a weekend in Lisbon!", "I want to visit friends in Lisbon."]
)
async def test_a_trip_is_asked_about_planned_and_returned_as_a_file(client: Client, text: str) -> None:
    task = await sent(client, text)
    assert task.question == "How many days?"
    task = await sent(client, "many", task)
    assert task.question  # no number: asked again
    task = await sent(client, "2", task)
    assert task.text.startswith("- **Day 1**: the old town")
    files = [part for part in task.parts if part.raw is not None]
    assert [file.filename for file in files] == ["lisbon.md"]
    assert (files[0].raw or b"").decode().startswith("# 2 days in Lisbon\n\n- **Day 1**: ")


@pytest.mark.asyncio
async def test_the_progress_has_numbers(client: Client) -> None:
    stream = client.stream(tool="plan_trip", arguments={"city": "Porto", "days": 3})
    reports = [event.progress async for event in stream if event.progress is not None]
    assert [(report.done, report.total) for report in reports] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("amount", "unit", "answer"),
    [
        (26.2, "miles", "26.2 miles = 42.16 km"),
        (1, "kg", "1 kg = 2.205 pounds"),
        (100, "celsius", "100 celsius = 212 fahrenheit"),
    ],
)
async def test_the_typed_skill_converts(client: Client, amount: float, unit: str, answer: str) -> None:
    assert await client.call("convert", amount=amount, unit=unit) == answer
