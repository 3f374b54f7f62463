"""How an executor is served by a2a-sdk 0.3, and how its parts are made, for a2a_sdk_server.py."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import script
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    Part,
    TextPart,
    TransportProtocol,
)
from a2a.utils import new_agent_text_message, new_task

__all__ = ["ASKING", "LOGIN", "app_of", "data_part", "file_part", "new_message", "new_task", "text_part"]

new_message = new_agent_text_message
ASKING: dict[str, Any] = {"final": True}
"""What `requires_input` takes beside the question."""

LOGIN = asyncio.Event()  # nobody logs in here


def text_part(text: str) -> Part:
    return Part(TextPart(text=text))


def data_part(data: dict[str, Any]) -> Part:
    return Part(DataPart(data=data))


def file_part(content: bytes, media_type: str, name: str) -> Part:
    encoded = base64.b64encode(content).decode()
    return Part(FilePart(file=FileWithBytes(bytes=encoded, name=name, mime_type=media_type)))


def card_of(name: str, url: str, grpc_address: str) -> AgentCard:
    return AgentCard(
        name=name,
        description=script.DESCRIPTION,
        version=script.VERSION,
        url=url,
        preferred_transport=TransportProtocol.jsonrpc,
        additional_interfaces=[
            AgentInterface(transport=TransportProtocol.jsonrpc, url=url),
            AgentInterface(transport=TransportProtocol.http_json, url=url),
            AgentInterface(transport=TransportProtocol.grpc, url=grpc_address),
        ],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        skills=[AgentSkill(id="script", name="script", description="Plays the script", tags=["interop"])],
    )


def app_of(executor: AgentExecutor, url: str) -> Any:
    """JSON-RPC and REST on one port, and gRPC on another."""
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    card, extended = (card_of(name, url, grpc_address) for name in (script.NAME, script.EXTENDED_NAME))
    handler = DefaultRequestHandler(
        agent_executor=executor,
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),  # and no sender: nothing is delivered
    )
    # Over gRPC there is one card and no other to ask for, so it is the extended one.
    add_service(GrpcHandler(extended, handler), grpc_server)

    @asynccontextmanager
    async def serving_grpc(_: Any) -> AsyncIterator[None]:
        await grpc_server.start()
        yield
        await grpc_server.stop(None)

    app = A2ARESTFastAPIApplication(card, handler, extended_agent_card=extended).build(lifespan=serving_grpc)
    A2AStarletteApplication(card, handler, extended_agent_card=extended).add_routes_to_app(app)
    return app
