"""A model that says what a test has written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field

from dragoman import Agent, Client
from dragoman.agents.adk.run import AdkRuns

Step = LlmResponse | asyncio.Event | Exception
Turn = Sequence[Step]


class Scripted(BaseLlm):
    """Every call of the model is the next turn. An event is waited for, an exception raised."""

    model: str = "scripted"
    turns: list[Any]
    requests: list[Any] = Field(default_factory=list[Any])

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        for step in self.turns.pop(0):
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            elif stream or not step.partial:
                yield step


def parts(*given: types.Part | str, piece: bool = False, **options: Any) -> LlmResponse:
    """A response with these parts; a piece of one is followed by more."""
    made = [types.Part(text=part) if isinstance(part, str) else part for part in given]
    return LlmResponse(content=types.Content(role="model", parts=made), partial=piece, **options)


def says(*pieces: str) -> list[Step]:
    """A turn that streams a text and then tells it whole, as models do."""
    return [*(parts(piece, piece=True) for piece in pieces), parts("".join(pieces))]


def call(name: str, **args: Any) -> types.Part:
    """A part that calls a tool."""
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


def thought(text: str) -> types.Part:
    """A part that the model only thinks."""
    return types.Part(text=text, thought=True)


def llm(*turns: Turn, name: str = "helper", tools: Sequence[Callable[..., Any] | Any] = (), **options: Any) -> LlmAgent:
    """An agent whose model says these turns."""
    return LlmAgent(name=name, model=Scripted(turns=[list(turn) for turn in turns]), tools=list(tools), **options)


def served(agent: object, **options: Any) -> Agent:
    """An ADK agent as an agent of ours."""
    runs = AdkRuns(agent, **options)
    return Agent(runs.name, run=partial(runs.run))


class Says(BaseAgent):
    """An agent of its own kind: it has no model, and yields what it was given."""

    events: list[Any]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            place = {"author": self.name, "invocation_id": ctx.invocation_id, "branch": event.branch or ctx.branch}
            yield event.model_copy(update={**place, "id": Event.new_id()})


def event(text: str = "", **options: Any) -> Event:
    """An event that says a text, or is only what the options say."""
    content = types.Content(role="model", parts=[types.Part(text=text)]) if text else None
    return Event(author="agent", content=content, **options)


async def streamed(agent: Agent, text: str = "hi") -> tuple[list[Any], Any]:
    """All that a stream tells, and the task in the end."""
    async with Client(agent) as client:
        stream = client.stream(text)
        events = [each async for each in stream]
        return events, stream.task
