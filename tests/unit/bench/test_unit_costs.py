"""What the unit costs of docs/scaling.md are measured with: real statements, and the changes of a real send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.agents.dragoman_agent import agent
from bench.agents.words import echo_text
from bench.scale import gauge, hooks, replay, streams
from bench.scale.gauge import Gauge
from msgspec import Struct

from dragoman import Client
from dragoman.engine.ports.store import Write
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.testing import served

SECRET = "b5c1" * 16


class Postmaster(Struct):
    """The server that all tests share."""

    pid: int


@pytest.fixture
async def small(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(gauge, "SIZES", ((1, 4, 0.0), (3, 4, 0.0)))
    monkeypatch.setattr(gauge, "LISTENERS", (0, 1, 3))
    monkeypatch.setattr(gauge, "NOTICES", ((1, 5), (20, 5)))
    monkeypatch.setattr(gauge, "PEERS", (1, 3))
    monkeypatch.setattr(gauge, "PROBES", 4)
    monkeypatch.setattr(gauge, "PACED", 2)
    monkeypatch.setattr(gauge, "GAP", 0.0)
    control = await connect(postgres_url)
    backend = await control.fetchval("SELECT pg_backend_pid()")
    postmaster = Postmaster(_parent(backend))  # while the backend is there
    await control.close()
    small = Gauge(postmaster, postgres_url)  # type: ignore[arg-type]
    await small.open()
    yield small
    await small.close()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
async def test_every_cost_is_measured_on_real_statements(small: Gauge) -> None:
    for cost in await small.commits():
        assert cost.database.of(1) > 0 and cost.node.of(1) > 0
    wal, after_checkpoint, disk = await small.bytes_per_send(sends=128)
    assert min(wal, after_checkpoint) > 1000 and disk >= 0
    assert await small.event_seconds() > 0 and await small.read_seconds() > 0
    look = await small.looks()
    assert look.database > 0 and look.backend <= look.database
    notify, sender, seconds = await small.notifies()
    assert notify.of(10) > 0 and sender > 0 and seconds > 0
    assert (await small.notices()).of(1) >= 0
    database, node = await small.beats()
    assert database.of(1) > 0 and node.of(1) > 0


async def test_what_is_replayed_is_what_a_send_writes(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Write] = []
    commit = PostgresDatabase.commit

    async def watched(self: PostgresDatabase, node: int, changes: Sequence[Sequence[Write]]) -> Any:
        seen.extend(write for sequence in changes for write in sequence)
        return await commit(self, node, changes)

    monkeypatch.setattr(PostgresDatabase, "commit", watched)
    with served(agent, store=postgres_url, secret=SECRET) as url:
        async with Client(url) as client:
            await client.send(echo_text(1))
    begin = replay.begin(1)
    end = replay.end(begin.row)
    assert [_shape(write) for write in seen] == [_shape(begin), _shape(end)]
    for real, replayed in zip(seen, (begin, end), strict=True):
        assert _bytes(replayed) == pytest.approx(_bytes(real), rel=0.2)


def _shape(write: Write) -> dict[str, object]:
    """What a change has, whatever its values are."""
    parts = {name: getattr(write, name) for name in write.__struct_fields__}
    kept = {name: value for name, value in parts.items() if isinstance(value, bool)}
    has = {name: value is not None for name, value in parts.items() if name in ("snapshot", "dedupe_key")}
    return kept | has | {"records": len(write.records), "state": write.row.state, "epoch": write.epoch}


def _bytes(write: Write) -> int:
    return sum(len(record.body) for record in write.records) + len(write.snapshot or b"")


async def test_streams_are_held_open_while_they_are_looked_at() -> None:
    opened: list[bool] = []
    with served(agent) as url:
        await streams.keep_open(_port(url), 3, lambda: opened.append(True))
    assert opened == [True]


async def test_a_webhook_gets_the_end_of_every_task(monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    monkeypatch.setattr(hooks, "SENDS", 4)
    monkeypatch.setattr(hooks, "CALLERS", 2)
    monkeypatch.setattr(hooks, "cpu_exactly", lambda _: 0.0)
    monkeypatch.setattr(hooks, "cpu_by_process", lambda _: {})
    with served(agent, store=postgres_url, secret=SECRET, push=True, push_allow="127.0.0.1") as url:
        cost = await hooks.measure_webhooks(_port(url), 0, 0)
    assert cost.requests >= 1


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].rstrip("/"))


def test_costs_are_saved_and_read(tmp_path: Path) -> None:
    from bench.scale.costs import load, save

    measured = load()
    save(measured, tmp_path / "scale.json")
    assert msgspec.to_builtins(load(tmp_path / "scale.json")) == msgspec.to_builtins(measured)
