"""AG2's own A2AServer: an agent with a scripted model.

Runs in the environment of tests/interop/peers/ag2.txt:  ag2_server.py [PORT]
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import framework_script as script
from a2a.helpers import new_data_part
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.types import Artifact, Part, TaskArtifactUpdateEvent
from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.a2a.events import A2ATaskArtifactUpdate
from ag2.a2a.executor import AgentExecutor
from ag2.config import ModelConfig
from ag2.context import ConversationContext
from ag2.events import (
    BaseEvent,
    BinaryInput,
    DataInput,
    Input,
    ModelMessage,
    ModelMessageChunk,
    ModelRequest,
    ModelResponse,
    TextInput,
)
from serving import serve


class Scripted(ModelConfig):
    """A model that plays the script."""

    def copy(self) -> "Scripted":
        return self

    def create(self) -> "Scripted":
        return self

    async def __call__(self, messages: Sequence[BaseEvent], context: ConversationContext, **rest: Any) -> ModelResponse:
        inputs: list[Input] = next(each.parts for each in reversed(messages) if isinstance(each, ModelRequest))
        first, rest_of_it = script.words(" ".join(each.content for each in inputs if isinstance(each, TextInput)))
        match first:
            case "echo":
                answer = rest_of_it
            case "stream":
                for piece in script.pieces(int(rest_of_it)):
                    await context.send(ModelMessageChunk(piece))
                answer = "".join(script.pieces(int(rest_of_it)))
            case "fail":
                raise RuntimeError(script.FAILURE)
            case "file":
                await send(context, Part(raw=script.FILE, filename=script.FILE_NAME, media_type=script.FILE_TYPE))
                answer = ""
            case "data":
                await send(context, new_data_part(script.DATA))
                answer = ""
            case "take":
                answer = "\n".join(taken(each) for each in inputs if not isinstance(each, TextInput))
            case _:
                raise RuntimeError(f"no such word in the script: {first!r}")
        return ModelResponse(ModelMessage(answer))


def taken(received: Input) -> str:
    if isinstance(received, BinaryInput):
        return script.taken_file(received.data, str(received.media_type), received.vendor_metadata.get("filename"))
    assert isinstance(received, DataInput), received
    return script.taken_data(received.data)


request: ContextVar[RequestContext] = ContextVar("request")


class Executor(AgentExecutor):
    """Their executor; the model may know which task it works for."""

    async def execute(self, request_context: RequestContext, event_queue: EventQueue) -> None:
        request.set(request_context)
        await super().execute(request_context, event_queue)


async def send(context: ConversationContext, part: Part) -> None:
    """Send an artifact: `A2AEvent`s that an agent sends reach the caller as they are."""
    update = TaskArtifactUpdateEvent(
        task_id=request.get().task_id,
        context_id=request.get().context_id,
        artifact=Artifact(artifact_id=uuid4().hex, parts=[part]),
        last_chunk=True,
    )
    await context.send(A2ATaskArtifactUpdate(update=update))


def app_at(url: str) -> Any:
    agent = Agent(script.NAME, config=Scripted())
    return A2AServer(agent, executor=Executor(agent)).build_jsonrpc(url=url)


serve(app_at)
