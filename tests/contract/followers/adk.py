"""`dragoman.adk.RemoteAgent` in a runner of Google ADK, which streams or waits."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from contract.followers.follower import Behavior, Follower, Kind, Outcome, Place
from google.adk.agents.run_config import (
    RunConfig,
    StreamingMode,  # pyright: ignore[reportPrivateImportUsage] - its home in 1.x
)
from google.adk.runners import InMemoryRunner
from google.genai import types

from dragoman import State
from dragoman.adk import RemoteAgent

APP, USER = "contract", "someone"


class AdkFollower(Follower):
    """A remote agent in a session of ADK. Each message is a turn."""

    def __init__(self, place: Place, *, streams: bool) -> None:
        super().__init__(place)
        self.streams = self.reports_texts = streams

    async def open(self) -> None:
        agent = RemoteAgent(name="far", url=self.place.url, reconnect=self.place.reconnect)
        self.place.stack.push_async_callback(agent.close)
        self.runner = InMemoryRunner(app_name=APP, agent=agent)
        self.session = await self.runner.session_service.create_session(app_name=APP, user_id=USER)

    async def follow(self, order: str) -> Outcome:
        pieces: list[str] = []
        whole: list[str] = []
        ends, problem, question = 0, "", ""
        turn = self.runner.run_async(
            user_id=USER,
            session_id=self.session.id,
            new_message=types.Content(role="user", parts=[types.Part(text=order)]),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE if self.streams else StreamingMode.NONE),
        )
        async with aclosing(turn) as events:
            async for event in events:
                parts = (event.content.parts if event.content is not None else None) or []
                text = "".join(part.text or "" for part in parts if not part.thought)
                if text:
                    (pieces if event.partial else whole).append(text)
                    self.has_text.set()
                if event.long_running_tool_ids:
                    question = str([call.args for call in event.get_function_calls()])
                ends += bool(event.turn_complete)
                problem = event.error_message or problem
        state = None if problem else State.INPUT_REQUIRED if question else State.COMPLETED
        return Outcome(state, "".join(whole), problem, pieces or None, ends, question=question)

    async def answer(self, text: str) -> Outcome:
        return await self.follow(text)

    async def cancel(self, following: asyncio.Task[Outcome]) -> Outcome | None:
        following.cancel()
        await asyncio.wait((following,))
        assert following.cancelled()
        return None


def adk(name: str, *, streams: bool, lacks: dict[Behavior, str]) -> Kind:
    return Kind(
        name=name,
        make=partial(AdkFollower, streams=streams),
        problems={
            "unreachable": "the remote agent cannot be reached",
            "task lost": "the remote agent does not know the task any more",
            "refusal": "the remote agent does not accept the credentials",
        },
        lacks={"leave": "a turn that is left cancels its task", **lacks},
    )


KINDS = [
    adk("adk streaming", streams=True, lacks={}),
    adk("adk waiting", streams=False, lacks={"acceptance lost": "it sends the message without a stream"}),
]
