"""Agents that call agents: how deep, and how often."""

from __future__ import annotations

import logging

import pytest
from support.clocks import SettableClock

from dragoman.compat.sessions.invocation_guard import MAX_NAME_LENGTH, MAX_SOURCES, InvocationGuard, limit_of
from dragoman.errors import InvalidParams, Overloaded
from dragoman.testing import Clock


def begin(guard: InvocationGuard, times: int, source: str | None = "fox", depth: int = 0) -> None:
    for _ in range(times):
        guard.admit(source, depth)


# -- depth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_chain_of_three_calls_is_let_in(depth: int) -> None:
    InvocationGuard(Clock()).admit("fox", depth)


@pytest.mark.parametrize("depth", [4, 5, 10**9])
def test_a_chain_of_more_than_three_calls_is_refused(depth: int) -> None:
    with pytest.raises(InvalidParams, match=r"^Invocation depth limit exceeded\.$") as caught:
        InvocationGuard(Clock()).admit(None, depth)
    assert caught.value.field == "depth"


def test_a_depth_below_zero_is_none() -> None:
    with pytest.raises(InvalidParams, match="from 0 on") as caught:
        InvocationGuard(Clock()).admit("fox", -1)
    assert caught.value.field == "depth"


def test_the_depth_can_be_set() -> None:
    guard = InvocationGuard(Clock(), max_depth=0)
    guard.admit("fox", 0)
    with pytest.raises(InvalidParams):
        guard.admit("fox", 1)


def test_a_call_that_is_too_deep_does_not_count_for_the_rate() -> None:
    guard = InvocationGuard(Clock())
    for _ in range(10):
        with pytest.raises(InvalidParams):
            guard.admit("fox", 4)
    begin(guard, 5)


# -- rate ----------------------------------------------------------------------------------------------------------


def test_an_agent_begins_five_tasks_a_minute_and_no_sixth() -> None:
    clock = Clock()
    guard = InvocationGuard(clock)
    begin(guard, 5)
    with pytest.raises(Overloaded, match="an agent may begin 5 tasks a minute: try again later") as caught:
        guard.admit("fox", 0)
    assert caught.value.metadata == {"limit": "source", "retryAfter": "60"}
    clock.move(59.999)
    with pytest.raises(Overloaded) as caught:
        guard.admit("fox", 0)
    assert caught.value.metadata["retryAfter"] == "1"
    clock.move(0.001)
    begin(guard, 5)
    with pytest.raises(Overloaded):
        guard.admit("fox", 0)


def test_the_minute_is_any_sixty_seconds_and_not_one_of_the_clock() -> None:
    clock = Clock()
    guard = InvocationGuard(clock)
    for _ in range(5):
        guard.admit("fox", 0)
        clock.move(10)
    with pytest.raises(Overloaded) as caught:
        guard.admit("fox", 0)
    assert caught.value.metadata["retryAfter"] == "10"
    clock.move(10)
    guard.admit("fox", 0)
    with pytest.raises(Overloaded):
        guard.admit("fox", 0)
    clock.move(10)
    guard.admit("fox", 0)


def test_what_is_refused_does_not_count() -> None:
    clock = Clock()
    guard = InvocationGuard(clock)
    begin(guard, 5)
    for _ in range(59):
        clock.move(1)
        with pytest.raises(Overloaded):
            guard.admit("fox", 0)
    clock.move(1)
    begin(guard, 5)


def test_each_agent_has_its_own_rate() -> None:
    guard = InvocationGuard(Clock())
    begin(guard, 5, "fox")
    begin(guard, 5, "crow")
    for name in ("fox", "crow"):
        with pytest.raises(Overloaded):
            guard.admit(name, 0)


def test_the_rate_of_an_agent_is_counted_per_caller() -> None:
    guard = InvocationGuard(Clock())
    for caller in ("mallory", "victim"):
        for _ in range(5):
            guard.admit("fox", 0, caller)
        with pytest.raises(Overloaded):
            guard.admit("fox", 0, caller)
    begin(guard, 5, "fox")


