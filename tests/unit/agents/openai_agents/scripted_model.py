"""A model for the OpenAI Agents SDK that does what a test says, as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.testing import assistant_message, function_call
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemAddedEvent,
    ResponseTextDeltaEvent,
)

# What a model is given, and what it says: pieces of text, and calls as (tool, arguments, id).
Speak = Callable[[list[Any]], AsyncIterator[Any]]


class ScriptedStream(Model):
    """Streams what `speak` gives for the items of the conversation."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        """For agents that are tools of others: those are not streamed."""
        events = [event async for event in self.stream_response(system_instructions, input)]
        return ModelResponse(output=events[-1].response.output, usage=Usage(), response_id=None)

    async def stream_response(self, system: Any, input: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        items: list[Any] = []
        text = ""
        given = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        async for piece in self._speak(given):
            if isinstance(piece, str):
                if not text:
                    added = assistant_message("")
                    yield ResponseOutputItemAddedEvent(
                        item=added, output_index=len(items), sequence_number=0, type="response.output_item.added"
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
                continue
            if text:
                items.append(assistant_message(text))
                text = ""
            tool, arguments, call_id = piece
            items.append(function_call(tool, arguments, call_id=call_id))
        if text:
            items.append(assistant_message(text))
        response = Response(
            id="response",
            created_at=time.time(),
            model="scripted",
            object="response",
            output=items,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


def user_texts(items: list[Any]) -> list[str]:
    """The texts of the user, in the order of the conversation."""
    found = [item["content"] for item in items if item.get("role") == "user"]
    return [content if isinstance(content, str) else content[0]["text"] for content in found]


def results(items: list[Any]) -> list[Any]:
    """What tools have given."""
    return [item["output"] for item in items if item.get("type") == "function_call_output"]
