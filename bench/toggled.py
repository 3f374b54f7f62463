"""What telemetry costs in one process, where it is turned on and off again and again.

    python -m bench.toggled [--rounds 60] [--store memory|sqlite]

The scenario `telemetry` of bench.compare measures whole servers, as users run them. Processes differ by a few percent
for no reason, so that it takes many of them to see a few percent. Here there is one process without HTTP: short blocks
of SendMessage, with telemetry off, with metrics, and with traces that nobody samples, in alternation. The CPU time of
each block is compared with that of the block with telemetry off in its round.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from bench import wire
from bench.agents import dragoman_echo
from bench.stats import ratios, spread
from bench.tables import ranged, table
from dragoman.telemetry.metrics import METRICS
from dragoman.telemetry.spans import TRACING

OFF, METRICS_ON, UNSAMPLED = "off", "metrics", "traces, none sampled"
MODES = (OFF, METRICS_ON, UNSAMPLED)
CALLERS = 8
REQUESTS = 20
WARMUP_BLOCKS = 3

Message = MutableMapping[str, Any]


class Toggled:
    """The app, and the bytes of requests to it."""

    def __init__(self, store: str) -> None:
        self._app: Any = dragoman_echo.app(store)
        self._messages = wire.Messages("uuid", "")

    async def __aenter__(self) -> Toggled:
        self._lifespan: asyncio.Queue[Message] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._lifespan.put_nowait({"type": "lifespan.startup"})
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._task = asyncio.create_task(self._app(scope, self._lifespan.get, self._note))
        await self._changed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lifespan.put_nowait({"type": "lifespan.shutdown"})
        await self._task

    async def _note(self, _: Message) -> None:
        self._changed.set()

    async def block(self, mode: str) -> float:
        """Send some messages in a mode; gives the CPU time of one, in microseconds."""
        METRICS.on, TRACING.on = mode == METRICS_ON, mode == UNSAMPLED
        before = time.process_time()
        await asyncio.gather(*(self._caller() for _ in range(CALLERS)))
        spent = time.process_time() - before
        METRICS.on = TRACING.on = False
        return spent / (CALLERS * REQUESTS) * 1e6

    async def _caller(self) -> None:
        for _ in range(REQUESTS):
            await self._send()

    async def _send(self) -> None:
        """Send one message. Raises RuntimeError when the response is not 200."""
        head, _, body = self._messages.echo()[0].partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        path = first.split()[1].decode()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
            "asgi": {"version": "3.0"},
            "extensions": {},
            "state": {},
        }
        sent: list[Message] = []
        arrived = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            message = next(arrived, None)
            if message is None:
                await asyncio.get_running_loop().create_future()  # the caller stays
            return message or {}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        if sent[0]["status"] != 200:
            raise RuntimeError(f"HTTP {sent[0]['status']}: {sent[1]['body'][:200]!r}")


async def measure(store: str, rounds: int) -> dict[str, list[float]]:
    """CPU time per message, by mode, one figure per round."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    async with Toggled(store) as toggled:
        for _ in range(WARMUP_BLOCKS):
            for mode in MODES:
                await toggled.block(mode)
        for number in range(rounds):
            for mode in MODES if number % 2 else MODES[::-1]:
                found[mode].append(await toggled.block(mode))
    return found


def text(found: dict[str, list[float]]) -> str:
    """The table: medians over the rounds, and ratios round by round."""
    rows = [
        [mode, ranged(spread(values)), f"{ratios(values, found[OFF]).median:.3f}"] for mode, values in found.items()
    ]
    return table(["telemetry", "CPU µs per message", "of off"], rows)


def _trace_nothing() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    trace.set_tracer_provider(TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.0))))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.toggled", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    options = parser.parse_args()
    _trace_nothing()
    with tempfile.TemporaryDirectory(prefix="toggled-") as folder:
        store = "memory" if options.store == "memory" else str(Path(folder) / "tasks.db")
        print(text(asyncio.run(measure(store, options.rounds))))
    print(f"\nrounds: {options.rounds}; {CALLERS * REQUESTS} messages a block, {options.store}", file=sys.stderr)


if __name__ == "__main__":
    main()
