"""An agent of the OpenAI Agents SDK, with its conversations in our store or in sessions of the SDK."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import agents as sdk
from agents.testing import assistant_message, function_call
from contract.bridges.bridge import TRIP, Behavior, Bridge, Place
from contract.bridges.model import APPROVAL, LACKS, Prompt, ToolCall, pay, plain_tools, speak
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemAddedEvent,
    ResponseTextDeltaEvent,
)
from pydantic import BaseModel

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


class ScriptedModel(sdk.Model):
    def __init__(self, port: int) -> None:
        self._port = port

    async def get_response(self, *args: Any, **options: Any) -> sdk.ModelResponse:
        raise NotImplementedError("agents are streamed")

    async def stream_response(self, system: Any, input: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        prompt = prompt_of([{"role": "user", "content": input}] if isinstance(input, str) else input)
        items: list[Any] = []
        text = ""
        async for piece in self._speak(prompt, system):
            if isinstance(piece, ToolCall):
                items += [assistant_message(text)] if text else []
                items.append(function_call(piece.tool, piece.arguments, call_id=f"call {len(input)}"))
                text = ""
                continue
            if not text:
                yield ResponseOutputItemAddedEvent(
                    item=assistant_message(""),
                    output_index=len(items),
                    sequence_number=0,
                    type="response.output_item.added",
                )
            text += piece
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=piece,
                item_id="message",
                logprobs=[],
                output_index=len(items),
                sequence_number=0,
                type="response.output_text.delta",
            )
        response = Response(
            id="response",
            created_at=time.time(),
            model="scripted",
            object="response",
            output=[*items, *([assistant_message(text)] if text else [])],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    async def _speak(self, prompt: Prompt, instructions: str | None) -> AsyncIterator[str | ToolCall]:
        if instructions == "plan":
            yield json.dumps(TRIP)
        elif prompt.order == "plan":
            yield ToolCall("transfer_to_planner", {})
        else:
            async for piece in speak(prompt, self._port):
                yield piece


def caller(ctx: Context) -> str:
    return ctx.user.id if ctx.user else "nobody"


@sdk.function_tool
async def who(ctx: sdk.RunContextWrapper[str]) -> str:
    return ctx.context


def make(place: Place, *, in_sessions: bool = False) -> Agent:
    model = ScriptedModel(place.port)
    tool = partial(sdk.function_tool, failure_error_function=None)
    tools: list[sdk.Tool] = [
        *(tool(each) for each in plain_tools(place.port)),
        sdk.function_tool(pay, needs_approval=True),
        who,
    ]
    planner = sdk.Agent[Any](name="planner", model=model, instructions="plan", output_type=Trip)
    agent = sdk.Agent[Any](name="worker", model=model, tools=tools, handoffs=[planner])
    session = partial(sdk.SQLiteSession, db_path=place.folder / "sessions.db") if in_sessions else None
    return Agent.from_openai(agent, context=caller, session=session)


OWN_LACKS: dict[Behavior, str] = {**LACKS, "public error": "the SDK wraps what a tool raises in an error of its own"}

BRIDGES = [
    Bridge(name="openai agents", make=make, question=APPROVAL, lacks=OWN_LACKS),
    Bridge(name="openai sessions", make=partial(make, in_sessions=True), question=APPROVAL, lacks=OWN_LACKS),
]
