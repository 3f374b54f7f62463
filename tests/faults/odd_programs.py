"""Programs that servers have trouble with, as tables of the settings file.

Each is sent the path of a pipe with a name, which it holds from then on, with everything it starts, and to which it
writes a line when it is ready.
"""

from __future__ import annotations

import sys
from typing import Any


def sh(script: str, *words: str, **options: Any) -> dict[str, Any]:
    """A shell script as an agent; an interactive one is soon taken to wait."""
    quiet = {"limits": {"quiet": 0.1}} if options.get("input") == "interactive" else {}
    return {"command": ["sh", "-c", script, "sh", *words], **quiet, **options}


def python(code: str, *words: str, **options: Any) -> dict[str, Any]:
    """Python code as an agent."""
    return {"command": [sys.executable, "-ISc", code, *words], **options}


_HOLD = 'read path; exec 9>"$path"'

# Waits for the pipe beside, and ends.
PATIENT = sh(f'{_HOLD}; echo ready >&9; read line <"$path.go"; echo "done: $path"')

STUBBORN = sh(f"trap '' TERM; {_HOLD}; echo ready >&9; exec sleep 1000")

FAMILY = sh(f"{_HOLD}; sleep 1000 & (trap '' TERM; sleep 1000 & sleep 1000) & echo ready >&9; wait")

LEAVES = sh(f"{_HOLD}; sleep 1000 & (trap '' TERM; exec sleep 1000) & echo ready >&9; echo done")

# The program goes on once its daemon is there: what has not begun yet may be ended before it says a word.
_DAEMON = """
import os, signal, sys
leash = os.open(sys.stdin.readline().strip(), os.O_WRONLY)
begun, begin = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.closerange(0, 3)
    os.write(leash, b"daemon\\n")
    os.close(begin)
    signal.pause()
os.close(begin)
os.wait()
os.read(begun, 1)
os.write(leash, b"ready\\n")
"""

DAEMON = python(f"{_DAEMON}signal.pause()")

LEAVES_DAEMON = python(f"{_DAEMON}print('done')")

# Writes as many megabytes as it is told, without a line end.
WRITES = python("""
import os
path, number = input().split()
leash = os.open(path, os.O_WRONLY)
for _ in range(int(number)):
    left = b"x" * (1 << 20)
    while left:
        left = left[os.write(1, left):]
os.write(leash, b"written\\n")
""")
