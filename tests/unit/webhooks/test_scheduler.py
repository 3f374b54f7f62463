"""Whose turn it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.webhooks.scheduler import FairScheduler


def test_a_busy_key_lets_other_keys_pass() -> None:
    begun: list[str] = []
    scheduler = FairScheduler[str](lambda item: begun.append(item) or True, max_per_key=2, max_total=3)
    for item in ("a1", "a2", "a3", "a4", "b1", "b2"):
        scheduler.enqueue(item[0], item)
    assert (begun, scheduler.waiting) == (["a1", "a2", "b1"], 3)
    scheduler.release("a")
    # Places take turns: the one that was served longest ago is next.
    assert begun[3:] == ["a3"]
    scheduler.release("b")
    assert begun[4:] == ["b2"]


def test_an_item_that_declines_its_turn_takes_no_other_item_s_turn() -> None:
    begun: list[str] = []

    def begin(item: str) -> bool:
        begun.append(item)
        return "gone" not in item

    scheduler = FairScheduler[str](begin, max_per_key=1, max_total=1)
    for item in ("first", "gone 1", "gone 2", "last"):
        scheduler.enqueue("a", item)
    scheduler.release("a")
    assert begun == ["first", "gone 1", "gone 2", "last"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.data())
def test_limits_hold_and_every_item_gets_its_turn(steps: list[tuple[str, bool]], data: Any) -> None:
    working: Counter[str] = Counter()
    begun: list[tuple[str, int]] = []

    def begin(item: tuple[str, int]) -> bool:
        working[item[0]] += 1
        begun.append(item)
        return True

    scheduler = FairScheduler[tuple[str, int]](begin, max_per_key=2, max_total=4)
    joined: list[tuple[str, int]] = []
    for number, (place, leaves) in enumerate(steps):
        joined.append((place, number))
        scheduler.enqueue(place, joined[-1])
        busy = [each for each in working if working[each]]
        if leaves and busy:
            done = data.draw(st.sampled_from(sorted(busy)))
            working[done] -= 1
            scheduler.release(done)
        assert all(count <= 2 for count in working.values())
        assert working.total() <= 4
    while working.total():
        place = next(each for each in working if working[each])
        working[place] -= 1
        scheduler.release(place)
    assert sorted(begun) == sorted(joined)
    for place in "abc":
        assert [item for item in begun if item[0] == place] == [item for item in joined if item[0] == place]
    assert scheduler.waiting == 0
