"""A channel of grpcio to one origin, which the calls to it share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Metadata = tuple[tuple[str, str | bytes], ...]


class GrpcChannel:
    """A channel to one origin. Once it is retired no new call uses it, and it closes with its last call."""

    def __init__(self, grpc: Any, channel: Any, forget: Callable[[], object]) -> None:
        self.grpc = grpc
        self._channel = channel
        self._forget = forget
        self._methods: dict[tuple[str, bool], Any] = {}
        self._calls = 0
        self._is_retired = False
        self.is_closed = False

    @property
    def is_ready(self) -> bool:
        """True while it is connected."""
        return not self.is_closed and self._channel.get_state() is self.grpc.ChannelConnectivity.READY

    async def connect(self, seconds: float | None) -> None:
        """Begin a call, to be ended with `end`: connect, unless it is connected. If that fails, the call will say why.

        Raises:
            TimeoutError: it took longer than so many seconds.
        """
        self._calls += 1
        states = self.grpc.ChannelConnectivity
        async with asyncio.timeout(seconds):
            while (state := self._channel.get_state(try_to_connect=True)) in (states.IDLE, states.CONNECTING):
                await self._channel.wait_for_state_change(state)

    def begin(self, path: str, message: bytes, metadata: Metadata, *, streams: bool, timeout: float | None) -> Any:
        """Send the request of a call that has begun with `connect`."""
        method = self._methods.get((path, streams))
        if method is None:
            make = self._channel.unary_stream if streams else self._channel.unary_unary
            method = self._methods[path, streams] = make(path)
        return method(message, metadata=metadata, timeout=timeout)

    async def end(self, *, retire: bool = False) -> None:
        """End a call; with `retire`, the next one gets a channel of its own."""
        self._calls -= 1
        if retire and not self._is_retired:
            self._is_retired = True
            self._forget()
        if self._is_retired and not self._calls:
            await self.close()

    async def close(self) -> None:
        """Close the channel; its calls fail."""
        self.is_closed = True
        await self._channel.close()
