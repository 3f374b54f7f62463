"""`App.resume`: a waiting task goes on from code of the server's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, Server
from dragoman.errors import ConfigError, TaskNotFound


async def _nothing(ctx: Any) -> AsyncIterator[Any]:
    yield "nothing"


async def test_an_agent_that_is_not_here_is_named_with_those_that_are() -> None:
    app = Server(Agent("one", run=_nothing), Agent("two", run=_nothing), store="memory:").app()
    try:
        with pytest.raises(ConfigError, match="there is no agent `three` here: there are `one`, `two`"):
            await app.resume("t", agent="three")
        for agent in (None, "one", "two"):
            with pytest.raises(TaskNotFound):
                await app.resume("t", agent=agent)
    finally:
        await app.stop()
