"""A LangGraph graph, without a checkpointer of its own and with one that lasts."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from contract.bridges.bridge import TRIP, Bridge, Place, Question
from contract.bridges.model import LACKS, Prompt, ToolCall, plain_tools, speak
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from dragoman import Agent


class Talk(MessagesState):
    structured_response: Any


def prompt_of(messages: list[AnyMessage]) -> Prompt:
    prompt = Prompt()
    for message in messages:
        if isinstance(message, HumanMessage):
            content: Any = message.content
            contents = [{"type": "text", "text": content}] if isinstance(content, str) else content
            prompt.messages.append([each["text"] for each in contents if each["type"] == "text"])
            prompt.results.clear()
            for image in (each for each in contents if each["type"] == "image"):
                prompt.image = (image["mime_type"], base64.b64decode(image["base64"]))
        elif isinstance(message, ToolMessage):
            prompt.results.append(message.text)
    return prompt


class ScriptedModel(BaseChatModel):
    port: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError("models are streamed")

    async def _astream(self, messages: list[Any], *args: Any, **options: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in speak(prompt_of(messages), self.port):
            if isinstance(piece, ToolCall):
                call = tool_call_chunk(name=piece.tool, args=json.dumps(piece.arguments), id="call", index=0)
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
            else:
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}" if interrupt("May I pay?", response_schema={"type": "boolean"}) else "not paid"


@tool
async def who(config: RunnableConfig) -> str:
    """Tell who calls."""
    return config.get("configurable", {})["user_id"]


def make(place: Place, *, lasts: bool = False) -> Agent:
    model = ScriptedModel(port=place.port)

    async def talk(state: Talk) -> dict[str, Any]:
        if prompt_of(state["messages"]).order == "plan":
            return {"messages": [AIMessage("Here it is.")], "structured_response": TRIP}
        return {"messages": [await model.ainvoke(state["messages"])]}

    def next_step(state: Talk) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", ()) else END

    builder: Any = StateGraph(Talk)
    builder.add_node("talk", talk)
    builder.add_node("tools", ToolNode([*(tool(each) for each in plain_tools(place.port)), pay, who]))
    builder.add_edge(START, "talk")
    builder.add_conditional_edges("talk", next_step, ["tools", END])
    builder.add_edge("tools", "talk")
    saver = place.once("saver", lambda: nullcontext(InMemorySaver())) if lasts else None
    return Agent.from_langgraph(builder.compile(checkpointer=saver))


QUESTION = Question(
    text="May I pay?",
    wrong="perhaps",
    again="May I pay? Please answer yes or no.",
    answer="yes",
    result="Well.\n\npaid 3",
)

BRIDGES = [
    Bridge(
        name="langgraph",
        make=make,
        question=QUESTION,
        lacks={
            **LACKS,
            "memory beside a question": "a run saves the messages that it knew when it asked",
            "answer after a restart": "without a checkpointer the question is lost: test_langgraph_interrupts.py",
        },
    ),
    Bridge(
        name="langgraph checkpointer",
        make=partial(make, lasts=True),
        question=QUESTION,
        lacks={
            **LACKS,
            "memory beside a question": "another message moves the thread on: test_langgraph_interrupts.py",
            "undisturbed question": "another message moves the thread on: test_langgraph_interrupts.py",
        },
    ),
]
