"""A server on a slow disk is killed a hundred times under load: nothing happens twice, nothing that was acknowledged is
lost, and what has ended stays as it is.

`SOAK_KILLS` and `SOAK_SEED` make it shorter, longer or another.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from faults import load, slow_disk
from soak import effects_callers, effects_model
from support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

KILLS = int(os.environ.get("SOAK_KILLS", "100"))
SEED = int(os.environ.get("SOAK_SEED", "15"))
CALLERS = 12
# A client that tries again waits in between, and so there are more of them.
PATIENT = 32
SECONDS = 120


def wait_for_webhooks(receiver: WebhookReceiver, journals: dict[str, Any], hooked: set[str]) -> None:
    """Wait until every webhook has had all its events, or its time: then the model says what is missing."""
    expected = {each.id: effects_model.owed(each) for each in journals.values() if each.nonce in hooked}

    def is_complete() -> bool:
        found = receiver.numbers()
        return all(numbers <= set(found[task]) for task, numbers in expected.items())

    with suppress(AssertionError):
        receiver.wait_for(is_complete)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        receiver.seconds = SECONDS
        yield receiver


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Any]:
    made = slow_disk.SlowDisk(tmp_path, "--push-allow", "127.0.0.1")
    yield made
    made.close()


def judge(model: Any, disk: Any, receiver: WebhookReceiver) -> None:
    """Let the last server come to rest, and compare everything."""
    disk.fast()
    server = disk.launch()
    journals = asyncio.run(effects_model.journals_of(load, disk.url))
    wait_for_webhooks(receiver, journals, {nonce for nonce, send in model.sends.items() if send.hook})
    effects, hooks = disk.lines(), receiver.numbers()
    wrong = model.judge(journals, effects, hooks)
    print(
        "",
        effects_model.summary(model, journals.values(), effects, hooks),
        f"{len(wrong)} wrong",
        *wrong[:40],
        sep="\n",
    )
    assert not any("Traceback" in line for each in disk.servers for line in each.output)
    server.kill()
    with closing(sqlite3.connect(f"file:{disk.folder / 'tasks.db'}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    (disk.folder / "wrong.json").write_text(json.dumps(wrong, indent=1))
    assert wrong == []


def dies_again(disk: Any, random: Random) -> None:
    """A server that is killed while it takes over from the one before."""
    disk.launch(ready=False).kill_after(random.uniform(0.5, 1.5))


def test_nothing_happens_twice_or_is_lost_with_callers_who_give_up(disk: Any, receiver: WebhookReceiver) -> None:
    random, model = Random(SEED), effects_model.Model()
    plain = effects_callers.PlainCallers(load, model, effects_model, disk.url, receiver.url, random)
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


def test_nothing_happens_twice_or_is_lost_with_our_client_trying_again(disk: Any, receiver: WebhookReceiver) -> None:
    random, model = Random(SEED), effects_model.Model()
    patient = effects_callers.PatientCallers(model, effects_model, disk.url, receiver.url, random)
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
