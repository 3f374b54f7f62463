"""A user who talks with an ADK agent, for the tests of remote agents."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai import types
from unit.agents.adk.scripted import Says, event, llm, parts

from dragoman import Agent, Context
from dragoman.outputs import Ask

APP, USER = "talks", "someone"


class Talk:
    """One session with an agent, or a node. Each `say` gives the events of a turn."""

    def __init__(self, agent: Any, *, streaming: bool = False) -> None:
        agent_like = {"agent": agent} if isinstance(agent, BaseAgent) else {"node": agent}
        self.runner = InMemoryRunner(app_name=APP, **agent_like)
        self.streaming = streaming
        self._session_id = ""

    async def session(self) -> Any:
        sessions = self.runner.session_service
        if not self._session_id:
            self._session_id = (await sessions.create_session(app_name=APP, user_id=USER)).id
        return await sessions.get_session(app_name=APP, user_id=USER, session_id=self._session_id)

    async def say(self, *contents: str | types.Part, **options: Any) -> list[Event]:
        async with aclosing(self.turn(*contents, **options)) as events:
            return [event async for event in events]

    async def turn(self, *contents: str | types.Part, **options: Any) -> AsyncGenerator[Event, None]:
        """One turn; with `config`, another run config than the mode's, or none."""
        await self.session()
        parts = [types.Part(text=each) if isinstance(each, str) else each for each in contents]
        mode = StreamingMode.SSE if self.streaming else StreamingMode.NONE
        events = self.runner.run_async(
            user_id=USER,
            session_id=self._session_id,
            new_message=types.Content(role="user", parts=parts),
            run_config=options.get("config", RunConfig(streaming_mode=mode)),
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def kept(self) -> list[Event]:
        """The events of the session, without what the user said."""
        return [event for event in (await self.session()).events if event.author != "user"]


def says(name: str, text: str) -> Says:
    """A local agent that says one thing."""
    return Says(name=name, events=[event(text)])


def top(*steps: str | list[types.Part], **options: Any) -> Any:
    """A local agent whose model does these things one after the other: says a text, or makes calls."""
    turns = ([parts(*([step] if isinstance(step, str) else step))] for step in steps)
    return llm(*turns, name="top", **options)


class Parrot(Agent):
    """A remote agent that repeats each message, and remembers it with its context."""

    def __init__(self, name: str = "parrot") -> None:
        super().__init__(name, description="Repeats each message", run=self._repeat)
        self.received: list[str] = []
        self.contexts: list[str] = []

    async def _repeat(self, ctx: Context) -> AsyncGenerator[Any, None]:
        self.received.append(ctx.text)
        self.contexts.append(ctx.context_id)
        yield f"echo {ctx.text}"


class Working(Agent):
    """A remote agent that says some words and then works until it is canceled. It may run in another thread."""

    def __init__(self, *words: str) -> None:
        super().__init__("worker", run=self._work)
        self._words = words
        self._begun, self._canceled = threading.Event(), threading.Event()

    async def _work(self, ctx: Context) -> AsyncGenerator[Any, None]:
        for word in self._words:
            yield word
        self._begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._canceled.set()
            raise

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._begun.wait, 10)

    async def canceled(self) -> None:
        assert await asyncio.to_thread(self._canceled.wait, 10)


async def asks_who(ctx: Context) -> AsyncGenerator[Any, None]:
    """A run function that asks for a name and greets."""
    if ctx.resume is None:
        yield Ask("Who?")
    else:
        yield f"Hello {ctx.resume.text}"


def answer(event: Event, value: Any) -> types.Part:
    """The user's answer to the call that an event waits for."""
    (asked,) = [each for each in event.get_function_calls() if each.id in (event.long_running_tool_ids or ())]
    return types.Part(
        function_response=types.FunctionResponse(id=asked.id, name=asked.name, response={"result": value})
    )


def text_of(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "".join(part.text or "" for part in parts or () if not part.thought)


def texts_of(events: list[Event], *, partial: bool = False) -> list[str]:
    return [text_of(event) for event in events if bool(event.partial) is partial]


class Recorded:
    """An ASGI app whose JSON-RPC requests are recorded."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def record() -> Any:
            message = await receive()
            if message["type"] == "http.request" and message.get("body"):
                self.requests.append(json.loads(message["body"]))
                self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            return message

        await self._app(scope, record if scope["type"] == "http" else receive, send)

    @property
    def methods(self) -> list[str]:
        return [request["method"] for request in self.requests]
