"""Health over gRPC: what load balancers, Kubernetes and grpcurl ask for, and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from dragoman.testing import Clock
from dragoman.transports.grpc import health as health_module
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.grpc.health import LIVENESS, HealthService

SERVICE = "lf.a2a.v1.A2AService"
CODEC = codec_of("grpc.health.v1")


class Health:
    """A server, with the health that a test gives it, and a caller of it."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock) -> None:
        self.clock = clock
        self.ready = True
        self.looks = 0
        self.service = HealthService(self.is_ready, [SERVICE], clock)
        self._channel = channel

    async def is_ready(self) -> bool:
        self.looks += 1
        return self.ready

    async def check(self, service: str) -> str:
        call: Any = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        return status_of(await call(question(service)))

    async def list(self) -> dict[str, Any]:
        call: Any = self._channel.unary_unary("/grpc.health.v1.Health/List")
        return CODEC.decode("HealthListResponse", await call(b""))["statuses"]

    def watch(self, service: str) -> Any:
        call: Any = self._channel.unary_stream("/grpc.health.v1.Health/Watch")
        return call(question(service))


def question(service: str) -> bytes:
    return CODEC.encode("HealthCheckRequest", {"service": service})


def status_of(data: bytes) -> str:
    return CODEC.decode("HealthCheckResponse", data)["status"]


@asynccontextmanager
async def served_health() -> AsyncIterator[Health]:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = Health(channel, Clock())

        class Handlers(grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                return health.service.methods().get(handler_call_details.method)

        server.add_generic_rpc_handlers((Handlers(),))
        await server.start()
        try:
            yield health
        finally:
            health.service.close()
            await server.stop(None)


async def test_a_server_is_healthy_as_long_as_it_is_ready() -> None:
    async with served_health() as health:
        assert [await health.check(name) for name in ("", SERVICE)] == ["SERVING", "SERVING"]
        health.ready = False
        assert [await health.check(name) for name in ("", SERVICE)] == ["NOT_SERVING", "NOT_SERVING"]


async def test_a_server_that_is_not_ready_is_alive_and_not_to_be_restarted() -> None:
    async with served_health() as health:
        health.ready = False
        assert await health.check(LIVENESS) == "SERVING"


async def test_a_service_that_is_not_there_is_not_found() -> None:
    async with served_health() as health:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.check("a2a.A2AService")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "there is no service 'a2a.A2AService' here"


async def test_the_list_has_every_service() -> None:
    async with served_health() as health:
        health.ready = False
        assert await health.list() == {
            "": {"status": "NOT_SERVING"}, SERVICE: {"status": "NOT_SERVING"}, LIVENESS: {"status": "SERVING"},
        }  # fmt: skip


async def test_a_watch_reports_each_change_and_nothing_else() -> None:
    async with served_health() as health:
        watches = [health.watch(name) for name in ("", SERVICE)]
        assert [status_of(await watch.read()) for watch in watches] == ["SERVING", "SERVING"]
        await health.clock.advance(60)
        health.ready = False
        await health.clock.advance(60)
        assert [status_of(await watch.read()) for watch in watches] == ["NOT_SERVING", "NOT_SERVING"]
        health.ready = True
        await health.service.look()
        assert [status_of(await watch.read()) for watch in watches] == ["SERVING", "SERVING"]


async def test_one_check_serves_all_watches_and_none_runs_without_a_watch() -> None:
    async with served_health() as health:
        watches = [health.watch("") for _ in range(5)]
        for watch in watches:
            await watch.read()
        looks = health.looks
        await health.clock.advance(2)
        assert health.looks == looks + 1
        for watch in watches:
            watch.cancel()
        while health.clock.pending:  # noqa: ASYNC110 - until the server has seen that they are gone
            await asyncio.sleep(0)
        looks = health.looks
        await health.clock.advance(60)
        assert health.looks == looks


async def test_a_watch_of_an_unknown_service_says_so_and_stays_open() -> None:
    async with served_health() as health:
        watch = health.watch("later.Service")
        assert status_of(await watch.read()) == "SERVICE_UNKNOWN"
        health.ready = False
        await health.service.look()
        assert not watch.done()


async def test_a_server_that_stops_ends_every_watch_after_its_last_news() -> None:
    async with served_health() as health:
        watch = health.watch("")
        assert status_of(await watch.read()) == "SERVING"
        health.ready = False
        await health.service.look()
        assert status_of(await watch.read()) == "NOT_SERVING"
        health.service.close()
        with pytest.raises(grpc.aio.AioRpcError, match="the server is stopping"):
            await watch.read()
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE


async def test_only_so_many_may_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "MAX_WATCHES", 1)
    async with served_health() as health:
        first = health.watch("")
        assert status_of(await first.read()) == "SERVING"
        second = health.watch("")
        with pytest.raises(grpc.aio.AioRpcError):
            await second.read()
        assert await second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_request_that_is_no_message_is_refused() -> None:
    async with served_health() as health:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health._channel.unary_unary("/grpc.health.v1.Health/Check")(b"\xff")  # type: ignore[attr-defined]
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
