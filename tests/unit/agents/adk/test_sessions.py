"""Conversations are sessions: whose they are, and what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from unit.agents.adk.scripted import llm, says, served

from dragoman import Client
from dragoman.agents.adk.run import AdkRuns
from dragoman.model.user import User


class Caller:
    """A context as `session_of` sees it."""

    def __init__(self, context: str, user: str | None = None, tenant: str = "") -> None:
        self.context_id = context
        self.session_id = f"uuid-of-{context}-{user}-{tenant}"
        self.user = None if user is None else User(user)
        self.tenant = tenant
        self.state: dict[str, Any] = {}
        self.resume = None


async def session(runs: AdkRuns, caller: Caller) -> tuple[str, str]:
    from dragoman.agents.adk.run import session_of

    found = await session_of(runs.runner, caller)  # type: ignore[arg-type]
    return found.user_id, found.id


@pytest.mark.parametrize(
    ("caller", "user", "name"),
    [
        (Caller("c1", "ann"), "ann", "c1"),
        (Caller("c1"), "A2A_USER_c1", "c1"),
        (Caller("../../etc", "ann"), "ann", "uuid-of-../../etc-ann-"),
        (Caller(" c1", "ann"), "ann", "uuid-of- c1-ann-"),
        (Caller("c1", "ann", "acme"), "ann", "uuid-of-c1-ann-acme"),
    ],
)
async def test_a_session_belongs_to_the_caller_and_is_called_like_the_conversation(
    caller: Caller, user: str, name: str
) -> None:
    assert await session(AdkRuns(llm()), caller) == (user, name)


async def test_a_service_that_names_sessions_itself_is_asked_by_its_own_name() -> None:
    class Naming(InMemorySessionService):
        made: int = 0

        async def create_session(self, **options: Any) -> Session:
            self.made += 1
            return await super().create_session(**{**options, "session_id": f"own-{self.made}"})

    runs = AdkRuns(llm())
    service = runs.runner.session_service = Naming()
    caller = Caller("c1", "ann")
    assert [await session(runs, caller) for _ in range(2)] == [("ann", "own-1")] * 2
    assert service.made == 1


@pytest.mark.parametrize("size", [1, 5000])
async def test_metadata_of_a_request_reaches_the_agent_unless_it_is_too_large(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def look(callback_context: Any) -> None:
        seen.append(callback_context._invocation_context.run_config.custom_metadata or {})

    async with Client(served(llm(says("ok"), before_agent_callback=look))) as client:
        task = await client.send("hi", metadata={"trace": "x" * size})
    fits = size == 1
    assert task.text == "ok"
    assert seen[0].get("a2a_metadata", {}).get("trace") == ("x" if fits else None)
    assert ("metadata is not passed on" in caplog.text) is not fits


async def test_an_empty_message_is_rejected() -> None:
    async with Client(served(llm())) as client:
        task = await client.send("")
    assert task.state.value == "TASK_STATE_REJECTED"
