"""Measures what protobuf costs: our codec, beside the generated classes of a2a-sdk with protobuf's json_format.

    python -m bench.codec

It prints the CPU time of one message in microseconds, then what a megabyte made to be expensive takes, and runs for
ten seconds.
"""

from __future__ import annotations

import json
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bench import machine
from bench.environments import ROOT, peer_python
from dragoman.transports.grpc.codec import MalformedMessage, codec_of

_CODEC = codec_of("lf.a2a.v1")
_ROUNDS, _CALLS = 15, 2_000
_PEER = ROOT / "bench" / "callers" / "a2a_sdk_codec.py"
_PEER_SECONDS = 120

_TASK, _CONTEXT = "0a4f4f3e-6c9e-4a39-9f6b-7b0d9a2d2f11", "7c4f4f3e-6c9e-4a39-9f6b-7b0d9a2d2f12"
_STATUS = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-16T19:40:00.123Z"}
_MESSAGE: dict[str, Any] = {
    "messageId": "c14f4f3e-6c9e-4a39-9f6b-7b0d9a2d2f13",
    "role": "ROLE_USER",
    "parts": [{"text": "What is the weather in Paris tomorrow?"}],
}
_ANSWER = {
    "artifactId": "a-1",
    "name": "answer",
    "parts": [{"text": "Rain in the morning, and sun in the afternoon."}],
}
_IDS = {"taskId": _TASK, "contextId": _CONTEXT}
MESSAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "request": (
        "SendMessageRequest",
        {
            "message": {**_MESSAGE, "metadata": {"turn": 3, "score": 0.75, "language": "en"}},
            "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 10},
            "metadata": {"priority": 1},
        },
    ),
    "response": (
        "SendMessageResponse",
        {
            "task": {
                "id": _TASK,
                "contextId": _CONTEXT,
                "status": _STATUS,
                "artifacts": [_ANSWER],
                "history": [{**_MESSAGE, **_IDS}],
            }
        },
    ),
    "chunk": (
        "StreamResponse",
        {
            "artifactUpdate": {
                **_IDS,
                "artifact": {"artifactId": "a-1", "parts": [{"text": "x" * 40}]},
                "append": True,
            }
        },
    ),
    "status": ("StreamResponse", {"statusUpdate": {**_IDS, "status": _STATUS}}),
}

# Fields of few bytes, repeated: in lists, in JSON, one that replaces itself, an unknown one.
HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty messages": ("Task", b"\x2a\x00"),
    "empty strings": ("Message", b"\x3a\x00"),
    "empty objects": ("google.protobuf.ListValue", b"\x0a\x02\x2a\x00"),
    "empty keys": ("google.protobuf.Struct", b"\x0a\x00"),
    "numbers": ("google.protobuf.ListValue", b"\x0a\x09\x11" + bytes(6) + b"\xf0\x3f"),
    "the same time": ("TaskStatus", b"\x1a\x00"),
    "long numbers": ("TaskStatus", b"\x08" + b"\xff" * 9 + b"\x01"),
    "unknown": ("Task", b"\xa0\x06\x00"),
}
_MEGABYTE = 10**6


def main() -> None:
    """Measure both, and print them beside each other."""
    load = machine.load()
    ours = {name: _measure(kind, value) for name, (kind, value) in MESSAGES.items()}
    theirs = _measure_peer()
    print(f"CPU µs of one message, load {load:.1f}")
    print("            bytes   ours: decode encode   a2a-sdk: parse decode encode   times: decode encode")
    for name, (decoded, encoded) in ours.items():
        kind, value = MESSAGES[name]
        peer = theirs[name]
        print(
            f"{name:10} {len(_CODEC.encode(kind, value)):6} {decoded:14.1f} {encoded:6.1f}"
            f" {peer['parse']:16.1f} {peer['decode']:6.1f} {peer['encode']:6.1f}"
            f" {peer['decode'] / decoded:15.1f} {peer['encode'] / encoded:6.1f}"
        )
    server, client = ours["request"][0] + ours["response"][1], ours["request"][1] + ours["response"][0]
    print(f"SendMessage, request and response: server {server:.1f}, client {client:.1f}")
    print("a megabyte of    CPU ms   MB of memory")
    for name, (kind, field) in HOSTILE.items():
        seconds, memory = _endure(kind, field * (_MEGABYTE // len(field)))
        print(f"{name:15} {seconds * 1e3:7.0f} {memory / 1e6:14.0f}")


def _endure(kind: str, data: bytes) -> tuple[float, int]:
    """The CPU time and the memory of decoding a message, whether or not it is refused."""
    began = time.process_time()
    with suppress(MalformedMessage):
        _CODEC.decode(kind, data)
    seconds = time.process_time() - began
    tracemalloc.start()
    with suppress(MalformedMessage):
        _CODEC.decode(kind, data)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, memory


def _measure(kind: str, value: dict[str, Any]) -> tuple[float, float]:
    data = _CODEC.encode(kind, value)
    return _cost(lambda: _CODEC.decode(kind, data)), _cost(lambda: _CODEC.encode(kind, value))


def _cost(function: Callable[[], object]) -> float:
    """The CPU time of one call, in the fastest of many rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_CALLS):
            function()
        best = min(best, (time.process_time() - began) / _CALLS)
    return best * 1e6


def _measure_peer() -> dict[str, dict[str, float]]:
    python = peer_python("a2a-sdk-bench", "a2a-sdk")
    done = subprocess.run(
        [python, _PEER], input=json.dumps(MESSAGES), capture_output=True, text=True, check=True, timeout=_PEER_SECONDS
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
