"""The scripted agent on a2a-sdk 0.3: JSON-RPC and REST on one port, gRPC on another.

Runs in the environment of tests/interop/peers/a2a-sdk-03.txt:  a2a_sdk_03_server.py [PORT]
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import script
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
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
from serving import serve


class Scripted(AgentExecutor):
    """Plays the script."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        text = context.get_user_input()
        if context.current_task is not None:
            task = context.current_task
            await _finish(TaskUpdater(event_queue, task.id, task.context_id), _text(script.greeting(text)))
            return
        word, rest = script.words(text)
        if word == "message":
            await event_queue.enqueue_event(new_agent_text_message(script.BARE, context_id=context.context_id))
            return
        task = new_task(message)
        await event_queue.enqueue_event(task)
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
            await _finish(updater, _text(rest))
        case "stream":
            await _stream(updater, int(rest))
        case "ask":
            await updater.requires_input(updater.new_agent_message([_text(script.QUESTION)]), final=True)
        case "slow":
            await asyncio.Event().wait()
        case "data":
            await _finish(updater, Part(DataPart(data=script.DATA)))
        case "file":
            content = base64.b64encode(script.FILE).decode()
            file = FileWithBytes(bytes=content, name=script.FILE_NAME, mime_type=script.FILE_TYPE)
            await _finish(updater, Part(FilePart(file=file)))
        case _:
            await updater.failed(updater.new_agent_message([_text(script.FAILURE)]))


def _text(text: str) -> Part:
    return Part(TextPart(text=text))


async def _finish(updater: TaskUpdater, part: Part) -> None:
    await updater.add_artifact([part], name="result")
    await updater.complete()


async def _stream(updater: TaskUpdater, count: int) -> None:
    for number, text in enumerate(script.chunks(count)):
        last = number == count - 1
        await updater.add_artifact([_text(text)], "stream", append=number > 0, last_chunk=last)
        await asyncio.sleep(script.PAUSE)
    await updater.complete()


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


def app_at(url: str) -> Any:
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    card, extended = (card_of(name, url, grpc_address) for name in (script.NAME, script.EXTENDED_NAME))
    handler = DefaultRequestHandler(
        agent_executor=Scripted(),
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


if __name__ == "__main__":
    serve(app_at, in_loop=True)
