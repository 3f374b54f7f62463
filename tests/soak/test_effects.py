"""A server on a slow disk is killed a hundred times under load: nothing happens twice, nothing that anybody was told is
lost, and what has ended stays as it is.

`SOAK_KILLS` and `SOAK_SEED` make it shorter, longer or another.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

KILLS = int(os.environ.get("SOAK_KILLS", "100"))
SEED = int(os.environ.get("SOAK_SEED", "15"))
CALLERS = 12
# A client that tries again waits in between, and so there are more of them.
PATIENT = 32
SECONDS = 120


def _module(folder: str, name: str) -> Any:
    # By path: in importlib mode neither tests/ nor its parent is on sys.path.
    path = Path(__file__).parents[1] / folder / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(f"soak_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


load = _module("faults", "load")
slow_disk = _module("faults", "slow_disk")
rules = _module("soak", "effects_model")
callers = _module("soak", "effects_callers")


class Receiver:
    """Takes every webhook, and remembers which events came, in their order."""

    def __init__(self) -> None:
        self.came: dict[str, list[int]] = defaultdict(list)
        self.news = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                task, _, number = self.headers["Idempotency-Key"].split("/")
                with receiver.news:
                    receiver.came[task].append(int(number))
                    receiver.news.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A caller that was killed in the middle is none of ours."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def until_told(self, journals: dict[str, Any], hooked: set[str]) -> None:
        """Wait until every webhook has been told all, or has had its time: then the model says what is missing."""
        expected = {each.id: rules.owed(each) for each in journals.values() if each.nonce in hooked}

        def all_told() -> bool:
            return all(numbers <= set(self.came[task]) for task, numbers in expected.items())

        with self.news:
            self.news.wait_for(all_told, SECONDS)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Any]:
    made = slow_disk.SlowDisk(tmp_path, "--push-allow", "127.0.0.1")
    yield made
    made.close()


def judge(model: Any, disk: Any, receiver: Receiver) -> None:
    """Let the last server come to rest, and compare everything."""
    disk.fast()
    server = disk.launch()
    journals = asyncio.run(rules.journals_of(load, disk.url))
    receiver.until_told(journals, {nonce for nonce, send in model.sends.items() if send.hook})
    effects, hooks = disk.lines(), dict(receiver.came)
    wrong = model.judge(journals, effects, hooks)
    print("", rules.summary(model, journals.values(), effects, hooks), f"{len(wrong)} wrong", *wrong[:40], sep="\n")
    assert not any("Traceback" in line for each in disk.servers for line in each.output)
    server.kill()
    with closing(sqlite3.connect(f"file:{disk.folder / 'tasks.db'}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    (disk.folder / "wrong.json").write_text(json.dumps(wrong, indent=1))
    assert wrong == []


def dies_again(disk: Any, random: Random) -> None:
    """A server that is killed while it takes over from the one before."""
    disk.launch(ready=False).kill_after(random.uniform(0.5, 1.5))


def test_nothing_happens_twice_or_is_lost_with_callers_who_give_up(disk: Any, receiver: Receiver) -> None:
    random, model = Random(SEED), rules.Model()
    plain = callers.PlainCallers(load, model, rules, disk.url, receiver.url, random)
    kills = 0
    while kills < KILLS:
        disk.fast()
        server = disk.launch()
        asyncio.run(plain.look_again())
        disk.slow(*random.choice(((50, 400), (400, 400), (50, 100), (0, 5))))
        asyncio.run(plain.until_dead(CALLERS, server.kill, random.uniform(0.1, 1.2)))
        kills += 1
        if kills < KILLS and random.random() < 0.2:
            dies_again(disk, random)
            kills += 1
    print(f"\n{kills} kills, answers {dict(plain.counted)}")
    judge(model, disk, receiver)


def test_nothing_happens_twice_or_is_lost_with_our_client_trying_again(disk: Any, receiver: Receiver) -> None:
    random, model = Random(SEED), rules.Model()
    patient = callers.PatientCallers(model, rules, disk.url, receiver.url, random)
    server = disk.launch()

    async def kill_and_start_again(over: asyncio.Event) -> None:
        nonlocal server
        for _ in range(KILLS):
            disk.slow(*random.choice(((50, 400), (400, 400), (50, 100), (0, 5))))
            await asyncio.sleep(random.uniform(0.1, 1.2))
            await asyncio.to_thread(server.kill)
            disk.fast()
            server = await asyncio.to_thread(disk.launch)
        over.set()

    async def run() -> None:
        over = asyncio.Event()
        await asyncio.gather(patient.until(over, PATIENT), kill_and_start_again(over))

    asyncio.run(run())
    print(f"\n{KILLS} kills, answers {dict(patient.counted)}")
    server.kill()
    judge(model, disk, receiver)
