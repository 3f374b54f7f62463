"""Long streams over gRPC whose readers are slow: what the server holds for them, and what others notice."""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from bench.agents.words import chunk_text
from bench.contestants import Contestant
from bench.proc import resident_mb
from bench.server import running
from tests.wire.grpc_reader import GrpcReader, StreamReader, grpc_reader

pytestmark = pytest.mark.soak

SERVER = Contestant("dragoman gRPC", "bench.agents.dragoman_grpc", Path(sys.executable), "sqlite", grpc=True)
CHUNKS = 50_000
STALLED = 20
# All chunks of a stream are 8 MB on the wire; HTTP/2 lets 64 KiB be sent ahead.
MB_EACH = 0.5
# What the server needs for its work, with or without slow readers.
MB_FOR_WORK = 40.0


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
    """Wait until the agent has said everything to the store, whoever reads it."""
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
