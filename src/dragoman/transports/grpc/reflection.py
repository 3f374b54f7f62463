"""Shows tools the schemas of this server, in both versions of gRPC's reflection.

What is shown is public in the specification, the same on every server, so callers need no credentials for it.
"""

from __future__ import annotations

from binascii import b2a_base64
from functools import cache
from typing import TYPE_CHECKING, Any

import grpc

from dragoman.dialects.protobuf.files import FILES, MESSAGES
from dragoman.dialects.protobuf.grpc import OLDER_REFLECTION, REFLECTION
from dragoman.transports.grpc.codec import Codec, MalformedMessage, codec_of
from dragoman.transports.grpc.descriptors import descriptors_of, file_containing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

_SERVICES = [{"name": name} for name in sorted(each.full_name for file in FILES for each in file.services.values())]
_INVALID_ARGUMENT: int = grpc.StatusCode.INVALID_ARGUMENT.value[0]
_NOT_FOUND: int = grpc.StatusCode.NOT_FOUND.value[0]


def reflection_methods() -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    """Return the handlers of reflection, by path."""
    return {
        f"/{package}.ServerReflection/ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
            _Answers(codec_of(package)).stream
        )
        for package in (REFLECTION, OLDER_REFLECTION)
    }


class _Answers:
    """Answers the questions of one package: its messages have another name, and are the same."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    async def stream(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        """Answer each question as it comes. One that has no answer gets an error, and the stream goes on."""
        async for data in requests:
            try:
                request = self._codec.decode("ServerReflectionRequest", data)
            except MalformedMessage as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message cannot be read: {error}")
            response = {"validHost": request.get("host", ""), "originalRequest": request, **_answer(request)}
            yield self._codec.encode("ServerReflectionResponse", response)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    for question, answer in _ANSWERS.items():
        if question in request:
            try:
                return answer(request[question])
            except KeyError:
                return _error(_NOT_FOUND, _describe(question, request[question]))
    return _error(_INVALID_ARGUMENT, f"ask for one of {', '.join(_ANSWERS)}")


def _list_services(_: str) -> dict[str, Any]:
    return {"listServicesResponse": {"service": _SERVICES}}


def _file_by_name(path: str) -> dict[str, Any]:
    return {"fileDescriptorResponse": {"fileDescriptorProto": _files(path)}}


def _file_containing_symbol(symbol: str) -> dict[str, Any]:
    return _file_by_name(file_containing(symbol.removeprefix(".")))


def _file_containing_extension(extension: dict[str, Any]) -> dict[str, Any]:
    # The messages of proto3 have no extensions.
    raise KeyError(extension)


def _extension_numbers(message: str) -> dict[str, Any]:
    name = MESSAGES[message.removeprefix(".")].full_name
    return {"allExtensionNumbersResponse": {"baseTypeName": name}}


_ANSWERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "listServices": _list_services,
    "fileByFilename": _file_by_name,
    "fileContainingSymbol": _file_containing_symbol,
    "fileContainingExtension": _file_containing_extension,
    "allExtensionNumbersOfType": _extension_numbers,
}


@cache
def _files(path: str) -> Sequence[str]:
    """Return a file and all that it imports. Some tools take the first one for the file they asked for."""
    return [b2a_base64(each, newline=False).decode() for each in reversed(descriptors_of(path))]


def _describe(question: str, asked: object) -> str:
    if isinstance(asked, dict):
        return "no message here has extensions"
    kinds = {"fileByFilename": "file", "fileContainingSymbol": "symbol", "allExtensionNumbersOfType": "message"}
    return f"there is no {kinds[question]} {str(asked)[:200]!r} here"


def _error(code: int, message: str) -> dict[str, Any]:
    return {"errorResponse": {"errorCode": code, "errorMessage": message}}