def test_a_name_is_the_same_with_space_around_it_and_beyond_its_longest() -> None:
    guard = InvocationGuard(Clock())
    begin(guard, 3, "fox")
    begin(guard, 2, "  fox\n")
    with pytest.raises(Overloaded):
        guard.admit("fox", 0)
    begin(guard, 3, "x" * MAX_NAME_LENGTH)
    begin(guard, 2, "x" * MAX_NAME_LENGTH + "y")
    with pytest.raises(Overloaded):
        guard.admit("x" * 1_000_000, 0)
    assert len(guard) == 2


@pytest.mark.parametrize("source", [None, "", "  "])
def test_a_caller_without_a_name_is_not_counted(source: str | None) -> None:
    guard = InvocationGuard(Clock())
    begin(guard, 100, source)
    assert len(guard) == 0


def test_zero_a_minute_is_any_number() -> None:
    guard = InvocationGuard(Clock(), per_minute=0)
    begin(guard, 100)
    assert len(guard) == 0


def test_a_clock_that_is_set_back_locks_no_agent() -> None:
    clock = SettableClock()
    guard = InvocationGuard(clock)
    begin(guard, 5)
    clock.jump(-24 * 3600)
    begin(guard, 5)
    with pytest.raises(Overloaded):
        guard.admit("fox", 0)


# -- memory --------------------------------------------------------------------------------------------------------


def test_agents_that_rest_are_forgotten() -> None:
    clock = Clock()
    guard = InvocationGuard(clock)
    for number in range(100):
        guard.admit(f"agent {number}", 0)
    clock.move(30)
    guard.admit("fox", 0)
    assert len(guard) == 101
    clock.move(30)
    guard.admit("crow", 0)
    assert len(guard) == 2


def test_the_least_recently_seen_agents_are_forgotten_when_there_are_too_many() -> None:
    guard = InvocationGuard(Clock())
    begin(guard, 4, "early")
    begin(guard, 5, "often")
    for number in range(MAX_SOURCES - 2):
        guard.admit(f"agent {number}", 0)
    with pytest.raises(Overloaded):
        guard.admit("often", 0)
    guard.admit("one more", 0)
    assert len(guard) == MAX_SOURCES
    with pytest.raises(Overloaded):
        guard.admit("often", 0)
    # It was forgotten, and begins anew.
    begin(guard, 5, "early")
    assert len(guard) == MAX_SOURCES


# -- the environment -----------------------------------------------------------------------------------------------


def test_the_environment_sets_both_limits() -> None:
    guard = InvocationGuard.from_env(Clock(), {"A2A_MAX_DEPTH": "1", "A2A_RATE_PER_MINUTE": " 2 "})
    begin(guard, 2, depth=1)
    with pytest.raises(Overloaded):
        guard.admit("fox", 1)
    with pytest.raises(InvalidParams):
        guard.admit("fox", 2)


def test_without_variables_the_defaults_hold(caplog: pytest.LogCaptureFixture) -> None:
    guard = InvocationGuard.from_env(Clock(), {"A2A_MAX_DEPTH": "", "OTHER": "x"})
    begin(guard, 5, depth=3)
    with pytest.raises(Overloaded):
        guard.admit("fox", 3)
    assert caplog.records == []


@pytest.mark.parametrize("wrong", ["many", "-1", "2.5", "1e3", "0x3", "٣", "9" * 5000, "3 4"])
def test_a_value_that_is_no_number_is_logged_and_ignored(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dragoman.server"):
        assert limit_of({"A2A_MAX_DEPTH": wrong}, "A2A_MAX_DEPTH", 3) == 3
    (record,) = caplog.records
    assert record.getMessage().startswith("environment A2A_MAX_DEPTH: ")
    assert record.getMessage().endswith("is not a whole number from 0 on; 3 is used")
    assert len(record.getMessage()) < 200


def test_zero_is_a_number() -> None:
    assert limit_of({"A2A_RATE_PER_MINUTE": "0"}, "A2A_RATE_PER_MINUTE", 5) == 0
