"""An agent that calls another says who it is, and how deep the call is in a chain of calls."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.remote import RemoteInvocationResult, invoke_remote_agent

DONE = {"id": "t1", "state": "completed", "messages": []}
TOO_DEEP = RemoteInvocationResult(False, "", error="Invocation depth limit exceeded.")


@pytest.fixture(autouse=True)
def no_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A2A_MAX_DEPTH", raising=False)
    monkeypatch.delenv("DRAGOMAN_DEPTH", raising=False)


@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_depth_and_source_are_passed_on(stub: Any, depth: int) -> None:
    server = await stub(lambda _: DONE)
    assert (await invoke_remote_agent(server.url, "hi", depth=depth, source_agent="fox")).success
    params = server.seen[0].json["params"]
    assert params == {"message": "hi", "timeoutMs": 300_000, "depth": depth, "sourceAgent": "fox"}


async def test_depth_and_source_are_sent_only_if_given(stub: Any) -> None:
    server = await stub(lambda _: DONE)
    await invoke_remote_agent(server.url, "hi")
    assert set(server.seen[0].json["params"]) == {"message", "timeoutMs"}


async def test_a_call_deeper_than_three_is_not_sent(stub: Any) -> None:
    server = await stub(lambda _: DONE)
    assert await invoke_remote_agent(server.url, "hi", depth=4) == TOO_DEEP
    assert server.seen == []


async def test_a_program_that_is_an_agent_passes_on_the_depth_of_its_environment(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await stub(lambda _: DONE)
    monkeypatch.setenv("DRAGOMAN_DEPTH", "2")
    assert (await invoke_remote_agent(server.url, "hi")).success
    assert server.seen[0].json["params"]["depth"] == 2
    monkeypatch.setenv("DRAGOMAN_DEPTH", "4")
    assert await invoke_remote_agent(server.url, "hi") == TOO_DEEP
    assert (await invoke_remote_agent(server.url, "hi", depth=0)).success  # it knows better


async def test_the_environment_sets_the_depth(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await stub(lambda _: DONE)
    monkeypatch.setenv("A2A_MAX_DEPTH", "5")
    assert (await invoke_remote_agent(server.url, "hi", depth=5)).success
    monkeypatch.setenv("A2A_MAX_DEPTH", "0")
    assert await invoke_remote_agent(server.url, "hi", depth=1) == TOO_DEEP
    monkeypatch.setenv("A2A_MAX_DEPTH", "deep")
    assert (await invoke_remote_agent(server.url, "hi", depth=3)).success
    assert await invoke_remote_agent(server.url, "hi", depth=4) == TOO_DEEP


async def test_the_limit_of_the_other_side_is_reported_in_its_words(stub: Any) -> None:
    server = await stub(lambda _: ({"error": "Rate limit exceeded"}, 429))
    result = await invoke_remote_agent(server.url, "hi", depth=1, source_agent="fox")
    assert result.error == 'Submit failed: HTTP 429 — {"error": "Rate limit exceeded"}'
