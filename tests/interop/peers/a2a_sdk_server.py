"""The scripted agent on a2a-sdk 1.3: JSON-RPC and REST, 1.0 and 0.3, on one port, and gRPC of both on another.

Runs in the environment of tests/interop/peers/a2a-sdk.txt:  a2a_sdk_server.py [PORT]
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import script
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_legacy_service
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from serving import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# Somebody has logged in, by a way that is none of A2A.
LOGIN = asyncio.Event()


async def log_in(_: Request) -> Response:
    LOGIN.set()
    return Response("welcome")


class Scripted(AgentExecutor):
    """Plays the script."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        text = context.get_user_input()
        if context.current_task is not None:
            task = context.current_task
            await _finish(TaskUpdater(event_queue, task.id, task.context_id), [new_text_part(script.greeting(text))])
            return
        word, rest = script.words(text)
        if word == "message":
            await event_queue.enqueue_event(new_text_message(script.BARE, context_id=message.context_id))
            return
        task = new_task_from_user_message(message)
        await event_queue.enqueue_event(task)  # anything else first is an error of the agent
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await _play(updater, word, rest)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def _play(updater: TaskUpdater, word: str, rest: str) -> None:
    match word:
        case "echo":
            await _finish(updater, [new_text_part(rest)])
        case "stream":
            await _stream(updater, int(rest))
        case "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part(script.QUESTION)]))
        case "login":
            await updater.requires_auth(updater.new_agent_message([new_text_part(script.LOGIN)]))
            await LOGIN.wait()
            await _finish(updater, [new_text_part(script.greeting(rest))])
        case "slow":
            await asyncio.Event().wait()
        case "data":
            await _finish(updater, [new_data_part(script.DATA)])
        case "file":
            await _finish(updater, [new_raw_part(script.FILE, script.FILE_TYPE, script.FILE_NAME)])
        case _:
            await updater.failed(updater.new_agent_message([new_text_part(script.FAILURE)]))


async def _finish(updater: TaskUpdater, parts: list[Part]) -> None:
    await updater.add_artifact(parts, name="result")
    await updater.complete()


async def _stream(updater: TaskUpdater, count: int) -> None:
    for number, text in enumerate(script.chunks(count)):
        last = number == count - 1
        await updater.add_artifact([new_text_part(text)], "stream", append=number > 0, last_chunk=last)
        await asyncio.sleep(script.PAUSE)
    await updater.complete()


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


def app_at(url: str) -> Any:
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    card = card_of(script.NAME, url, grpc_address)
    handler = DefaultRequestHandlerV2(
        agent_executor=Scripted(),
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


if __name__ == "__main__":
    serve(app_at, in_loop=True)
