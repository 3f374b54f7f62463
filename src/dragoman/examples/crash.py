"""A demo of ten seconds: a stream, `kill -9` in the middle, a restart, and the stream continues to its end.

Run it with `make demo-crash` or `python -m dragoman.examples.crash`.
"""

# ruff: noqa: T201 - showing it is all this is for

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from dragoman.dialects.table import V1_0, VERSION_HEADER

BOLD, DIM, RED, GREEN, PLAIN = (f"\033[{code}m" for code in (1, 2, 31, 32, 0)) if sys.stdout.isatty() else [""] * 5
KILL_AFTER = 9
MESSAGE = {"messageId": "demo", "role": "ROLE_USER", "parts": [{"text": "crashes"}]}


def start(store: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server on the store; return it and its address once it listens."""
    command = [sys.executable, "-m", "dragoman.cli.main", "serve", "dragoman.examples.story", "--port", "0"]
    server = subprocess.Popen([*command, "--store", store], stderr=subprocess.PIPE, text=True)  # noqa: S603
    assert server.stderr is not None
    for line in server.stderr:
        if "/.well-known/" in line:
            return server, line.split("//")[1].split("/")[0]
    raise SystemExit("the server did not start")


def events(address: str, path: str, body: object, after: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the id and the payload of each event of a stream, until it ends or breaks."""
    headers = {"Content-Type": "application/json", VERSION_HEADER: V1_0}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("POST", path, json.dumps(body), headers)
    number = 0
    try:
        for line in connection.getresponse():
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                yield number, json.loads(line[6:])
    except (http.client.HTTPException, OSError):
        return
    finally:
        connection.close()


def state_of(event: dict[str, Any]) -> str:
    """Return the state in an event, or "" if it carries a piece of the answer."""
    change: dict[str, Any] = event.get("statusUpdate") or event.get("task") or {}
    state: str = change["status"]["state"] if change else ""
    return state.removeprefix("TASK_STATE_").lower()


def show(number: int, event: dict[str, Any]) -> None:
    """Print an event on one line."""
    update = event.get("artifactUpdate")
    if update is None:
        print(f"  {DIM}event {number:>2}{PLAIN}  {state_of(event)}")
    elif update["artifact"]["parts"][0].get("text"):
        how = "+" if update.get("append") else "="
        print(f"  {DIM}event {number:>2}{PLAIN}  {how} {update['artifact']['parts'][0]['text']}")
    else:
        print(f"  {DIM}event {number:>2}{PLAIN}  end of the text")


def main() -> None:
    """Run the demo. Raises SystemExit when the story does not reach its end."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/tasks.db"
        server, address = start(store)
        print(f"{BOLD}A stream from a server with pid {server.pid}. Each event adds a word:{PLAIN}")
        last, task = 0, ""
        for last, event in events(address, "/message:stream", {"message": MESSAGE}):
            task = task or event["task"]["id"]
            show(last, event)
            if last == KILL_AFTER:
                os.kill(server.pid, signal.SIGKILL)
                break
        server.wait()
        print(f"{RED}{BOLD}kill -9 {server.pid}{PLAIN}: the connection is cut. The last event seen was {last}.")
        server, address = start(store)
        print(f"{GREEN}{BOLD}A new server, pid {server.pid}, on the same file.{PLAIN} We ask for all after {last}:")
        state = ""
        try:
            for number, event in events(address, f"/tasks/{task}:subscribe", {}, after=last):
                show(number, event)
                state = state_of(event)
        finally:
            server.terminate()
            server.wait()
        if state != "completed":
            raise SystemExit(f"the task ended as {state or 'nothing'}: this is a bug")
        print(f"{BOLD}What was cut: the connection, and the run. What went on: the task and the numbers of its events.")
        print("The skill says restart=True, so it ran again and replaced its text (=). The words it had thought of")
        print(f"before the crash were in the journal: it did not think of them again.{PLAIN}")


if __name__ == "__main__":
    main()
