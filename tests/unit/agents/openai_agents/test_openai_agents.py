"""An agent of the OpenAI Agents SDK answers, remembers, asks, is canceled and fails as an A2A agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from pydantic import BaseModel

from dragoman import Agent, Client, Part, State
from dragoman.agents.openai_agents import OpenAiRuns
from dragoman.errors import ConfigError


def _served(agent: sdk.Agent[Any], **options: Any) -> Agent:
    return Agent("teller", run=partial(OpenAiRuns(agent, **options).run))


@pytest.fixture
def echo(made: Any, scripted: Any) -> sdk.Agent[Any]:
    """Says everything that the user has said so far."""

    async def speak(items: list[Any]) -> AsyncIterator[str]:
        yield json.dumps(scripted.user_texts(items))

    return made(speak)


# -- text --------------------------------------------------------------------------------------------------------------


async def test_the_parts_of_a_message_reach_the_model(start: Any, made: Any) -> None:
    seen: list[Any] = []

    async def speak(items: list[Any]) -> AsyncIterator[str]:
        seen.extend(items[0]["content"])
        yield "ok"

    parts = (
        Part(data={"n": 1}),
        Part(raw=b"a,b", media_type="text/csv", filename="t.csv"),
        Part(raw=b"\x89PNG", media_type="image/png"),
        Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
        Part(url="https://example.com/a.jpg", media_type="image/jpeg"),
        Part(url="https://example.com/a.pdf"),
    )
    assert (await (await start(_served(made(speak)))).send("look", parts=parts)).text == "ok"
    assert seen == [
        {"type": "input_text", "text": "look"},
        {"type": "input_text", "text": '{"n":1}'},
        {"type": "input_text", "text": "t.csv:\na,b"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"},
        {"type": "input_image", "image_url": "https://example.com/a.jpg", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
    ]


# -- output ------------------------------------------------------------------------------------------------------------


class Trip(BaseModel):
    city: str
    days: int


async def test_structured_output_is_data_and_its_text_is_not_streamed(made: Any) -> None:
    async def speak(items: list[Any]) -> AsyncIterator[str]:
        yield '{"city": "Porto",'
        yield ' "days": 3}'

    async with Client(_served(made(speak, output_type=Trip))) as client:
        stream = client.stream("plan")
        assert [event.text async for event in stream if event.text] == []
        assert (stream.task.state, stream.task.data) == (State.COMPLETED, {"city": "Porto", "days": 3})
        assert len(stream.task.artifacts) == 1


async def test_the_result_of_a_tool_may_be_the_answer(start: Any, made: Any) -> None:
    @sdk.function_tool
    async def weather() -> str:
        return "sunny"

    async def speak(items: list[Any]) -> AsyncIterator[Any]:
        yield "Let me look."
        yield ("weather", {}, "c1")

    agent = made(speak, tools=[weather], tool_use_behavior="stop_on_first_tool")
    assert (await (await start(_served(agent))).send("how is it?")).text == "Let me look.\n\nsunny"


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["canceled", "failed"])
async def test_a_session_is_closed_however_the_task_ends(start: Any, made: Any, tmp_path: Path, ends: str) -> None:
    begun = asyncio.Event()
    opened: list[sdk.SQLiteSession] = []

    def session(id: str) -> sdk.SQLiteSession:
        opened.append(sdk.SQLiteSession(id, tmp_path / "sessions.db"))
        return opened[-1]

    async def speak(items: list[Any]) -> AsyncIterator[str]:
        begun.set()
        if ends == "failed":
            raise RuntimeError
        await asyncio.Event().wait()
        yield ""

    engine = await start(_served(made(speak), session=session))
    task = await engine.send("go", wait=False)
    await begun.wait()
    if ends == "canceled":
        await engine.cancel(task)
    await engine.idle()
    with pytest.raises(RuntimeError, match="closed"):
        await opened[0].get_items()


async def test_sessions_that_would_forget_are_refused(start: Any, echo: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="give it a file"):
        OpenAiRuns(echo, session=sdk.SQLiteSession)
    task = await (await start(_served(echo, session=lambda name: sdk.SQLiteSession(name)))).send("go")
    assert task.state is State.FAILED
    assert "give it a file" in caplog.text


@pytest.mark.parametrize("nested", [False, True])
async def test_a_conversation_is_remembered_over_a_handoff(start: Any, made: Any, nested: bool) -> None:
    seen: list[str] = []

    async def triage(items: list[Any]) -> AsyncIterator[Any]:
        seen.append(json.dumps(items))
        yield ("transfer_to_teller", {}, f"h{len(items)}")

    async def expert(items: list[Any]) -> AsyncIterator[str]:
        yield "I know that."

    first = made(triage, handoffs=[made(expert)])
    first.name = "Triage"
    engine = await start(_served(first, run_config=sdk.RunConfig(nest_handoff_history=nested)))
    for word in ("apples", "pears", "plums"):
        assert (await engine.send(word, context="c")).text == "I know that."
    assert all(seen[-1].count(word) == 1 for word in ("apples", "pears", "plums"))


async def test_the_oldest_turns_are_forgotten(start: Any, echo: Any) -> None:
    engine = await start(_served(echo, memory=1000))
    for number in range(10):
        task = await engine.send(f"message {number}", context="c")
    texts = json.loads(task.text)
    assert 1 < len(texts) < 10
    assert texts[-1] == "message 9"


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_too_many_turns_fail_in_plain_words(start: Any, made: Any) -> None:
    @sdk.function_tool
    async def again() -> str:
        return ""

    async def speak(items: list[Any]) -> AsyncIterator[Any]:
        yield ("again", {}, f"c{len(items)}")

    task = await (await start(_served(made(speak, tools=[again]), max_turns=3))).send("go")
    assert (task.state, task.status.message.text) == (State.FAILED, "the agent stopped: it took too many turns")


@pytest.mark.parametrize("side", ["input", "output"])
async def test_a_guardrail_rejects_in_plain_words(start: Any, made: Any, side: str) -> None:
    async def speak(items: list[Any]) -> AsyncIterator[str]:
        yield "fine"

    async def refuse(*args: Any) -> sdk.GuardrailFunctionOutput:
        return sdk.GuardrailFunctionOutput(output_info="secret rule", tripwire_triggered=True)

    rails: dict[str, Any] = {
        "input": {"input_guardrails": [sdk.InputGuardrail(refuse)]},
        "output": {"output_guardrails": [sdk.OutputGuardrail(refuse)]},
    }
    task = await (await start(_served(made(speak, **rails[side])))).send("go")
    assert (task.state, task.status.message.text) == (State.REJECTED, "a guardrail of the agent refused this")


@pytest.mark.parametrize("where", ["agent", "run"])
@pytest.mark.parametrize("good", [True, False], ids=["let pass", "refused"])
async def test_text_for_output_guardrails_is_not_streamed(made: Any, where: str, good: bool) -> None:
    async def speak(items: list[Any]) -> AsyncIterator[str]:
        yield "the secret "
        yield "is 1234"

    async def check(*args: Any) -> sdk.GuardrailFunctionOutput:
        return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=not good)

    rails: dict[str, Any] = {"output_guardrails": [sdk.OutputGuardrail(check)]}
    config = sdk.RunConfig(**rails) if where == "run" else None
    agent = made(speak, **(rails if where == "agent" else {}))
    async with Client(_served(agent, run_config=config)) as client:
        stream = client.stream("go")
        texts = [event.text async for event in stream if event.text]
        assert texts == (["the secret is 1234"] if good else [])
        assert [artifact.text for artifact in stream.task.artifacts] == texts
        assert stream.task.state is (State.COMPLETED if good else State.REJECTED)


async def test_a_guardrail_that_refuses_the_message_late_leaves_no_text(start: Any, made: Any, turns: Any) -> None:
    spoken = asyncio.Event()

    async def speak(items: list[Any]) -> AsyncIterator[str]:
        yield "the secret "
        spoken.set()
        await turns()
        yield "is 1234"

    async def refuse(*args: Any) -> sdk.GuardrailFunctionOutput:
        await spoken.wait()
        return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    task = await (await start(_served(made(speak, input_guardrails=[sdk.InputGuardrail(refuse)])))).send("go")
    assert task.state is State.REJECTED
    assert "".join(artifact.text for artifact in task.artifacts) == ""


# -- the card ----------------------------------------------------------------------------------------------------------


def test_the_agent_and_its_tools_are_skills(bank: Any) -> None:
    agent = bank([])
    agent.handoff_description = "Pays what you owe."
    runs = OpenAiRuns(agent)
    assert (runs.name, runs.description) == ("Teller", "Pays what you owe.")
    assert [(offer.id, offer.name, offer.default) for offer in runs.offers()] == [
        ("teller", "Teller", True),
        ("teller-pay", "Pay", False),
    ]
