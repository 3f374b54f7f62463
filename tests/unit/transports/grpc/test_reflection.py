"""Reflection: tools get the whole schema of a server from the server itself."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from dragoman.dialects.protobuf.files import FILES
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.reflection import reflection_methods

PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
SERVICES = [
    "a2a.v1.A2AService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "lf.a2a.v1.A2AService",
]


class Tool:
    """Asks one stream of reflection, one question after the other."""

    def __init__(self, channel: grpc.aio.Channel, package: str) -> None:
        self._codec = codec_of(package)
        start: Any = channel.stream_stream(f"/{package}.ServerReflection/ServerReflectionInfo")
        self.stream = start()

    async def ask(self, **question: Any) -> dict[str, Any]:
        await self.stream.write(self._codec.encode("ServerReflectionRequest", question))
        return self._codec.decode("ServerReflectionResponse", await self.stream.read())

    async def files(self, **question: Any) -> list[descriptor_pb2.FileDescriptorProto]:
        answer = await self.ask(**question)
        found = answer["fileDescriptorResponse"]["fileDescriptorProto"]
        return [descriptor_pb2.FileDescriptorProto.FromString(b64decode(each)) for each in found]

    async def error(self, **question: Any) -> tuple[int, str]:
        error = (await self.ask(**question))["errorResponse"]
        return error["errorCode"], error["errorMessage"]


@asynccontextmanager
async def asking(package: str = PACKAGES[0]) -> AsyncIterator[Tool]:
    class Handlers(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            return reflection_methods().get(handler_call_details.method)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Tool(channel, package)
    finally:
        await server.stop(None)


@pytest.mark.parametrize("package", PACKAGES)
async def test_it_lists_the_services_in_both_versions(package: str) -> None:
    async with asking(package) as tool:
        answer = await tool.ask(host="agents.example", listServices="")
        assert [each["name"] for each in answer["listServicesResponse"]["service"]] == SERVICES
        assert answer["validHost"] == "agents.example"
        assert answer["originalRequest"] == {"host": "agents.example", "listServices": ""}


@pytest.mark.parametrize("service", SERVICES)
async def test_the_file_of_a_service_comes_first_and_with_all_it_needs(service: str) -> None:
    async with asking() as tool:
        files = await tool.files(fileContainingSymbol=service)
        assert [service.rpartition(".")[2]] == [each.name for each in files[0].service]
        # A library that knows none of them can build it.
        pool = descriptor_pool.DescriptorPool()
        for file in reversed(files):
            pool.AddSerializedFile(file.SerializeToString())
        assert pool.FindServiceByName(service).full_name == service


@pytest.mark.parametrize(
    "symbol",
    [
        "lf.a2a.v1.Task",
        ".lf.a2a.v1.Task",
        "lf.a2a.v1.Task.context_id",
        "lf.a2a.v1.TaskState",
        "lf.a2a.v1.TASK_STATE_WORKING",
        "lf.a2a.v1.A2AService.SendMessage",
    ],
)
async def test_a_symbol_is_found_in_its_file(symbol: str) -> None:
    async with asking() as tool:
        assert (await tool.files(fileContainingSymbol=symbol))[0].package == "lf.a2a.v1"


async def test_every_file_is_found_by_its_name() -> None:
    async with asking() as tool:
        for file in FILES:
            assert (await tool.files(fileByFilename=file.path))[0].name == file.path


async def test_the_details_of_errors_can_be_read_too() -> None:
    async with asking() as tool:
        (file,) = await tool.files(fileContainingSymbol="google.rpc.ErrorInfo")
        assert [field.name for field in file.message_type[0].field] == ["reason", "domain", "metadata"]


async def test_no_message_has_extensions() -> None:
    async with asking() as tool:
        answer = await tool.ask(allExtensionNumbersOfType="lf.a2a.v1.Task")
        assert answer["allExtensionNumbersResponse"] == {"baseTypeName": "lf.a2a.v1.Task"}
        extension = {"containingType": "lf.a2a.v1.Task", "extensionNumber": 100}
        assert await tool.error(fileContainingExtension=extension) == (5, "no message here has extensions")


async def test_what_is_not_there_is_an_error_after_which_the_stream_goes_on() -> None:
    async with asking() as tool:
        assert await tool.error(fileByFilename="a2a.proto") == (5, "there is no file 'a2a.proto' here")
        assert await tool.error(fileContainingSymbol="a2a.Task") == (5, "there is no symbol 'a2a.Task' here")
        assert await tool.error(allExtensionNumbersOfType="Task") == (5, "there is no message 'Task' here")
        assert (await tool.error())[0] == 3
        assert "listServicesResponse" in await tool.ask(listServices="*")


async def test_a_request_that_is_no_message_ends_the_stream() -> None:
    async with asking() as tool:
        await tool.stream.write(b"\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await tool.stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
