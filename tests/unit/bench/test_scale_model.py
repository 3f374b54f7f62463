"""The model behind docs/scaling.md: what it is fed with, what it must reproduce, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bench.agents.dragoman_agent import agent
from bench.agents.words import echo_text
from bench.scale import page, replay
from bench.scale.check import compare_points
from bench.scale.costs import load
from bench.scale.demand import BEAT_SECONDS

from dragoman import Client
from dragoman.engine.ports.store import Write
from dragoman.server.config.settings import Settings
from dragoman.stores.postgres.lease import BEATS
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.testing import served


def test_the_model_reproduces_what_was_measured() -> None:
    far = [f"{one.name} {one.what}: {one.ratio:.2f}" for one in compare_points(load()) if not one.is_near]
    assert not far


def test_the_page_has_the_tables_of_the_saved_costs() -> None:
    text = page.PAGE.read_text()
    assert page.filled(text, page.parts(load())) == text, "run `python -m bench.scale_model --write`"


def test_leases_are_renewed_as_often_as_in_the_code() -> None:
    assert Settings().lease / BEATS == BEAT_SECONDS


async def test_the_replayed_changes_are_those_of_a_send(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Write] = []
    commit = PostgresDatabase.commit

    async def watched(self: PostgresDatabase, node: int, changes: Sequence[Sequence[Write]]) -> Any:
        seen.extend(write for sequence in changes for write in sequence)
        return await commit(self, node, changes)

    monkeypatch.setattr(PostgresDatabase, "commit", watched)
    with served(agent, store=postgres_url, secret="b5c1" * 16) as url:
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
