"""What a client of an earlier version does with a server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from upgrade.calls import Call

SECONDS = 60
FINAL = {f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}


def settle(port: int, key: str, tasks: Iterable[str]) -> None:
    """Wait until tasks have ended that were running when their server was killed."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "A2A-Version": "1.1"}
    ends = time.monotonic() + SECONDS
    for task in tasks:
        generation = 0
        while True:
            # 1.1 waits for the next change.
            params = {"id": task, "currentGeneration": generation}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": params})
            found = json.loads(Call("", "POST", "/", headers, body).send(port).body)["result"]
            if found["status"]["state"] in FINAL:
                break
            generation = found["generation"]
            assert time.monotonic() < ends, found
