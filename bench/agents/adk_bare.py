"""The ADK agent without a bridge: one request runs a whole burst of turns, and is answered with their times."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

from bench.agents.adk_words import agent

NAME, USER = "bench", "bench"


async def _turn(runner: InMemoryRunner, text: str, mode: StreamingMode) -> str:
    """One turn in a session of its own, as with the bridges; what was said in the end."""
    session = await runner.session_service.create_session(app_name=NAME, user_id=USER)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    events = runner.run_async(
        user_id=USER, session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
    )
    last: Event | None = None
    async for event in events:
        last = event
    parts = last.content.parts if last is not None and last.content is not None else None
    return "".join(part.text or "" for part in parts or ())


def app(_: str) -> Any:
    """An ASGI app that takes texts, and gives the seconds and the answer of each."""
    runner = InMemoryRunner(agent=agent(), app_name=NAME)

    async def answer(
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        order = json.loads((await receive())["body"])
        mode = StreamingMode.SSE if order["stream"] else StreamingMode.NONE
        seconds: list[float] = []
        said: list[str] = []
        for text in order["texts"]:
            began = time.perf_counter()
            said.append(await _turn(runner, text, mode))
            seconds.append(time.perf_counter() - began)
        body = json.dumps({"seconds": seconds, "said": said}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer
