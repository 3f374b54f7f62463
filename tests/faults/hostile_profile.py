"""A command-line agent gone wrong: the first word of its prompt says how, the first argument whose lines it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

# How each program says a piece of its answer, and how it ends.
SAYS: dict[str, Any] = {
    "codex": lambda text: {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": text}},
    "gemini": lambda text: {"type": "message", "role": "assistant", "content": text},
    "opencode": lambda text: {"type": "text", "sessionID": "s", "part": {"id": "p", "text": text}},
    "claude": lambda text: {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}},
}
ENDS: dict[str, Any] = {
    "codex": {"type": "turn.completed"},
    "gemini": {"type": "result", "status": "success"},
    "opencode": {"type": "step_finish", "part": {"reason": "stop"}},
    "claude": {"type": "result", "subtype": "success"},
}
PROBLEM: dict[str, Any] = {
    "codex": lambda text: {"type": "turn.failed", "error": {"message": text}},
    "gemini": lambda text: {"type": "result", "status": "error", "error": {"type": "E", "message": text}},
    "opencode": lambda text: {"type": "error", "error": {"name": "E", "data": {"message": text}}},
    "claude": lambda text: {"type": "result", "subtype": "error", "is_error": True, "error": text},
}
WHO, OUT = sys.argv[1], sys.stdout.buffer


def line(value: Any) -> bytes:
    return (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n"


def answer(text: str) -> None:
    OUT.write(line(SAYS[WHO](text)) + line(ENDS[WHO]))
    OUT.flush()


def endless_line() -> None:
    while True:
        OUT.write(b'{"type": "' + b"x" * 65536)


def endless_lines() -> None:
    while True:
        OUT.write(line(SAYS[WHO]("word ")) * 1000)


def no_json() -> None:
    OUT.write(b"Traceback (most recent call last)\n{]\n[1,2\n\0\0\n" + b'{"type": 5}\n{"type": {"type": []}}\n')
    answer("fine")


def no_text() -> None:
    output = line(SAYS[WHO]("ABC"))
    OUT.write(output.replace(b"ABC", b"\xff\xfe\x80") + output.replace(b"ABC", b"\\ud800"))
    answer("fine")


def tiny_pieces() -> None:
    for _ in range(150):
        OUT.write(line(SAYS[WHO]("x")) * 1000)
    OUT.write(line(ENDS[WHO]))


def nested() -> None:
    OUT.write(b'{"type": ' * 100_000 + b"\n" + b'{"type": "error", "error": ' + b"[" * 50_000 + b"\n")
    OUT.write(b'{"type": "' + SAYS[WHO]("x")["type"].encode() + b'", "n": ' + b"9" * 5000 + b', "m": NaN}\n')
    answer("fine")


def breaks_off() -> None:
    OUT.write(line(SAYS[WHO]("half of it")) + line(SAYS[WHO]("the rest"))[:20])
    OUT.flush()
    print("out of luck", file=sys.stderr, flush=True)
    os._exit(3)


def long_problem() -> None:
    OUT.write(line(PROBLEM[WHO]("\x1b[31mno\x07 " + "x" * 5_000_000)))


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


def leaves_a_child() -> None:
    # It keeps all pipes open.
    subprocess.Popen(["sleep", "1000"])
    answer("fine")


def babbles_on_stderr() -> None:
    for _ in range(300):
        os.write(2, b"\x1b[2J progress " * 10_000)
    answer("fine")


def environment() -> None:
    answer(json.dumps(dict(os.environ)))


def controls() -> None:
    answer("\x1b]0;title\x07\x1b[2J\u202eevil\u202c\x00\x08 fine")


if __name__ == "__main__":
    globals()[sys.stdin.readline().split()[0]]()
    OUT.flush()
