"""ADK's Runner itself: what a turn costs without a bridge. Every turn is a session of its own, as with the bridges."""

from __future__ import annotations

from urllib.parse import urlsplit

from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

from bench.agents.adk_words import agent
from bench.agents.words import TOOL, adk_chunk_text

USER = "bench"


class RunnerCaller:
    """See `Caller`. With `tool` every turn calls a tool."""

    chunk_text = staticmethod(adk_chunk_text)

    def __init__(self, *, tool: bool) -> None:
        self._runner = InMemoryRunner(agent=agent(), app_name="bench")
        self._before = TOOL if tool else ""

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        return _text((await self._run(self._before + text, StreamingMode.NONE))[-1])

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`."""
        events = await self._run(f"count {chunks}", StreamingMode.SSE)
        return _text(events[-1]), len(events)

    async def close(self) -> None:
        """See `Caller.close`."""
        await self._runner.close()

    async def _run(self, text: str, mode: StreamingMode) -> list[Event]:
        session = await self._runner.session_service.create_session(app_name="bench", user_id=USER)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = self._runner.run_async(
            user_id=USER, session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
        )
        return [event async for event in events]


def _text(event: Event) -> str:
    parts = event.content.parts if event.content is not None else None
    return "".join(part.text or "" for part in parts or ())


def caller(url: str) -> RunnerCaller:
    """A caller of nobody; the fragment of the URL says whether a tool is called."""
    return RunnerCaller(tool=urlsplit(url).fragment == "tool")
