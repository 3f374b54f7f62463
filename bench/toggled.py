"""What telemetry costs in one process, where it is turned on and off again and again.

    python -m bench.toggled [--rounds 60] [--work send|stream] [--store memory|sqlite] [--only MODE]

The scenario `telemetry` of bench.compare measures whole servers, as users run them. Processes differ by a few percent
for no reason, so that it takes many of them to see a few percent. Here there is one process without HTTP: short blocks
of SendMessage, or of streams, with telemetry off, with metrics, and with traces that nobody samples, in alternation.
The CPU time of each block is compared with that of the block with telemetry off in its round.

On a busy machine even that scatters. What does not is the number of instructions: `--only` stays in one mode, so that
`valgrind --tool=callgrind` can count those of more and of fewer rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import wire
from bench.agents import dragoman_echo
from bench.stats import ratios, spread
from bench.tables import ranged, table
from dragoman.telemetry.metrics import METRICS
from dragoman.telemetry.spans import TRACING

OFF, METRICS_ON, UNSAMPLED = "off", "metrics", "traces, none sampled"
MODES = (OFF, METRICS_ON, UNSAMPLED)
COMPLETED = b"TASK_STATE_COMPLETED"
WARMUP_BLOCKS = 3

Message = MutableMapping[str, Any]


class Work(NamedTuple):
    """What a block is: so many callers, each with so many requests, of which each is so many units of work."""

    unit: str
    callers: int
    requests: int
    chunks: int = 0

    @property
    def units(self) -> int:
        """How many there are in a block."""
        return self.callers * self.requests * (self.chunks or 1)


WORKS = {"send": Work("message", 8, 20), "stream": Work("chunk", 4, 1, 500)}


class Toggled:
    """The app, and the bytes of requests to it."""

    def __init__(self, store: str, work: Work) -> None:
        self._work = work
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
        """Do some work in a mode; gives the CPU time of one unit of it, in microseconds."""
        METRICS.on, TRACING.on = mode == METRICS_ON, mode == UNSAMPLED
        before = time.process_time()
        await asyncio.gather(*(self._caller() for _ in range(self._work.callers)))
        spent = time.process_time() - before
        METRICS.on = TRACING.on = False
        return spent / self._work.units * 1e6

    async def _caller(self) -> None:
        for _ in range(self._work.requests):
            await self._send()

    def _message(self) -> bytes:
        chunks = self._work.chunks
        return self._messages.tool("count", stream=True, n=chunks) if chunks else self._messages.echo()[0]

    async def _send(self) -> None:
        """Send one message. Raises RuntimeError when the response is not 200, or a stream is not complete."""
        head, _, body = self._message().partition(b"\r\n\r\n")
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
        if self._work.chunks and not any(COMPLETED in message.get("body", b"") for message in sent[-3:]):
            raise RuntimeError(f"the stream ends with {sent[-1]['body'][-200:]!r}")


async def measure(
    store: str, rounds: int, work: Work = WORKS["send"], modes: Sequence[str] = MODES
) -> dict[str, list[float]]:
    """CPU time per message or chunk, by mode, one figure per round."""
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    async with Toggled(store, work) as toggled:
        for _ in range(WARMUP_BLOCKS):
            for mode in modes:
                await toggled.block(mode)
        for number in range(rounds):
            for mode in modes if number % 2 else modes[::-1]:
                found[mode].append(await toggled.block(mode))
    return found


def text(found: dict[str, list[float]], unit: str = "message") -> str:
    """The table: medians over the rounds, and ratios round by round."""
    rows = [
        [mode, ranged(spread(values)), f"{ratios(values, found[OFF]).median:.3f}" if OFF in found else ""]
        for mode, values in found.items()
    ]
    return table(["telemetry", f"CPU µs per {unit}", "of off"], rows)


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
    parser.add_argument("--work", choices=tuple(WORKS), default="send")
    parser.add_argument("--only", choices=MODES, metavar="MODE", help="stay in one mode: " + ", ".join(MODES))
    options = parser.parse_args()
    work, modes = WORKS[options.work], (options.only,) if options.only else MODES
    _trace_nothing()
    with tempfile.TemporaryDirectory(prefix="toggled-") as folder:
        store = "memory" if options.store == "memory" else str(Path(folder) / "tasks.db")
        print(text(asyncio.run(measure(store, options.rounds, work, modes)), work.unit))
    print(f"\nrounds: {options.rounds}; {work.units} {work.unit}s a block, {options.store}", file=sys.stderr)


if __name__ == "__main__":
    main()
