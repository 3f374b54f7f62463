"""Microsoft Agent Framework's own A2A server: an agent with a scripted model, as it is and with streaming.

Runs in the environment of tests/interop/peers/agent-framework.txt:  agent_framework_server.py [PORT]
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import framework_script as script
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import Agent, BaseChatClient, ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream
from agent_framework_a2a import A2AExecutor
from serving import serve
from starlette.applications import Starlette
from starlette.routing import Mount


def outputs(messages: Sequence[Message]) -> list[Content]:
    """What the model says: the contents of one message, or the pieces of a stream."""
    first, rest = script.words(messages[-1].text)
    match first:
        case "echo":
            return [Content.from_text(rest)]
        case "stream":
            return [Content.from_text(piece) for piece in script.pieces(int(rest))]
        case "file":
            return [Content.from_data(script.FILE, script.FILE_TYPE, additional_properties={"name": script.FILE_NAME})]
        case "fail":
            raise RuntimeError(script.FAILURE)
        case "ask":
            call = Content.from_function_call("1", "delete", arguments={"path": "old.txt"})
            return [Content.from_function_approval_request("1", call)]
        case "take":
            received = [each.uri or "" for each in messages[-1].contents if each.type != "text"]
            return [Content.from_text("\n".join(received) or script.NOTHING)]
        case _:
            raise RuntimeError(f"no such word in the script: {first!r}")


class Scripted(BaseChatClient):
    """A model that plays the script."""

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **rest: Any) -> Any:
        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for content in outputs(messages):
                yield ChatResponseUpdate(role="assistant", contents=[content])

        async def whole() -> ChatResponse:
            return ChatResponse.from_updates([update async for update in pieces()])

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


def app_at(url: str) -> Starlette:
    def served(path: str, **options: Any) -> Mount:
        card = AgentCard(
            name=script.NAME,
            description=script.DESCRIPTION,
            version="1",
            default_input_modes=["text"],
            default_output_modes=["text"],
            capabilities=AgentCapabilities(streaming=True),
            supported_interfaces=[
                AgentInterface(url=f"{url}{path}/", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
        )
        handler = DefaultRequestHandler(
            agent_executor=A2AExecutor(Agent(Scripted(), name=script.NAME), **options),
            task_store=InMemoryTaskStore(),
            agent_card=card,
        )
        return Mount(path, routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])

    return Starlette(routes=[served("/default"), served("/stream", stream=True)])


serve(app_at)
