"""Guessing is slow, ends after five tries, and tells nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.auth.inbound.passwords import Argon2, Passwords, new_password
from dragoman.model.error import ConfigError, Overloaded

QUARTER = 15 * 60


async def guess(door: Any, name: str = "alice", times: int = 5) -> None:
    for number in range(times):
        assert await door.passwords.check(name, f"guess {number}") is None


async def test_five_wrong_passwords_lock_a_user_for_a_quarter_of_an_hour(door: Any) -> None:
    await guess(door)
    assert await door.passwords.check("alice", door.password) is None
    door.clock.move(QUARTER - 1)
    assert await door.passwords.check("alice", door.password) is None
    door.clock.move(1)
    account = await door.passwords.check("alice", door.password)
    assert account is not None
    assert account.user.name == "alice"


async def test_trying_while_locked_does_not_make_it_longer(door: Any) -> None:
    await guess(door)
    door.clock.move(QUARTER - 1)
    await guess(door)
    door.clock.move(1)
    assert await door.passwords.check("alice", door.password) is not None


async def test_four_wrong_ones_and_a_right_one_begin_the_count_anew(door: Any) -> None:
    for _ in range(3):
        await guess(door, times=4)
        assert await door.passwords.check("alice", door.password) is not None
        door.clock.move(301)  # until it is not remembered any more


async def test_a_remembered_password_does_not_open_a_lock(door: Any) -> None:
    assert await door.passwords.check("alice", door.password) is not None
    await guess(door)
    assert await door.passwords.check("alice", door.password) is None


async def test_a_remembered_password_ends_with_a_new_one_and_with_the_user(door: Any) -> None:
    assert await door.passwords.check("alice", door.password) is not None
    door.users.set_password("alice", door.hasher.hash("another word"))
    assert await door.passwords.check("alice", door.password) is None
    assert await door.passwords.check("alice", "another word") is not None
    door.users.revoke("alice")
    assert await door.passwords.check("alice", "another word") is None


async def test_the_lock_of_one_user_is_not_that_of_another(door: Any) -> None:
    await guess(door, "bob")
    await guess(door, "nobody")
    assert await door.passwords.check("alice", door.password) is not None


async def test_a_new_password_ends_a_lock(door: Any) -> None:
    await guess(door)
    door.users.set_password("alice", door.hasher.hash("another word"))
    assert await door.passwords.check("alice", "another word") is not None


async def test_a_hundred_guesses_at_once_count_one_by_one(door: Any) -> None:
    guesses = [f"guess {number}" for number in range(50)]
    found = await asyncio.gather(*(door.passwords.check("alice", each) for each in [*guesses, door.password]))
    assert set(found) == {None}  # the right one came after five wrong ones


async def test_the_same_password_many_times_at_once_is_compared_once(door: Any) -> None:
    found = await asyncio.gather(*(door.passwords.check("alice", door.password) for _ in range(50)))
    assert None not in found
    assert door.hasher.verified == 1


async def test_a_flood_of_sign_ins_is_told_to_come_later(door: Any) -> None:
    checks = [door.passwords.check(f"nobody{number}", "guess") for number in range(100)]
    found = await asyncio.gather(*checks, return_exceptions=True)
    assert sum(isinstance(each, Overloaded) for each in found) == 100 - 64


@pytest.mark.parametrize("name", ["alice", "bob", "nobody", "locked", "revoked", "' OR 1=1", "x" * 5000])
async def test_every_name_takes_one_hash_and_one_write(door: Any, name: str) -> None:
    for made in ("locked", "revoked"):
        door.users.add(made, door.hasher.hash(door.password))
    await guess(door, "locked")
    door.users.revoke("revoked")
    verified, written = door.hasher.verified, writes(door)

    assert await door.passwords.check(name, "wrong") is None

    assert door.hasher.verified - verified == 1
    assert writes(door) - written == 1


def writes(door: Any) -> int:
    with door.users._reading() as reader:
        found = reader.execute("SELECT value FROM meta WHERE key = 'wrong_passwords'").fetchone()
    return found[0] if found else 0


async def test_what_happened_is_known_to_the_audit_log_alone(door: Any) -> None:
    assert await door.passwords.cause("alice") == ("wrong-password", "alice")
    assert await door.passwords.cause("my password, typed as a name") == ("unknown-user", "")
    await guess(door)
    assert await door.passwords.cause("alice") == ("locked", "alice")


async def test_real_hashes_are_argon2id_and_differ_each_time(door: Any) -> None:
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
    assert door.password not in repr(vars(checks._recall))
