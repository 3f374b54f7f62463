"""How an executor is served by a2a-sdk 1.x, and how its parts are made, for a2a_sdk_server.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import script
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_legacy_service
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

text_part = new_text_part
data_part = new_data_part
file_part = new_raw_part
new_task = new_task_from_user_message
new_message = new_text_message
ASKING: dict[str, Any] = {}
"""What `requires_input` takes beside the question."""

# Somebody has logged in, by a way that is none of A2A.
LOGIN = asyncio.Event()


async def log_in(_: Request) -> Response:
    LOGIN.set()
    return Response("welcome")


def card_of(name: str, url: str, grpc_address: str) -> AgentCard:
    return AgentCard(
        name=name,
        description=script.DESCRIPTION,
        version=script.VERSION,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, url=address, protocol_version=version)
            for version in ("1.0", "0.3")
            for binding, address in (("JSONRPC", url), ("HTTP+JSON", url), ("GRPC", grpc_address))
        ],
        skills=[AgentSkill(id="script", name="script", description="Plays the script", tags=["interop"])],
    )


def app_of(executor: AgentExecutor, url: str) -> Any:
    """JSON-RPC and REST, 1.0 and 0.3, on one port, and gRPC of both on another."""
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    card = card_of(script.NAME, url, grpc_address)
    handler = DefaultRequestHandlerV2(
        agent_executor=executor,
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=InMemoryPushNotificationConfigStore(),  # and no sender: nothing is delivered
        extended_agent_card=card_of(script.EXTENDED_NAME, url, grpc_address),
    )
    add_service(GrpcHandler(handler), grpc_server)
    add_legacy_service(CompatGrpcHandler(handler), grpc_server)

    @asynccontextmanager
    async def serving_grpc(_: Starlette) -> AsyncIterator[None]:
        await grpc_server.start()
        yield
        await grpc_server.stop(None)

    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
            *create_rest_routes(handler, enable_v0_3_compat=True),
            Route("/login", log_in),
        ],
        lifespan=serving_grpc,
    )
