"""Callers who read only text: what agents give as data reaches them as JSON text, whichever way they read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dragoman import Agent, Client, Context
from dragoman.outputs import Ask, Reply
from dragoman.testing import served

VALUE = {"sum": 3, "of": ["a", {"b": None}], "exact": 0.1}
TEXT = '{"sum":3,"of":["a",{"b":null}],"exact":0.1}'


ONLY_TEXT = {"acceptedOutputModes": ["text/plain"]}


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


def test_a_bare_message_and_an_artifact_of_the_context_are_text_too(wire: Any) -> None:
    with served(odd()) as url:
        speaker = wire.at(url).speaker("1.0-rpc")
        message = speaker.send(tool="reply", configuration=ONLY_TEXT).result["message"]
        task = speaker.send(tool="artifacts", configuration=ONLY_TEXT)
    assert [part["text"] for part in message["parts"]] == [TEXT]
    assert speaker.texts(task) == [TEXT]


def test_the_details_of_a_question_are_text_too_and_so_is_what_comes_after_it(wire: Any, tmp_path: Path) -> None:
    async def run(ctx: Context) -> AsyncIterator[Any]:
        if ctx.resume is None:
            yield Ask("Which?", details=(VALUE,))
        else:
            yield VALUE

    store = f"sqlite:///{tmp_path / 'modes.db'}"
    with served(Agent("asks", run=run), store=store) as url:
        asking = wire.at(url).speaker("1.0-rpc")
        task = asking.task(asking.send("hi", configuration=ONLY_TEXT))
    # Another process, and an answer that says nothing about modes.
    with served(Agent("asks", run=run), store=store) as url:
        answering = wire.at(url).speaker("1.0-rpc")
        ended = answering.send("this", task=task)
    assert [part["text"] for part in task["status"]["message"]["parts"]] == ["Which?", TEXT]
    assert answering.texts(ended) == [TEXT]


async def test_our_own_client_reads_the_value_back() -> None:
    agent = Agent("plain")

    @agent.skill
    def value() -> dict[str, Any]:
        return VALUE

    with served(agent, data_as_text=True) as url:
        async with Client(url) as client:
            assert await client.call("value") == VALUE
