"""ADK without a network: scripted models, no traces."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

# Before ADK is imported: it traces from then on.
os.environ.setdefault("OTEL_SDK_DISABLED", "true")


def _share(file: str) -> None:
    # By path: in importlib mode no folder of tests is on sys.path. The name is what tests import.
    name = f"adk_{file}"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{file}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_share("scripted")
_share("remote_talk")


@pytest.fixture
async def remote() -> AsyncGenerator[Callable[..., Any]]:
    """Makes remote agents, and lets go of them afterwards."""
    from dragoman.adk import RemoteAgent

    made: list[Any] = []

    def make(url: Any, name: str = "far", **options: Any) -> Any:
        agent = RemoteAgent(name=name, url=url, **options)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.close()
