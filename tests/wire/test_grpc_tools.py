"""What tools do with a gRPC server: they learn its schema from itself and call it, and watch its health."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory

from dragoman import Agent, Context
from dragoman.testing import served
from dragoman.transports.grpc.codec import codec_of

REFLECTION = codec_of("grpc.reflection.v1")
HEALTH = codec_of("grpc.health.v1")


def agent() -> Agent:
    made = Agent("echo", description="Echoes")

    @made.skill
    async def say(ctx: Context, text: str):
        yield text

    return made


def address_of(url: str) -> str:
    with urlopen(f"{url}/.well-known/agent-card.json") as response:
        card = json.load(response)
    return next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")


class ReflectingClient:
    """Calls a server by the schema that the server itself shows, as grpcurl, grpcui, evans and `buf curl` do."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._pool = descriptor_pool.DescriptorPool()

    async def learn(self, service: str) -> None:
        start: Any = self._channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        stream = start()
        await stream.write(REFLECTION.encode("ServerReflectionRequest", {"fileContainingSymbol": service}))
        await stream.done_writing()
        answer = REFLECTION.decode("ServerReflectionResponse", await stream.read())
        # The file that was asked for comes first, what it needs behind it.
        for file in reversed(answer["fileDescriptorResponse"]["fileDescriptorProto"]):
            self._pool.AddSerializedFile(b64decode(file))

    async def call(self, service: str, method: str, request: dict[str, Any]) -> list[dict[str, Any]]:
        described = self._pool.FindServiceByName(service).FindMethodByName(method)
        asked = json_format.ParseDict(request, message_factory.GetMessageClass(described.input_type)())
        answered: Any = message_factory.GetMessageClass(described.output_type)
        start: Any = self._channel.unary_stream if described.server_streaming else self._channel.unary_unary
        call = start(f"/{service}/{method}")(asked.SerializeToString())
        data = [each async for each in call] if described.server_streaming else [await call]
        return [json_format.MessageToDict(answered.FromString(each)) for each in data]


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address_of(url)) as channel:
        yield channel


@pytest.mark.parametrize(
    ("service", "member", "parts"),
    [("lf.a2a.v1.A2AService", "message", "parts"), ("a2a.v1.A2AService", "request", "content")],
)
async def test_a_tool_calls_by_the_schema_that_the_server_shows(service: str, member: str, parts: str) -> None:
    with served(agent(), grpc="127.0.0.1:0") as url:
        async with channel_to(url) as channel:
            tool = ReflectingClient(channel)
            await tool.learn(service)
            request = {member: {"messageId": "m1", "role": "ROLE_USER", parts: [{"text": "hello"}]}}
            (answer,) = await tool.call(service, "SendMessage", request)
            assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert answer["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]
            events = await tool.call(service, "SendStreamingMessage", request)
            assert next(iter(events[0])) == "task"
            assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def check(channel: grpc.aio.Channel, service: str = "") -> str:
    call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    answer = await call(HEALTH.encode("HealthCheckRequest", {"service": service}))
    return HEALTH.decode("HealthCheckResponse", answer)["status"]


async def test_the_health_is_that_of_readyz(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with served(agent(), grpc="127.0.0.1:0", store=f"sqlite:///{file}") as url:
        async with channel_to(url) as channel:
            assert [await check(channel, name) for name in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService")] == [
                "SERVING"
            ] * 3
            file.unlink()
            assert await check(channel) == "NOT_SERVING"
            assert await check(channel, "liveness") == "SERVING"


async def test_a_watcher_learns_at_once_that_the_server_stops() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    busy = Agent("busy", description="Works until it may stop")

    @busy.skill
    async def work(ctx: Context) -> str:
        started.set()
        await go_on.wait()
        return "done"

    app = busy.app(store="memory:", grpc="127.0.0.1:0", drain=10)
    await app.start()
    async with grpc.aio.insecure_channel(app.grpc_address) as channel:
        start: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watch = start(b"")
        assert HEALTH.decode("HealthCheckResponse", await watch.read()) == {"status": "SERVING"}
        send: Any = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {"tool": "work", "arguments": {}}}]}
        running = asyncio.ensure_future(send(codec_of("lf.a2a.v1").encode("SendMessageRequest", {"message": message})))
        await started.wait()
        stopping = asyncio.create_task(app.stop())
        # The task is still at work, and whoever sends requests knows that no more are wanted.
        assert HEALTH.decode("HealthCheckResponse", await watch.read()) == {"status": "NOT_SERVING"}
        go_on.set()
        await running
        with pytest.raises(grpc.aio.AioRpcError):
            await watch.read()
        await stopping
    assert await watch.code() is grpc.StatusCode.UNAVAILABLE
