"""google-adk's own RemoteA2aAgent calls a server. Runs in .peers/adk.

    adk_client.py URL

Conversations come on stdin as a JSON object of lists: each turn is `{"text": …}`, or `{"answer": …}`, which answers
the call that waits; with `"leave": true` it is left after its first words. For each conversation a JSON line goes to
stdout: the events of every turn, and those that its session has kept.
"""

import asyncio
import json
import sys
from contextlib import aclosing
from typing import Any

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

APP, USER = "interop", "ada"


def content_of(turn: dict[str, Any], pending: list[types.FunctionCall]) -> types.Content:
    """What the user says."""
    if "text" in turn:
        return types.Content(role="user", parts=[types.Part(text=turn["text"])])
    answers = [types.FunctionResponse(id=call.id, name=call.name, response=turn["answer"]) for call in pending]
    return types.Content(role="user", parts=[types.Part(function_response=answer) for answer in answers])


def waiting(events: list[Event]) -> list[types.FunctionCall]:
    """The calls of a turn that wait for an answer, each once."""
    found = {
        call.id: call
        for event in events
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ())
    }
    return list(found.values())


def plain(event: Event) -> dict[str, Any]:
    """The event as JSON."""
    return {**event.model_dump(mode="json", exclude_none=True), "final": event.is_final_response()}


async def converse(url: str, name: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Play one conversation."""
    agent = RemoteA2aAgent(name="far", agent_card=f"{url}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=agent, app_name=APP)
    await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=name)
    answers: list[list[dict[str, Any]]] = []
    pending: list[types.FunctionCall] = []
    for turn in turns:
        events: list[Event] = []
        run = runner.run_async(
            user_id=USER,
            session_id=name,
            new_message=content_of(turn, pending),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )
        async with aclosing(run):
            async for event in run:
                events.append(event)
                if (
                    turn.get("leave")
                    and event.content is not None
                    and any(part.text for part in event.content.parts or ())
                ):
                    break
        pending = waiting(events)
        answers.append([plain(event) for event in events])
    session = await runner.session_service.get_session(app_name=APP, user_id=USER, session_id=name)
    assert session is not None
    return {"name": name, "turns": answers, "kept": [plain(event) for event in session.events]}


async def main() -> None:
    """Play them all."""
    for name, turns in json.load(sys.stdin).items():
        print(json.dumps(await converse(sys.argv[1], name, turns)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
