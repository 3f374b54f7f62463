"""An agent on a2a-sdk 1.3 that asks another agent, with OpenTelemetry: the SDK itself carries no trace.

Runs in the environment of tests/interop/peers/a2a-sdk.txt:  BEHIND=URL BINDING=JSONRPC|GRPC traced_server.py [PORT]
Spans go where OTEL_EXPORTER_OTLP_ENDPOINT says.
"""

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message, Role, SendMessageRequest
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from opentelemetry import context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from serving import serve
from starlette.applications import Starlette
from starlette.middleware import Middleware

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
TRACER = trace.get_tracer("traced_server")
BEHIND, BINDING = os.environ["BEHIND"], os.environ["BINDING"]
NAME = "middle"


class Asking(AgentExecutor):
    """Asks the agent behind to call its tool `report`, and answers with what that says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        with TRACER.start_as_current_span("ask", kind=SpanKind.CLIENT):
            answer = await ask_behind()
        await updater.add_artifact([new_text_part(answer)], name="result")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def ask_behind() -> str:
    headers: dict[str, str] = {}
    propagate.inject(headers)
    async with httpx.AsyncClient(timeout=30) as http:
        config = ClientConfig(
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            streaming=False,
            supported_protocol_bindings=[BINDING],
        )
        client = ClientFactory(config).create(await A2ACardResolver(http, BEHIND).get_agent_card())
        parts = [new_data_part({"tool": "report", "arguments": {}})]
        request = SendMessageRequest(message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts))
        sent = client.send_message(request, context=ClientCallContext(service_parameters=headers))
        (answer,) = [each async for each in sent]
        return "".join(get_artifact_text(artifact, delimiter="") for artifact in answer.task.artifacts)


class ExtractHttp:
    """A span for each POST, below the one that its headers name."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        context.attach(propagate.extract(headers))  # with its baggage; the task of the request ends with it
        with TRACER.start_as_current_span("POST", kind=SpanKind.SERVER):
            await self._app(scope, receive, send)


class ExtractGrpc(grpc.aio.ServerInterceptor):
    """What a call causes is below the span that its metadata name."""

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        context.attach(propagate.extract(dict(details.invocation_metadata)))
        return await continuation(details)


def app_at(url: str) -> Any:
    grpc_server = grpc.aio.server(interceptors=[ExtractGrpc()])
    address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}" if BINDING == "GRPC" else url
    card = AgentCard(
        name=NAME,
        description="Asks another agent",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[AgentInterface(protocol_binding=BINDING, url=address, protocol_version="1.0")],
        skills=[AgentSkill(id="ask", name="ask", description="Asks another agent", tags=["traces"])],
    )
    handler = DefaultRequestHandlerV2(agent_executor=Asking(), task_store=InMemoryTaskStore(), agent_card=card)
    add_service(GrpcHandler(handler), grpc_server)

    @asynccontextmanager
    async def serving_grpc(_: Starlette) -> AsyncIterator[None]:
        await grpc_server.start()
        yield
        await grpc_server.stop(None)

    return Starlette(
        routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")],
        middleware=[Middleware(ExtractHttp)],
        lifespan=serving_grpc,
    )


if __name__ == "__main__":
    serve(app_at, in_loop=True)
