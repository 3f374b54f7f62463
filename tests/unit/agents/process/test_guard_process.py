"""The process that the guard is."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dragoman.agents.process.guard.client import acquire_guard, release_guard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_nothing_secret_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET", "s3cret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret")
    monkeypatch.setenv("DRAGOMAN_PROCESS", "of-another-server")
    monkeypatch.setenv("LANG", "C.UTF-8")
    keeper = await acquire_guard()
    try:
        environ = b""
        async with asyncio.timeout(30):
            while not environ:  # it has none before it has begun
                environ = await asyncio.to_thread(Path(f"/proc/{keeper.pid}/environ").read_bytes)
    finally:
        await release_guard(keeper)
    names = {each.partition(b"=")[0].decode() for each in environ.split(b"\0") if each}
    assert b"s3cret" not in environ
    assert {"LANG", "DRAGOMAN_PROCESS"} <= names
    assert names <= {"LANG", "DRAGOMAN_PROCESS", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH"}
