"""Servers on the loop of a test, and a caller that sees all of a gRPC call: its outcome, details and metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import grpc
import grpc.aio

from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.method import METHODS

MODERN, OLD = "lf.a2a.v1.A2AService", "a2a.v1.A2AService"
# Each caller has connections of its own.
OWN = ("grpc.use_local_subchannel_pool", 1)


class GrpcOutcome(NamedTuple):
    """How a call ended: its status by name, its text, what came, and all metadata of the response."""

    status: str
    text: str
    value: dict[str, Any]
    metadata: list[tuple[str, str | bytes]]

    @property
    def details(self) -> list[dict[str, Any]]:
        """The details of the error."""
        encoded = dict(self.metadata)["grpc-status-details-bin"]
        assert isinstance(encoded, bytes)
        return codec_of("google.rpc").decode("Status", encoded)["details"]

    @property
    def reason(self) -> str:
        """The reason of the error."""
        return self.details[0]["reason"]

    def all(self, name: str) -> list[str | bytes]:
        """All values of a name in the metadata."""
        return [value for key, value in self.metadata if key == name]


class RawCaller:
    """Calls a server by paths, with messages as JSON values or as bytes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def call(self, method: str, value: Any = b"", *, service: str = MODERN, **options: Any) -> GrpcOutcome:
        """Make a call whose response is one message."""
        path = f"/{service}/{method}"
        answer = self.begin(method, value, service=service, **options)
        try:
            data = await answer
        except grpc.aio.AioRpcError as error:
            metadata = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
            return GrpcOutcome(error.code().name, error.details() or "", {}, metadata)
        metadata = [*await answer.initial_metadata(), *await answer.trailing_metadata()]
        return GrpcOutcome("OK", "", METHODS[path].codec.decode(METHODS[path].response, data), metadata)

    def begin(self, method: str, value: Any = b"", *, service: str = MODERN, **options: Any) -> Any:
        """Begin a call whose response is one message."""
        path = f"/{service}/{method}"
        options["metadata"] = options.get("metadata", ())
        return self.channel.unary_unary(path)(encode(path, value), **options)

    def stream(self, method: str, value: Any, *, service: str = MODERN, **options: Any) -> Any:
        """Begin a call whose response is a stream."""
        path = f"/{service}/{method}"
        return self.channel.unary_stream(path)(encode(path, value), **options)


def encode(path: str, value: Any) -> bytes:
    """The bytes of the message that a method takes."""
    return value if isinstance(value, bytes) else METHODS[path].codec.encode(METHODS[path].request, value)


def message(text: str = "hi", skill: str | None = None, **more: Any) -> dict[str, Any]:
    """A SendMessageRequest; `more` are its other members."""
    metadata = {} if skill is None else {"metadata": {"skillId": skill}}
    sent = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **metadata}
    return {"message": sent | more.pop("message", {}), **more}


@asynccontextmanager
async def serving(source: Any, **settings: Any) -> AsyncIterator[Any]:
    """Serve an agent or a server over gRPC on the running loop, and give its app."""
    app = source.app(**{"store": "memory:", "grpc": "127.0.0.1:0", "drain": 0, **settings})
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


@asynccontextmanager
async def calling(app: Any, credentials: Any = None, *options: tuple[str, Any]) -> AsyncIterator[RawCaller]:
    """Call an app on a connection of its own."""
    given = [OWN, *options]
    address = app.grpc_address
    channel = (
        grpc.aio.insecure_channel(address, given)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, given)
    )
    async with channel:
        yield RawCaller(channel)
