"""Guessing is slow and tells nothing, and nobody is kept out by what others guess elsewhere."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.clocks import SettableClock

from dragoman.auth.inbound.passwords import WRONG_CREDENTIALS, Argon2, Passwords, new_password
from dragoman.auth.inbound.scheme import InvalidCredential
from dragoman.auth.inbound.throttle import SIZE, FailureCounter, FairSlots, LoginThrottle
from dragoman.model.error import ConfigError, Overloaded, ServerError
from dragoman.testing import Clock

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
QUARTER = 15 * 60


async def guess(door: Any, name: str = "alice", times: int = 5, address: str = HERE) -> InvalidCredential:
    """Try wrong passwords; gives the last refusal."""
    refusal: InvalidCredential | None = None
    for number in range(times):
        with pytest.raises(InvalidCredential) as caught:
            await door.passwords.check(name, f"guess {number}", address)
        refusal = caught.value
    assert refusal is not None
    return refusal


async def guess_patiently(door: Any, times: int) -> None:
    """Try wrong passwords, and wait as long as one must before each."""
    for number in range(times):
        try:
            await guess(door, times=1)
        except Overloaded as early:
            door.clock.move(int(early.metadata["retryAfter"]))
            with pytest.raises(InvalidCredential):
                await door.passwords.check("alice", f"another {number}", HERE)


async def knows(door: Any, name: str = "alice", password: str | None = None, address: str = HERE) -> bool:
    """True when the right password gets in, and False when it is wrong."""
    try:
        account = await door.passwords.check(name, password or door.password, address)
    except InvalidCredential:
        return False
    return account.user.name == name


async def wait(door: Any, name: str = "alice", address: str = HERE) -> int:
    """How many seconds the next try must wait; it is tried."""
    with pytest.raises(Overloaded) as caught:
        await door.passwords.check(name, "one more", address)
    assert caught.value.metadata["limit"] == "passwords"
    return int(caught.value.metadata["retryAfter"])


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_five_wrong_passwords_keep_nobody_out(door: Any) -> None:
    assert str(await guess(door)) == WRONG_CREDENTIALS
    assert await knows(door)


async def test_a_stranger_elsewhere_locks_nobody_out_however_often_he_guesses(door: Any) -> None:
    for _ in range(300):
        try:
            await guess(door, times=1, address=ELSEWHERE)
        except Overloaded:
            door.clock.move(QUARTER)
    assert await knows(door)


async def test_guesses_from_a_thousand_addresses_keep_no_first_try_from_being_right(door: Any) -> None:
    for number in range(1000):
        await guess(door, times=1, address=f"10.0.{number // 250}.{number % 250}")
    assert await knows(door)


async def test_each_further_one_doubles_the_wait_up_to_a_quarter_of_an_hour(door: Any) -> None:
    waits: list[int] = []
    await guess(door)
    for _ in range(13):
        refusal = await guess(door, times=1)
        waits.append(await wait(door))
        assert refusal.metadata["retryAfter"] == str(waits[-1])
        assert str(refusal).startswith(f"{WRONG_CREDENTIALS}: try again in {waits[-1]} second")
        door.clock.move(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]


async def test_a_throttled_caller_gets_the_time_to_wait_even_with_the_right_password(door: Any) -> None:
    await guess_patiently(door, 8)
    with pytest.raises(Overloaded, match="too many wrong passwords from here: try again in 4 seconds"):
        await door.passwords.check("alice", door.password, HERE)
    door.clock.move(4)
    assert await knows(door)


async def test_trying_while_one_must_wait_makes_it_no_longer(door: Any) -> None:
    await guess_patiently(door, 8)
    door.clock.move(1)
    assert [await wait(door) for _ in range(50)] == [3] * 50
    door.clock.move(3)
    assert await knows(door)


async def test_the_right_password_begins_the_count_anew(door: Any) -> None:
    for _ in range(3):
        await guess(door)
        assert await knows(door)
        door.clock.move(301)  # until it is not remembered any more


async def test_a_count_halves_with_every_hour(door: Any) -> None:
    await guess_patiently(door, 8)
    door.clock.move(3600)
    assert str(await guess(door, times=1)) == WRONG_CREDENTIALS
    assert "try again in 1 second" in str(await guess(door, times=1))


async def test_a_remembered_password_reveals_nothing_to_a_throttled_caller(door: Any) -> None:
    """Else the right one among a million would be found while its owner is there."""
    assert await knows(door)
    await guess(door, times=6)
    with pytest.raises(Overloaded):
        await door.passwords.check("alice", door.password, HERE)


async def test_a_password_that_is_remembered_here_is_not_elsewhere(door: Any) -> None:
    assert await knows(door)
    assert await knows(door, address=ELSEWHERE)
    assert door.hasher.verified == 2


async def test_one_address_that_tries_many_names_waits_for_all_of_them(door: Any) -> None:
    for number in range(20):
        await guess(door, f"nobody{number}", times=1)
    waits: list[int] = []
    for number in range(20, 28):
        await guess(door, f"nobody{number}", times=1)
        waits.append(await wait(door, f"nobody{number + 100}"))
        door.clock.move(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert await knows(door, address=ELSEWHERE)


async def test_a_user_known_at_an_address_is_not_throttled_for_others_there(door: Any) -> None:
    assert await knows(door)
    door.clock.move(301)
    for number in range(21):
        await guess(door, f"nobody{number}", times=1)
    assert await wait(door, "nobody") == 1
    assert await knows(door)


async def test_a_name_that_many_guess_at_makes_new_addresses_wait_sooner_and_known_ones_not(door: Any) -> None:
    assert await knows(door, address=ELSEWHERE)
    for number in range(160):
        await guess(door, times=1, address=f"10.0.0.{number}")
    assert "try again in 1 second" in str(await guess(door, times=1))
    assert str(await guess(door, times=1, address=ELSEWHERE)) == WRONG_CREDENTIALS
    for number in range(160):
        await guess(door, times=1, address=f"10.0.1.{number}")
    assert "try again in 2 seconds" in str(await guess(door, times=1, address="10.0.2.1"))


@pytest.mark.parametrize("name", ["alice", "bob", "nobody", "revoked", "' OR 1=1", "x" * 5000])
async def test_every_name_takes_one_hash_no_write_and_waits_alike(door: Any, name: str, tmp_path: Path) -> None:
    door.users.add("revoked", door.hasher.hash(door.password))
    door.users.revoke("revoked")
    verified = door.hasher.verified
    with closing(sqlite3.connect(tmp_path / "t.db")) as reader:
        before = reader.execute("PRAGMA data_version").fetchone()
        refusals = [str(await guess(door, name, times=1)) for _ in range(6)]
        assert reader.execute("PRAGMA data_version").fetchone() == before
    assert door.hasher.verified - verified == 6
    assert refusals == [WRONG_CREDENTIALS] * 5 + [f"{WRONG_CREDENTIALS}: try again in 1 second"]


@pytest.mark.parametrize("name", ["alice", "bob", "nobody"])
async def test_a_throttled_try_costs_no_hash_whatever_the_name_and_the_password(door: Any, name: str) -> None:
    await guess(door, name, times=6)
    verified, hashed = door.hasher.verified, door.hasher.hashed
    for password in ("wrong", door.password, "wrong", door.password):
        with pytest.raises(Overloaded):
            await door.passwords.check(name, password, HERE)
    assert (door.hasher.verified, door.hasher.hashed) == (verified, hashed)


async def test_what_was_wrong_is_known_to_the_audit_log_alone(door: Any) -> None:
    found = [await guess(door, name, times=1) for name in ("alice", "bob", "my password, typed as a name")]
    assert [(each.cause, each.user) for each in found] == [
        ("wrong-password", "alice"),
        ("wrong-password", "bob"),
        ("unknown-user", ""),
    ]


async def test_a_remembered_password_ends_with_a_new_one_and_with_the_user(door: Any) -> None:
    assert await knows(door)
    door.users.set_password("alice", door.hasher.hash("another word"))
    assert not await knows(door)
    assert await knows(door, password="another word")
    door.users.revoke("alice")
    assert not await knows(door, password="another word")


# -- many at once ------------------------------------------------------------------------------------------------------


async def test_a_hundred_guesses_at_once_count_one_by_one(door: Any) -> None:
    tries = [door.passwords.check("alice", f"guess {number}", HERE) for number in range(30)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(each) for each in found] == [InvalidCredential] * 6 + [Overloaded] * 24
    assert door.hasher.verified == 6


async def test_the_same_password_many_times_at_once_is_compared_once(door: Any) -> None:
    found = await asyncio.gather(*(door.passwords.check("alice", door.password, HERE) for _ in range(500)))
    assert {account.user.name for account in found} == {"alice"}
    assert door.hasher.verified == 1


async def test_the_same_wrong_password_many_times_at_once_is_one_mistake(door: Any) -> None:
    tries = [door.passwords.check("alice", "an old password", HERE) for _ in range(500)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert {str(each) for each in found} == {WRONG_CREDENTIALS}
    assert door.hasher.verified == 1
    assert await knows(door)


class HeldHasher:
    """Compares nothing until it may, and notes in which order."""

    def __init__(self, hasher: Any) -> None:
        self._hasher = hasher
        self.may = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        self.order: list[str] = []

    def hash(self, password: str) -> str:
        return self._hasher.hash(password)

    def verify(self, hashed: str, password: str) -> bool:
        self.entered.release()
        self.may.acquire()
        self.order.append(password)
        return self._hasher.verify(hashed, password)


@pytest.fixture
def held(door: Any) -> Iterator[HeldHasher]:
    """All comparisons of the door wait for `may`."""
    door.passwords.close()
    hasher = HeldHasher(door.hasher)
    door.passwords = Passwords(door.users, door.clock, hasher, concurrency=2)
    yield hasher
    hasher.may.release(10_000)


async def begin(*tries: Any) -> list[asyncio.Task[Any]]:
    """Start tries, and let them come as far as they can."""
    tasks = [asyncio.ensure_future(each) for each in tries]
    for _ in range(20):
        await asyncio.sleep(0)
    return tasks


async def test_invented_names_from_one_address_do_not_keep_others_from_signing_in(door: Any, held: HeldHasher) -> None:
    flood = await begin(*(door.passwords.check(f"nobody{number}", "guess", ELSEWHERE) for number in range(80)))
    (mine,) = await begin(door.passwords.check("alice", door.password, HERE))
    held.may.release(4)  # two that are at work, one of theirs, one of ours
    assert (await mine).user.name == "alice"
    assert held.order.count("guess") <= 3
    held.may.release(10_000)
    found = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(each) for each in found} == {InvalidCredential, Overloaded}
    # Two were at work and 32 waited; of those some were one wrong password too many.
    assert sum(isinstance(each, InvalidCredential) for each in found) <= 34


@pytest.mark.timeout(60)
async def test_names_that_are_known_at_an_address_go_before_all_others(door: Any, held: HeldHasher) -> None:
    held.may.release(1)
    assert await knows(door)
    door.clock.move(301)
    others = [door.passwords.check("nobody", "guess", f"10.0.{number // 250}.{number % 250}") for number in range(1100)]
    flood = await begin(*others)
    (mine,) = await begin(door.passwords.check("alice", door.password, HERE))
    held.order.clear()
    held.may.release(3)
    assert (await mine).user.name == "alice"
    assert len(held.order) <= 3
    held.may.release(10_000)
    found = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(each, Overloaded) for each in found) >= 1100 - 1024 - 2


async def test_a_try_that_is_canceled_leaves_the_queue(door: Any, held: HeldHasher) -> None:
    tries = [door.passwords.check(f"nobody{number}", f"guess {number}", ELSEWHERE) for number in range(10)]
    tasks = await begin(*tries)
    for task in tasks[2:]:
        task.cancel()
    held.may.release(3)
    assert await knows(door)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [InvalidCredential] * 2 + [asyncio.CancelledError] * 8
    assert len(held.order) == 3


async def test_waiting_checks_fail_when_the_server_stops(door: Any, held: HeldHasher) -> None:
    tasks = await begin(*(door.passwords.check(f"nobody{number}", "guess", HERE) for number in range(5)))
    for _ in range(2):
        await asyncio.to_thread(held.entered.acquire)
    door.passwords.close()
    held.may.release(5)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [InvalidCredential] * 2 + [ServerError] * 3


async def test_when_all_places_are_taken_the_address_with_the_most_gives_one_up() -> None:
    slots, got = FairSlots(1, waiting=4, per_address=3), list[str]()

    async def work(address: str) -> None:
        async with slots.slot(address):
            got.append(address)

    async with slots.slot("first"):
        greedy = await begin(work("greedy"), work("greedy"), work("greedy"), work("greedy"))
        others = await begin(work("a"), work("b"), work("c"), work("d"), work("e"))
    found = await asyncio.gather(*greedy, *others, return_exceptions=True)
    assert got == ["greedy", "a", "b", "c"]
    assert [isinstance(each, Overloaded) for each in found] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
        True,
    ]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_counters_are_bounded_and_forget_who_failed_longest_ago(clock: Clock) -> None:
    counter = FailureCounter(clock, half_life=3600, free=0, longest=60, size=3)
    for key in ("a", "b", "c", "a", "d"):
        counter.add(key)
    assert len(counter) == 3
    assert [counter.count(key) for key in "abcd"] == [2, 0, 1, 1]


def test_a_clock_that_was_set_back_makes_nobody_wait_for_ever() -> None:
    clock = SettableClock()
    counter = FailureCounter(clock, half_life=3600, longest=60)
    counter.add("a")
    clock.jump(-(10**6))
    assert counter.wait("a") == 60
    assert counter.count("a") == 1


def test_no_name_that_was_typed_is_kept_in_memory(clock: Clock) -> None:
    throttle = LoginThrottle(clock)
    throttle.begin(HERE, "my password, typed as a name")
    throttle.record_failure(HERE, "my password, typed as a name")
    for part in vars(throttle).values():
        assert "typed" not in repr(vars(part))
    assert SIZE == 20_000


async def test_real_hashes_are_argon2id_and_differ_each_time() -> None:
    hasher = Argon2()
    first, second = new_password("correct horse", hasher), new_password("correct horse", hasher)
    assert first.startswith("$argon2id$")
    assert first != second
    assert hasher.verify(first, "correct horse")
    assert not hasher.verify(first, "correct horsf")
    assert not hasher.verify("no hash at all", "correct horse")


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025])
def test_a_password_that_is_too_short_or_too_long_is_not_set(password: str) -> None:
    with pytest.raises(ConfigError, match="8 to 1024"):
        new_password(password)


async def test_memory_holds_no_password_that_was_right(door: Any) -> None:
    await door.passwords.check("alice", door.password)
    checks: Passwords = door.passwords
    assert door.password not in repr(vars(checks._cache))
