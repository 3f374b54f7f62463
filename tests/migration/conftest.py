"""A file to move, which one server has made for all tests, and the command that moves it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from migration.filled_file import FilledFile, fill_file
from migration.programs import Dragoman
from support.webhook_receiver import WebhookReceiver


@pytest.fixture(scope="session")
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver(503, path="") as receiver:
        yield receiver


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, receiver: WebhookReceiver) -> FilledFile:
    """A file with everything, which no test changes."""
    return asyncio.run(fill_file(tmp_path_factory.mktemp("original"), receiver.url))


@pytest.fixture
def filled(original: FilledFile, tmp_path: Path) -> FilledFile:
    """A copy of that file, with its keys."""
    for path in original.path.parent.glob("tasks.db*"):
        shutil.copy(path, tmp_path / path.name)
    return original._replace(path=tmp_path / "tasks.db")


@pytest.fixture
def dragoman(tmp_path: Path) -> Dragoman:
    return Dragoman(tmp_path)
