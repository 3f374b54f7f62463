"""`dragoman nodes` where there is one server at most; for nodes on PostgreSQL see test_on_postgres.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman import Agent
from dragoman.testing import served

ADVICE = "a file has one server; for several nodes, use --store postgresql://…"


def test_a_file_has_one_server_or_none(typed: Callable[..., Any], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 't.db'}"
    missing = typed("nodes", "--store", store)
    assert (missing.code, "there is no store" in missing.err) == (2, True)
    with served(Agent("hello", description="Greets"), store=store):
        assert typed("nodes", "--store", store).err == f"one server is running, process {os.getpid()}: {ADVICE}\n"
        listed = json.loads(typed("nodes", "--json", "--store", store).out)
        assert listed["nodes"] == [{"state": "alive", "pid": os.getpid()}]
    assert typed("nodes", "--store", store) == (0, "", f"no server is running: {ADVICE}\n")


def test_a_store_in_memory_is_its_server_s(typed: Callable[..., Any]) -> None:
    ended = typed("nodes", "--store", "memory:")
    assert (ended.code, "it has one server, the process that it is in" in ended.err) == (2, True)
