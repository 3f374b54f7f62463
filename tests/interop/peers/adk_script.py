"""The ADK agent that both bridges serve. What its model says is chosen by the first word of the user's text.

It runs in both environments, so it knows nothing but google-adk. ADK tells a text in pieces and then once more whole.

stream N    N pieces, then the whole
add         calls a tool, then says the sum
review      calls a tool that waits for somebody's answer, then says the answer
delete      calls a tool that must be allowed, then says what became of it
think       a thought, then an answer
save        calls a tool that saves a file, then says so
fail        the model raises an exception whose text no caller may see
refuse      the model answers with an error instead of words
hang        says something, then calls a tool that waits until it is canceled
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types

NAME = "helper"
DESCRIPTION = "Plays the script of Dragoman's interop suite"
SECRET = "the password is swordfish"
REFUSAL = "not safe"
AMOUNT = 2
THOUGHT = "Let me think."
FILE_NAME = "note.txt"
FILE = b"kept"

# For a test that serves the agent in its own process.
began = threading.Event()
canceled = threading.Event()


def pieces(count: int) -> list[str]:
    """The texts that `stream N` streams."""
    return [f"piece-{number} " for number in range(count)]


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def review(amount: int) -> None:
    """Ask somebody to look at an amount."""


def delete(path: str) -> dict[str, str]:
    """Delete a file."""
    return {"deleted": path}


async def save(tool_context: ToolContext) -> dict[str, int]:
    """Save a file."""
    part = types.Part(inline_data=types.Blob(data=FILE, mime_type="text/plain"))
    return {"version": await tool_context.save_artifact(FILE_NAME, part)}


async def hang() -> None:
    """Wait until the run is canceled."""
    began.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        canceled.set()
        raise


def call(name: str, **args: Any) -> LlmResponse:
    """A model's call of a tool."""
    return _response(_called(name, **args))


def _called(name: str, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


def says(*texts: str) -> list[LlmResponse]:
    """A model's text: in pieces, then whole."""
    partial = [_response(types.Part(text=text), partial=True) for text in texts]
    return [*partial, _response(types.Part(text="".join(texts)))]


def _response(*parts: types.Part, partial: bool = False) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=list(parts)), partial=partial)


class Model(BaseLlm):
    """Plays the script."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer what was said last."""
        for response in _turn(llm_request):
            if stream or not response.partial:
                yield response


def _turn(request: LlmRequest) -> list[LlmResponse]:
    last = (request.contents[-1].parts or [])[-1]
    if last.function_response is not None:
        return _after(last.function_response)
    word, _, rest = (last.text or "").strip().partition(" ")
    match word:
        case "stream":
            return says(*pieces(int(rest)))
        case "add":
            return [call("add", a=AMOUNT, b=3)]
        case "review":
            return [call("review", amount=AMOUNT)]
        case "delete":
            return [call("delete", path="old.txt")]
        case "think":
            return [_response(types.Part(text=THOUGHT, thought=True), types.Part(text="Thought of."))]
        case "save":
            return [call("save")]
        case "hang":
            return [*says("Please ", "wait.")[:-1], _response(types.Part(text="Please wait."), _called("hang"))]
        case "fail":
            raise ValueError(SECRET)
        case "refuse":
            return [LlmResponse(error_code="SAFETY", error_message=REFUSAL)]
        case _:
            return says("I heard ", "you.")


def _after(response: types.FunctionResponse) -> list[LlmResponse]:
    """What the model says to the result of a tool."""
    answer = dict(response.response or {})
    match response.name:
        case "add":
            return says("The sum ", f"is {answer['sum']}.")
        case "review":
            return says("The review ", f"says {answer.get('result')}.")
        case "delete":
            return says("It is gone." if "deleted" in answer else "It is still there.")
        case _:
            return says("Done.")


def agent() -> LlmAgent:
    """A new agent."""
    return LlmAgent(
        name=NAME,
        description=DESCRIPTION,
        model=Model(),
        tools=[
            add,
            LongRunningFunctionTool(review),
            FunctionTool(delete, require_confirmation=True),
            save,
            hang,
        ],
    )


root_agent = agent()
