"""What attackers send, beyond the tables of tests/wire/attacks: none of it gets in, and the log holds no secret."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

import pytest

from dragoman.model.error import Unauthenticated

Header = tuple[str, str]


def bearer(token: str) -> list[Header]:
    return [("Authorization", f"Bearer {token}")]


def basic(text: str | bytes) -> list[Header]:
    raw = text if isinstance(text, bytes) else text.encode()
    return [("Authorization", "Basic " + b64encode(raw).decode())]


# -- keys ------------------------------------------------------------------------------------------------------------


async def test_a_key_that_has_run_out_does_not_get_in(door: Any) -> None:
    key = door.key("alice", 60)
    door.clock.move(60)
    await refuses(door, door.chain("apikey"), lambda _: [("X-API-Key", key)])


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "another"}, "wrong-audience"),
        ({"aud": None}, "wrong-audience"),
        ({"iss": "https://evil.example"}, "wrong-issuer"),
    ],
)
async def test_a_token_for_or_from_somebody_else_is_audited_as_that(
    door: Any, issuer: Any, claims: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    with pytest.raises(Unauthenticated):
        await door.chain("bearer", bearer=issuer.table())(door.asked(*bearer(issuer.token(door.clock, **claims))))
    assert [record.__dict__["reason"] for record in caplog.records] == [reason]


async def test_an_algorithm_that_is_not_on_the_list_is_refused(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer={**issuer.table(), "algorithms": ["RS256"]})
    await refuses(door, chain, lambda _: bearer(issuer.token(door.clock)))


async def test_two_authorization_headers_are_refused(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", "basic", bearer=issuer.table())
    good = bearer(issuer.token(door.clock))
    for headers in (good + good, good + basic("alice:x"), basic(f"alice:{door.password}") + good):
        await refuses(door, chain, lambda _, headers=headers: headers)


# -- Basic -----------------------------------------------------------------------------------------------------------

BASIC: dict[str, list[Header]] = {
    "no base64": [("Authorization", "Basic !!!!")],
    "base64 with a hole": [("Authorization", "Basic YWxp Y2U6eA==")],
    "no padding": [("Authorization", "Basic YWxpY2U6eA")],
    "nothing": [("Authorization", "Basic")],
    "spaces": [("Authorization", "Basic      ")],
    "no colon": basic("alice"),
    "only a colon": basic(":"),
    "no name": basic(":correct horse"),
    "colon in the name": basic("alice:x:correct horse"),
    "another colon": basic("alice::correct horse"),
    "empty password": basic("alice:"),
    "NUL": basic("alice\0:correct horse"),
    "NUL in the password": basic("alice:correct horse\0"),
    "line break": basic("alice\r\n:correct horse"),
    "not UTF-8": basic(b"alice:\xff\xfe"),
    "not ASCII": [("Authorization", "Basic \u00ff\u00ff")],
    "huge": basic("alice:" + "x" * 9000),
    "huger": basic("alice:" + "x" * 30_000),
    "a hash": basic("alice:$argon2id$v=19$m=8,t=1,p=1$AAAA$AAAA"),
    "another case": basic("ALICE:correct horse"),
    "user without a password": basic("bob:"),
    "user without a password, guessed": basic("bob:anything"),
    "SQL": basic("' OR '1'='1:x"),
}


@pytest.mark.parametrize("attack", BASIC)
async def test_no_false_name_and_password_get_in(door: Any, attack: str) -> None:
    await refuses(door, door.chain("basic"), lambda _: BASIC[attack])


# -- all of them -----------------------------------------------------------------------------------------------------


async def refuses(door: Any, chain: Any, attack: Any) -> None:
    """The attack raises what a caller is told, and tells the log what happened and nothing that opens a door."""
    headers = attack(door)
    headers = headers if isinstance(headers, list) else await headers
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("dragoman").setLevel(logging.DEBUG)
    try:
        with pytest.raises(Unauthenticated) as raised:
            await chain(door.asked(*headers))
    finally:
        logging.getLogger("dragoman").setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(handler)
    assert raised.value.code == -31401
    audits = [record for record in records if record.name == "dragoman.audit"]
    assert {record.__dict__["event"] for record in audits} <= {"denied", "asked"}
    assert audits
    assert all(record.__dict__["address"] == "203.0.113.9" for record in audits)
    logged = " ".join(f"{record.getMessage()} {record.__dict__}" for record in records) + str(raised.value)
    for _, value in headers:
        secret = value.rpartition(" ")[2].rpartition("=")[2] or value
        assert len(secret) < 12 or secret[:100] not in logged
    assert "correct horse" not in logged
