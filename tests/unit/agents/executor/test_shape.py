"""How an executor is known: by what it can do, not by what it is."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agents.executor import ExecutorRuns, is_executor
from dragoman.model.error import ConfigError


class TripPlannerExecutor:
    """Plans trips.

    And nothing else.
    """

    async def execute(self, context: Any, event_queue: Any) -> None: ...

    async def cancel(self, context: Any, event_queue: Any) -> None: ...


class OnlyExecutes:
    async def execute(self, context: Any, event_queue: Any) -> None: ...


class NotAsync:
    def execute(self, context: Any, event_queue: Any) -> None: ...

    def cancel(self, context: Any, event_queue: Any) -> None: ...


class TakesOne:
    async def execute(self, context: Any) -> None: ...

    async def cancel(self, context: Any) -> None: ...


class Elsewhere:
    """As dragoman.compat.executor has them."""

    async def execute(self, context: Any, task_id: str) -> None: ...

    async def cancel(self, context: Any, task_id: str) -> None: ...


class Executor:
    async def execute(self, context: Any, queue: Any, *, loud: bool = False) -> None: ...

    async def cancel(self, *both: Any) -> None: ...


@pytest.mark.parametrize("thing", [TripPlannerExecutor(), Executor()])
def test_an_object_with_execute_and_cancel_is_an_executor(thing: object) -> None:
    assert is_executor(thing)


@pytest.mark.parametrize("thing", [None, "x", OnlyExecutes(), NotAsync(), TakesOne(), Elsewhere(), TripPlannerExecutor])
def test_nothing_else_is_one(thing: object) -> None:
    assert not is_executor(thing)
    with pytest.raises(ConfigError):
        ExecutorRuns(thing)


def test_a_class_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="give an object of it"):
        ExecutorRuns(TripPlannerExecutor)


def test_an_object_that_is_no_executor_is_refused_with_what_one_has() -> None:
    with pytest.raises(ConfigError, match="async def cancel"):
        ExecutorRuns(OnlyExecutes())


def test_the_card_has_the_name_and_the_first_line_of_the_class() -> None:
    bridge = ExecutorRuns(TripPlannerExecutor())
    assert (bridge.name, bridge.description) == ("trip-planner", "Plans trips.")
    [offer] = bridge.offers()
    assert (offer.id, offer.card().name, offer.description) == ("trip-planner", "Trip Planner", "Plans trips.")
    assert offer.default


def test_a_class_without_words_still_has_a_name() -> None:
    bridge = ExecutorRuns(Executor())
    assert (bridge.name, bridge.description) == ("executor", "")
    assert bridge.offers()[0].description
