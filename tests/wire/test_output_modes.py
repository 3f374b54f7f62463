"""Callers who read only text: what agents give as data reaches them as JSON text, whichever way they read it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Context
from dragoman.outputs import Ask, Reply
from dragoman.testing import served

VALUE = {"sum": 3, "of": ["a", {"b": None}], "exact": 0.1}
TEXT = '{"sum":3,"of":["a",{"b":null}],"exact":0.1}'


def modes(speaker: Any, *wanted: str) -> dict[str, Any]:
    """The options of a message that asks for these."""
    if speaker.version == "0.1":
        return {"acceptedOutputModes": list(wanted)}
    # REST 0.3 takes a configuration that does not say so for one that does not wait.
    waits = {} if speaker.is_modern else {"blocking": True}
    return {"configuration": {"acceptedOutputModes": list(wanted), **waits}}


def is_data(part: Any) -> bool:
    return "data" in part


def artifact_parts(holder: Any) -> list[Any]:
    holder = holder.get("task", holder)
    return [part for artifact in holder.get("artifacts", ()) for part in artifact["parts"]]


def updates(speaker: Any, events: Any) -> list[Any]:
    """The parts of all artifacts that events carry."""
    found: list[Any] = []
    for event in events:
        carried = speaker.event(event)
        for wrapper in ("artifactUpdate", "task"):
            carried = carried.get(wrapper, carried)
        found += carried["artifact"]["parts"] if "artifact" in carried else artifact_parts(carried)
    return found


@pytest.mark.parametrize("wanted", [["text/plain"], ["text"], ["text/*"], ["Text/Plain; charset=utf-8", "text/html"]])
def test_data_is_json_text_for_who_asks_for_text_alone(speaker: Any, wanted: list[str]) -> None:
    answer = speaker.send(tool="same", arguments={"value": VALUE}, **modes(speaker, *wanted))
    (part,) = artifact_parts(answer.result)
    assert part["text"] == TEXT
    assert not is_data(part)


def test_all_ways_to_read_it_agree(speaker: Any) -> None:
    with speaker.stream(tool="same", arguments={"value": VALUE}, **modes(speaker, "text")) as reading:
        first = reading.next()
        task = speaker.event(first)
        streamed = updates(speaker, [first, *reading])
    read = artifact_parts(speaker.get(task["id"] if "id" in task else speaker.id_of(task)).result)
    assert [part["text"] for part in streamed] == [part["text"] for part in read] == [TEXT]


@pytest.mark.parametrize("wanted", [[], ["text/plain", "application/json"], ["*/*"], ["text/plain", "*"]])
def test_data_stays_data_for_everybody_else(speaker: Any, wanted: list[str]) -> None:
    answer = speaker.send(tool="same", arguments={"value": VALUE}, **modes(speaker, *wanted))
    (part,) = artifact_parts(answer.result)
    assert is_data(part)


def test_the_setting_is_for_all_callers(speaker: Any, wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(), data_as_text=True, drain=0) as url:
        speaker = wire.at(url).speaker(speaker.name)
        (part,) = artifact_parts(speaker.send(tool="same", arguments={"value": VALUE}).result)
    assert part["text"] == TEXT


def odd() -> Agent:
    agent = Agent("odd")

    @agent.skill
    def reply() -> Reply:
        return Reply(VALUE)

    @agent.skill
    async def artifacts(ctx: Context) -> str:
        await ctx.artifact(VALUE, name="own")
        return await ctx.ask("More?")

    return agent


@pytest.mark.parametrize("speaker", ["1.0-rpc"], indirect=True)
def test_a_bare_message_and_an_artifact_of_the_context_are_text_too(speaker: Any, wire: Any) -> None:
    with served(odd()) as url:
        speaker = wire.at(url).speaker(speaker.name)
        message = speaker.send(tool="reply", **modes(speaker, "text/plain")).result["message"]
        task = speaker.send(tool="artifacts", **modes(speaker, "text/plain"))
    assert [part["text"] for part in message["parts"]] == [TEXT]
    assert [part["text"] for part in artifact_parts(task.result)] == [TEXT]


@pytest.mark.parametrize("speaker", ["1.0-rpc"], indirect=True)
def test_the_details_of_a_question_are_text_too_and_so_is_what_comes_after_it(
    speaker: Any, wire: Any, tmp_path: Path
) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        if ctx.resume is None:
            yield Ask("Which?", details=(VALUE,))
        else:
            yield VALUE

    store = f"sqlite:///{tmp_path / 'modes.db'}"
    with served(Agent("asks", run=run), store=store) as url:
        asking = wire.at(url).speaker(speaker.name)
        task = asking.task(asking.send("hi", **modes(asking, "text/plain")))
    # Another process, and an answer that says nothing about modes.
    with served(Agent("asks", run=run), store=store) as url:
        answering = wire.at(url).speaker(speaker.name)
        ended = answering.send("this", task=task).result
    assert [part["text"] for part in task["status"]["message"]["parts"]] == ["Which?", TEXT]
    assert [part["text"] for part in artifact_parts(ended)] == [TEXT]


async def test_our_own_client_reads_the_value_back() -> None:
    agent = Agent("plain")

    @agent.skill
    def value() -> dict[str, Any]:
        return VALUE

    with served(agent, data_as_text=True) as url:
        async with Client(url) as client:
            assert await client.call("value") == VALUE
