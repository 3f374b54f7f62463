"""An agent of Google's ADK, with its sessions in a file."""

from __future__ import annotations

import gc
import os
import warnings

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from contract.bridges.bridge import IMAGE, REASON, Bridge, Place, Question
from contract.bridges.model import LACKS, Prompt, ToolCall, pay, plain_tools, speak
from fastapi.openapi.models import APIKey, APIKeyIn
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from dragoman import Agent

DATA = "<a2a_datapart_json>", "</a2a_datapart_json>"
KEY = AuthConfig(
    credential_key="key",
    auth_scheme=APIKey.model_validate({"in": APIKeyIn.header, "name": "X-Key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
)


def prompt_of(contents: list[types.Content]) -> Prompt:
    prompt = Prompt()
    for content in (content for content in contents if content.role == "user"):
        parts = content.parts or []
        texts = [part.text for part in parts if part.text]
        for blob in (part.inline_data for part in parts if part.inline_data):
            data = blob.data or b""
            if data.startswith(DATA[0].encode()):
                texts.append(data.decode().removeprefix(DATA[0]).removesuffix(DATA[1]))
            else:
                prompt.image = (blob.mime_type or "", data)
        if texts:
            prompt.messages.append(texts)
            prompt.results.clear()
        results = [part.function_response.response or {} for part in parts if part.function_response]
        prompt.results += [str(result["result"]) for result in results if "result" in result]
    return prompt


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    port: int

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts: list[types.Part] = []
        text = ""
        prompt = prompt_of(llm_request.contents)
        if prompt.order == "refuse":
            yield LlmResponse(error_code="REFUSED", error_message=REASON)
            return
        if prompt.order == "draw":
            parts.append(types.Part(inline_data=types.Blob(data=IMAGE, mime_type="image/png", display_name="dot.png")))
        elif prompt.order == "login":
            parts.append(types.Part(function_call=types.FunctionCall(name="login", args={})))
        elif prompt.order == "step":
            parts.append(types.Part(text="looking", thought=True))
            parts.append(types.Part(text="found"))
        else:
            async for piece in speak(prompt, self.port):
                if isinstance(piece, ToolCall):
                    parts.append(types.Part.from_function_call(name=piece.tool, args=dict(piece.arguments)))
                else:
                    text += piece
                    yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        parts = [*([types.Part(text=text)] if text else []), *parts]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def who(tool_context: ToolContext) -> str:
    """Tell who calls."""
    return tool_context.user_id


async def login(tool_context: ToolContext) -> str:
    """Ask for a credential."""
    tool_context.request_credential(KEY)
    return "asked"


def sessions_in(file: Path) -> SqliteSessionService:
    """The sessions in a file. To look at one that is there, ADK opens a connection that it does not close."""
    is_new = not file.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        sessions = SqliteSessionService(str(file))
        if not is_new:
            gc.collect()  # here, where it is known whose connection it is
    return sessions


def make(place: Place) -> Agent:
    tools: list[Any] = [*plain_tools(place.port), FunctionTool(pay, require_confirmation=True), who, login]
    agent = LlmAgent(name="worker", model=ScriptedModel(port=place.port), tools=tools)
    sessions = sessions_in(place.folder / "sessions.db")
    return Agent.from_adk(Runner(app_name="worker", agent=agent, session_service=sessions), show_thoughts=True)


QUESTION = Question(
    text='Allow pay({"amount":3})? Answer yes or no.',
    wrong="perhaps",
    again='What was sent does not fit. Expected yes or no. Allow pay({"amount":3})? Answer yes or no.',
    answer="yes",
    result="Well.\n\npaid 3",
)

BRIDGES = [
    Bridge(
        name="adk",
        make=make,
        question=QUESTION,
        login="An API key is needed.",
        lacks={"run again": LACKS["run again"], "data out": "an ADK agent says texts and files"},
    )
]
