"""Long streams over gRPC whose readers are slow: what the server holds for them, and what others notice."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest
from bench.agents.words import chunk_text
from bench.contestants import Contestant
from bench.proc import resident_mb
from bench.server import running
from wire.grpc_reader import GrpcReader, StreamReader, grpc_reader

pytestmark = pytest.mark.soak

SERVER = Contestant("dragoman gRPC", "bench.agents.dragoman_grpc", Path(sys.executable), "sqlite", grpc=True)
CHUNKS = 50_000
STALLED = 20
# All chunks of a stream are 8 MB on the wire; HTTP/2 lets 64 KiB be sent ahead.
MB_EACH = 0.5
# What the server needs for its work, with or without slow readers.
MB_FOR_WORK = 40.0
# Readers who leave, and how much memory of the server each may cost for good. grpcio loses some with every call that
# ends in the middle of an operation (grpc/grpc#43360); a server that lost a call itself would lose many times as much.
LEAVING, KB_EACH = 20_000, 0.5


async def _stall(stack: AsyncExitStack, address: str) -> StreamReader:
    reader = await stack.enter_async_context(grpc_reader(address))
    stream = reader.stream("count", n=CHUNKS)
    assert "task" in (await stream.read() or {})
    return stream


async def _latency(reader: GrpcReader, calls: int = 300) -> float:
    """The median of the seconds that a call takes."""
    taken: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        await reader.send("echo", text="hello")
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def _wait_until_done(reader: GrpcReader) -> None:
    """Wait until all output of the agent is in the store, read or not."""
    while await reader.working():
        await _latency(reader, calls=20)


@pytest.mark.timeout(600)
async def test_fifty_thousand_chunks_for_slow_readers_are_not_held_in_memory_and_delay_nobody(tmp_path: Path) -> None:
    with running(SERVER, tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with AsyncExitStack() as stack:
            caller = await stack.enter_async_context(grpc_reader(address))
            alone = await _latency(caller)
            before = resident_mb(server.pid)
            streams = [await _stall(stack, address) for _ in range(STALLED)]
            await _wait_until_done(caller)
            held = resident_mb(server.pid) - before
            beside = await _latency(caller)
            print(f"{STALLED} stalled readers of {CHUNKS:,} chunks: {held:.1f} MB; a call takes {beside / alone:.2f}x")
            assert held < MB_FOR_WORK + STALLED * MB_EACH
            assert beside < 3 * alone
            # The first of them goes on, and finds everything.
            texts = [text async for text in streams[0].texts()]
            assert texts[:CHUNKS] == [chunk_text(number) for number in range(CHUNKS)]
            for stream in streams[1:]:
                stream.leave()
            assert await _latency(caller) < 3 * alone


async def _leave(reader: GrpcReader, task_id: str, times: int) -> None:
    """Follow a task that says nothing more, and leave: by canceling, and by a deadline that passes."""
    for number in range(times):
        if number % 2:
            stream = reader.subscribe(task_id)
            await stream.read()
            stream.leave()
            continue
        stream = reader.subscribe(task_id, timeout=0.05)
        with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            while await stream.read() is not None:
                pass


@pytest.mark.timeout(600)
async def test_readers_who_leave_cost_next_to_no_memory(tmp_path: Path) -> None:
    with running(SERVER, tmp_path) as server:
        async with grpc_reader(f"127.0.0.1:{server.port}") as caller:
            waiting = caller.stream("parade", n=1, pace=0)
            event = await waiting.read()
            assert event is not None
            task_id = event["task"]["id"]
            await asyncio.gather(*(_leave(caller, task_id, LEAVING // 40) for _ in range(20)))
            before = resident_mb(server.pid)
            await asyncio.gather(*(_leave(caller, task_id, LEAVING // 20) for _ in range(20)))
            lost = (resident_mb(server.pid) - before) * 1024 / LEAVING
            print(f"{LEAVING:,} readers who left: {lost:.3f} KB each")
            assert lost < KB_EACH
