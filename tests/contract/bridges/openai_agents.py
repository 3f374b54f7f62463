"""An agent of the OpenAI Agents SDK, with its conversations in our store or in sessions of the SDK."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import agents as sdk
from contract.bridges.bridge import TRIP, Behavior, Bridge, Place
from contract.bridges.model import APPROVAL, LACKS, Prompt, ToolCall, pay, plain_tools, speak
from pydantic import BaseModel
from unit.agents.openai_agents.scripted_model import ScriptedStream

from dragoman import Agent, Context


class Trip(BaseModel):
    city: str
    days: int


def prompt_of(items: list[dict[str, Any]]) -> Prompt:
    prompt = Prompt()
    for item in items:
        if item.get("role") == "user":
            content = item["content"]
            contents = [{"text": content}] if isinstance(content, str) else content
            prompt.messages.append([each["text"] for each in contents if "text" in each])
            prompt.results.clear()
            for image in (each["image_url"] for each in contents if "image_url" in each):
                head, _, data = image.removeprefix("data:").partition(";base64,")
                prompt.image = (head, base64.b64decode(data))
        elif item.get("type") == "function_call_output" and "assistant" not in str(item["output"]):
            prompt.results.append(item["output"])
    return prompt


def caller(ctx: Context) -> str:
    return ctx.user.id if ctx.user else "nobody"


@sdk.function_tool
async def who(ctx: sdk.RunContextWrapper[str]) -> str:
    return ctx.context


def make(place: Place, *, in_sessions: bool = False) -> Agent:
    async def talk(items: list[dict[str, Any]]) -> AsyncIterator[str | tuple[str, dict[str, int], str]]:
        prompt = prompt_of(items)
        if prompt.order == "plan":
            yield ("transfer_to_planner", {}, "handoff")
            return
        async for piece in speak(prompt, place.port):
            yield (piece.tool, piece.arguments, f"call {len(items)}") if isinstance(piece, ToolCall) else piece

    async def plan(items: list[dict[str, Any]]) -> AsyncIterator[str]:
        yield json.dumps(TRIP)

    tool = partial(sdk.function_tool, failure_error_function=None)
    tools: list[sdk.Tool] = [
        *(tool(each) for each in plain_tools(place.port)),
        sdk.function_tool(pay, needs_approval=True),
        who,
    ]
    planner = sdk.Agent[Any](name="planner", model=ScriptedStream(plan), output_type=Trip)
    agent = sdk.Agent[Any](name="worker", model=ScriptedStream(talk), tools=tools, handoffs=[planner])
    session = partial(sdk.SQLiteSession, db_path=place.folder / "sessions.db") if in_sessions else None
    return Agent.from_openai(agent, context=caller, session=session)


OWN_LACKS: dict[Behavior, str] = {**LACKS, "public error": "the SDK wraps what a tool raises in an error of its own"}

BRIDGES = [
    Bridge(name="openai agents", make=make, question=APPROVAL, lacks=OWN_LACKS),
    Bridge(name="openai sessions", make=partial(make, in_sessions=True), question=APPROVAL, lacks=OWN_LACKS),
]
