"""The ADK agent that every bridge serves, and that is run without one. It knows nothing but google-adk.

"count N" streams N chunks, "tool: X" calls a tool with X and answers with its result, and anything else is said again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from bench.agents.words import CARD_NAME, TOOL, adk_chunk_text


class Model(BaseLlm):
    """Answers at once."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer what was said last."""
        last = (llm_request.contents[-1].parts or [])[-1]
        if last.function_response is not None:
            yield _said(str((last.function_response.response or {})["text"]))
            return
        text = last.text or ""
        if text.startswith(TOOL):
            args = {"text": text.removeprefix(TOOL)}
            yield _response(types.Part(function_call=types.FunctionCall(name="look_up", args=args)))
            return
        if not text.startswith("count "):
            yield _said(text)
            return
        chunks = [adk_chunk_text(number) for number in range(int(text.removeprefix("count ")))]
        for chunk in chunks if stream else ():
            yield _said(chunk, partial=True)
        yield _said("".join(chunks))


def look_up(text: str) -> dict[str, str]:
    """Look something up."""
    return {"text": text}


def agent() -> LlmAgent:
    """A new agent."""
    return LlmAgent(name=CARD_NAME, description="Echoes and counts", model=Model(), tools=[look_up])


def _said(text: str, *, partial: bool = False) -> LlmResponse:
    return _response(types.Part(text=text), partial=partial)


def _response(part: types.Part, *, partial: bool = False) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=partial)
