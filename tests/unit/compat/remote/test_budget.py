"""What a session may ask of other agents."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.clocks import SettableClock

from dragoman.compat.remote import BudgetExceededError, RemoteInvocationResult, SessionBudget, invoke_remote_agent
from dragoman.compat.remote.budget import MAX_SESSIONS
from dragoman.errors import CannotConnect, DragomanError
from dragoman.testing import Clock

ONE, TWO, THREE, FOUR = (f"https://{name}.example.com" for name in ("one", "two", "three", "four"))
DONE = {"id": "t1", "state": "completed", "messages": []}


def refused(budget: SessionBudget, session: str | None, url: str) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        budget.take(session, url)
    assert str(caught.value).startswith("Session budget exceeded: ")
    return caught.value


def spend(budget: SessionBudget, clock: Clock, session: str, times: int, url: str = ONE) -> None:
    for _ in range(times):
        budget.take(session, url)
        clock.move(5)


# -- the three limits ----------------------------------------------------------------------------------------------


def test_a_session_makes_ten_calls_and_no_eleventh() -> None:
    clock = Clock()
    budget = SessionBudget(clock=clock)
    spend(budget, clock, "s", 10)
    error = refused(budget, "s", ONE)
    assert (error.limit, error.retry_after_ms) == ("calls", None)
    assert "10 calls" in str(error)
    clock.move(24 * 3600)
    assert refused(budget, "s", TWO).limit == "calls"


def test_a_session_calls_three_agents_and_no_fourth() -> None:
    clock = Clock()
    budget = SessionBudget(clock=clock)
    for url in (ONE, TWO, THREE):
        budget.take("s", url)
    error = refused(budget, "s", FOUR)
    assert (error.limit, error.retry_after_ms) == ("agents", None)
    clock.move(5)
    budget.take("s", TWO)


def test_the_same_agent_is_called_again_after_five_seconds() -> None:
    clock = Clock()
    budget = SessionBudget(clock=clock)
    budget.take("s", ONE)
    budget.take("s", TWO)
    error = refused(budget, "s", ONE)
    assert (error.limit, error.retry_after_ms) == ("cooldown", 5000)
    clock.move(4.999)
    error = refused(budget, "s", ONE)
    assert (str(error).endswith("called again in 1 ms"), error.retry_after_ms) == (True, 1)
    clock.move(0.001)
    budget.take("s", ONE)


def test_a_refused_call_costs_nothing() -> None:
    clock = Clock()
    budget = SessionBudget(clock=clock)
    for _ in range(10):
        budget.take("s", ONE)
        for _ in range(3):
            refused(budget, "s", ONE)
        clock.move(5)
    assert refused(budget, "s", ONE).limit == "calls"


def test_each_session_has_its_own_budget() -> None:
    clock = Clock()
    budget = SessionBudget(clock=clock)
    spend(budget, clock, "s", 10)
    refused(budget, "s", ONE)
    spend(budget, clock, "t", 10, TWO)


def test_calls_without_a_session_are_of_one() -> None:
    budget = SessionBudget(clock=Clock())
    budget.take(None, ONE)
    assert refused(budget, None, ONE).limit == "cooldown"
    assert len(budget) == 1


@pytest.mark.parametrize(
    "same",
    [
        "https://ONE.example.com/", "https://one.example.com:443/other/agent", "https://one.example.com.",
        "https://someone:secret@one.example.com",
    ],
)  # fmt: skip
def test_an_agent_is_an_origin_however_it_is_written(same: str) -> None:
    budget = SessionBudget(clock=Clock())
    budget.take("s", ONE)
    assert refused(budget, "s", same).limit == "cooldown"


@pytest.mark.parametrize(
    ("one", "same"),
    [("http://127.0.0.1:80", "http://0x7f.1"), ("http://[::1]:8080", "http://[0:0::1]:8080/"), ("http://a%b", "http://A%B")],
)  # fmt: skip
def test_an_address_counts_once_in_all_its_spellings(one: str, same: str) -> None:
    budget = SessionBudget(clock=Clock())
    budget.take("s", one)
    assert refused(budget, "s", same).limit == "cooldown"


@pytest.mark.parametrize("other", ["http://one.example.com", "https://one.example.com:444", "https://example.com"])
def test_another_scheme_port_or_host_is_another_agent(other: str) -> None:
    budget = SessionBudget(max_agents=2, clock=Clock())
    budget.take("s", ONE)
    budget.take("s", other)
    assert refused(budget, "s", TWO).limit == "agents"


def test_an_invalid_base_url_is_not_counted() -> None:
    budget = SessionBudget(clock=Clock())
    with pytest.raises(CannotConnect, match="not a base URL"):
        budget.take("s", "nowhere")
    assert len(budget) == 0


def test_zero_is_any_number_and_no_pause() -> None:
    budget = SessionBudget(max_calls=0, max_agents=0, cooldown_ms=0, clock=Clock())
    for number in range(200):
        budget.take("s", f"https://a{number % 50}.example.com")


def test_without_a_number_of_agents_their_pauses_still_hold() -> None:
    clock = Clock()
    budget = SessionBudget(max_calls=0, max_agents=0, clock=clock)
    for number in range(100):
        budget.take("s", f"https://a{number}.example.com")
    assert refused(budget, "s", "https://a0.example.com").limit == "cooldown"
    clock.move(5)
    budget.take("s", "https://a0.example.com")


def test_a_clock_that_is_set_back_makes_no_pause_longer() -> None:
    clock = SettableClock()
    budget = SessionBudget(clock=clock)
    budget.take("s", ONE)
    clock.jump(-3600)
    budget.take("s", ONE)


# -- memory --------------------------------------------------------------------------------------------------------


def test_sessions_are_bounded_and_the_least_recently_used_is_forgotten() -> None:
    budget = SessionBudget(clock=Clock())
    budget.take("first", ONE)
    budget.take("second", ONE)
    for number in range(MAX_SESSIONS - 2):
        budget.take(f"s{number}", ONE)
    refused(budget, "first", ONE)
    budget.take("one more", ONE)
    assert len(budget) == MAX_SESSIONS
    refused(budget, "first", ONE)
    budget.take("second", ONE)
    assert len(budget) == MAX_SESSIONS


def test_a_session_that_is_over_can_be_forgotten() -> None:
    budget = SessionBudget(clock=Clock())
    budget.take("s", ONE)
    budget.forget("s")
    budget.forget("never heard of")
    assert len(budget) == 0
    budget.take("s", ONE)


# -- the environment -----------------------------------------------------------------------------------------------


def test_the_environment_sets_the_budget() -> None:
    clock = Clock()
    environ = {"A2A_SESSION_MAX_CALLS": "3", "A2A_SESSION_MAX_AGENTS": "2", "A2A_SESSION_COOLDOWN_MS": "100"}
    budget = SessionBudget.from_env(environ, clock)
    budget.take("s", ONE)
    budget.take("s", TWO)
    assert refused(budget, "s", THREE).limit == "agents"
    assert refused(budget, "s", ONE).retry_after_ms == 100
    clock.move(0.1)
    budget.take("s", ONE)
    assert refused(budget, "s", TWO).limit == "calls"


@pytest.mark.parametrize("environ", [{}, dict.fromkeys(("A2A_SESSION_MAX_CALLS", "A2A_SESSION_MAX_AGENTS"), "lots")])
def test_where_the_environment_sets_no_number_the_defaults_hold(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with caplog.at_level(logging.WARNING, "dragoman.server"):
        budget = SessionBudget.from_env(environ, clock)
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == list(environ)
    for url in (ONE, TWO, THREE):
        budget.take("s", url)
    assert refused(budget, "s", FOUR).limit == "agents"
    assert refused(budget, "s", ONE).retry_after_ms == 5000
    clock.move(5)
    spend(budget, clock, "s", 7)
    assert refused(budget, "s", ONE).limit == "calls"


# -- calls ---------------------------------------------------------------------------------------------------------


async def test_a_call_beyond_the_budget_is_not_sent(stub: Any) -> None:
    server, clock = await stub(lambda _: DONE), Clock()
    budget = SessionBudget(max_calls=2, clock=clock)
    for _ in range(2):
        result = await invoke_remote_agent(server.url, "hi", budget=budget, session="s", clock=clock)
        assert result.success
        early = await invoke_remote_agent(server.url, "hi", budget=budget, session="s", clock=clock)
        assert (early.success, early.task_id) == (False, "")
        assert "Session budget exceeded" in (early.error or "")
        clock.move(5)
    sent = len(server.seen)
    assert sent == 4
    result = await invoke_remote_agent(server.url, "hi", budget=budget, session="s", clock=clock)
    text = "Session budget exceeded: 2 calls of remote agents are all a session has"
    assert result == RemoteInvocationResult(False, "", error=text)
    assert len(server.seen) == sent
    assert (await invoke_remote_agent(server.url, "hi", budget=budget, session="t", clock=clock)).success


async def test_a_call_refused_for_another_reason_costs_nothing(stub: Any) -> None:
    server, clock = await stub(lambda _: DONE), Clock()
    budget = SessionBudget(max_calls=1, clock=clock)
    refusals: list[dict[str, Any]] = [{"depth": 4}, {"guard": True}, {"message": "\ud800"}, {"base_url": "nowhere"}]
    for each in refusals:
        given = {"base_url": server.url, "message": "hi", **each}
        assert not (await invoke_remote_agent(**given, budget=budget, session="s", clock=clock)).success
    assert server.seen == []
    assert (await invoke_remote_agent(server.url, "hi", budget=budget, session="s", clock=clock)).success


def test_the_error_is_of_dragomans_tree() -> None:
    assert issubclass(BudgetExceededError, DragomanError)
    assert BudgetExceededError("no", limit="calls").reason == "BUDGET_EXCEEDED"
