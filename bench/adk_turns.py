"""Turns of ADK agents: a process of its own on the last core. An order comes on stdin, outcomes go to stdout.

Servers are asked in turn, a short burst each: what disturbs the machine disturbs all of them.
"""

from __future__ import annotations

import sys
import time
from itertools import count

import msgspec
import uvloop
from msgspec import Struct

from bench import cores, wire
from bench.adk_line import Line, line_to
from bench.agents.words import TOOL, adk_chunk_text, echo_text
from bench.job import Outcome
from bench.proc import cpu_exactly, peak_mb
from bench.replies import Wrong
from bench.stats import percentile

TURNS = 15


class Place(Struct, frozen=True):
    """Where a server is. A bare one runs a burst of turns for one request, and tells their times."""

    port: int
    pid: int
    bare: bool


class Case(Struct, frozen=True):
    """What a turn is: with a tool, without, or a stream of so many chunks."""

    tool: bool = False
    chunks: int = 0


class Order(Struct, frozen=True):
    """Who is asked, what, and how often."""

    places: dict[str, Place]
    cases: dict[str, Case]
    bursts: int


Found = dict[str, dict[str, list[Outcome]]]
_numbers = count(1)


def texts_of(case: Case) -> list[tuple[str, str]]:
    """What is said in a burst, and what the answers must be."""
    if case.chunks:
        return [(f"count {case.chunks}", "".join(adk_chunk_text(number) for number in range(case.chunks)))]
    echoes = [echo_text(next(_numbers)) for _ in range(TURNS)]
    return [(TOOL + text if case.tool else text, text) for text in echoes]


async def burst(line: Line, place: Place, case: Case) -> Outcome:
    """Some turns, one after the other."""
    asked = texts_of(case)
    received, own, cpu = line.received, time.process_time(), cpu_exactly(place.pid)
    seconds: list[float] = []
    error = ""
    try:
        if place.bare:
            seconds = await _bare(line, case, asked)
        else:
            for text, wanted in asked:
                began = time.perf_counter()
                await _turn(line, case, text, wanted)
                seconds.append(time.perf_counter() - began)
    except (Wrong, ConnectionError) as wrong:
        error = str(wrong) or type(wrong).__name__
    return Outcome(
        requests=len(seconds),
        seconds=sum(seconds),
        cpu_seconds=cpu_exactly(place.pid) - cpu,
        generator_cpu_seconds=time.process_time() - own,
        errors=1 if error else 0,
        first_error=error,
        peak_mb=peak_mb(place.pid),
        p50_ms=percentile(sorted(seconds), 50) * 1000,
        events=case.chunks * len(seconds),
        received_bytes=line.received - received,
    )


async def _turn(line: Line, case: Case, text: str, wanted: str) -> None:
    if case.chunks:
        said, chunks = await line.stream(text)
        if chunks != case.chunks:
            raise Wrong(f"{chunks} chunks, not {case.chunks}")
    else:
        said = await line.say(text)
    if said != wanted:
        raise Wrong(f"not what was to be said: {said[:80]!r}")


async def _bare(line: Line, case: Case, asked: list[tuple[str, str]]) -> list[float]:
    order = {"texts": [text for text, _ in asked], "stream": bool(case.chunks)}
    answer = msgspec.json.decode(await line.ask(wire.http(msgspec.json.encode(order))))
    if answer["said"] != [wanted for _, wanted in asked]:
        raise Wrong("not what was to be said")
    return answer["seconds"]


async def measure(order: Order) -> Found:
    """Ask everybody in turn. The first burst of each is a warm-up."""
    lines = {name: await line_to(place.port) for name, place in order.places.items()}
    found: Found = {case: {name: [] for name in lines} for case in order.cases}
    for number in range(order.bursts + 1):
        for case, what in order.cases.items():
            for name, line in lines.items():
                outcome = await burst(line, order.places[name], what)
                if number or outcome.errors:
                    found[case][name].append(outcome)
    for line in lines.values():
        line.close()
    return found


def main() -> None:
    """Take the order, do it, write what came of it."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    cores.pin(cores.load_core())
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(measure(order))))


if __name__ == "__main__":
    main()
