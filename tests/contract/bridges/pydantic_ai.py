"""An agent of Pydantic AI."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from contract.bridges.bridge import TRIP, Behavior, Bridge, Place
from contract.bridges.model import APPROVAL, LACKS, Prompt, ToolCall, pay, plain_tools, speak
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.messages import BinaryContent, ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from dragoman import Agent, Context


class Trip(BaseModel):
    city: str
    days: int


def prompt_of(messages: list[ModelMessage]) -> Prompt:
    prompt = Prompt()
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            contents = [part.content] if isinstance(part.content, str) else part.content
            prompt.messages.append([content for content in contents if isinstance(content, str)])
            prompt.results.clear()
            for content in contents:
                if isinstance(content, BinaryContent):
                    prompt.image = (content.media_type, content.data)
        elif isinstance(part, ToolReturnPart):
            prompt.results.append(str(part.content))
    return prompt


def caller(ctx: Context) -> str:
    return ctx.user.id if ctx.user else "nobody"


def make(place: Place) -> Agent:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        prompt = prompt_of(messages)
        if prompt.order == "plan":
            tool = next(tool.name for tool in info.output_tools)
            yield {0: DeltaToolCall(tool, json.dumps(TRIP), tool_call_id="plan")}
            return
        async for piece in speak(prompt, place.port):
            if isinstance(piece, ToolCall):
                yield {1: DeltaToolCall(piece.tool, json.dumps(piece.arguments), tool_call_id="call")}
            else:
                yield piece

    agent = PydanticAgent(
        FunctionModel(stream_function=model),
        name="worker",
        deps_type=str,
        output_type=[str, Trip, DeferredToolRequests],
        tools=plain_tools(place.port),
    )
    agent.tool_plain(requires_approval=True)(pay)

    @agent.tool
    async def who(ctx: RunContext[str]) -> str:
        return ctx.deps

    return Agent.from_pydantic_ai(agent, deps=caller)


OWN_LACKS: dict[Behavior, str] = {
    **LACKS,
    "memory beside a question": "a run saves the messages that it knew when it asked",
}

BRIDGES = [Bridge(name="pydantic ai", make=make, question=APPROVAL, lacks=OWN_LACKS)]
