"""A skill with a permission, called by every way there is by who has it not; and cards that show it to nobody else."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent, Server
from dragoman.testing import served

CARD = "/.well-known/agent-card.json"
CARDS = (CARD, "/.well-known/agent.json", f"/agents/wire{CARD}", f"/agents/other{CARD}")
SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")


def fresh(**members: Any) -> dict[str, Any]:
    return {"messageId": str(uuid4()), **members}


def by_a_tool(speaker: Any, who: Any) -> Any:
    return speaker.send(tool="empty_vault", message=fresh(), **who)


def by_a_tool_after_another(speaker: Any, who: Any) -> Any:
    return speaker.send({"a": 1}, {"tool": "empty_vault"}, "hi", message=fresh(), **who)


def by_metadata(speaker: Any, who: Any) -> Any:
    return speaker.send("hi", message=fresh(), metadata={"skillId": "empty_vault"}, **who)


def by_metadata_in_another_spelling(speaker: Any, who: Any) -> Any:
    return speaker.send("hi", message=fresh(), metadata={"skill_id": "empty_vault"}, **who)


def by_metadata_of_the_message(speaker: Any, who: Any) -> Any:
    return speaker.send(tool="empty_vault", message=fresh(metadata={"permissions": ["vault-key"]}), **who)


def with_permissions_of_its_own(speaker: Any, who: Any) -> Any:
    claimed = {"user": {"id": "vera", "permissions": ["vault-key"]}, "permission": "vault-key", "is_admin": True}
    return speaker.send(tool="empty_vault", message=fresh(), metadata=claimed, **who)


def with_arguments_that_claim_it(speaker: Any, who: Any) -> Any:
    arguments = {"ctx": {"user": "vera"}, "permission": "vault-key", "user": "vera"}
    return speaker.send(tool="empty_vault", arguments=arguments, message=fresh(), **who)


def at_the_agent_s_own_path(speaker: Any, who: Any) -> Any:
    return speaker.at("/agents/wire").send(tool="empty_vault", message=fresh(), **who)


def by_one_that_asks(speaker: Any, who: Any) -> Any:
    return speaker.send(tool="ask_vault", message=fresh(), **who)


ROUTES = [
    by_a_tool,
    by_a_tool_after_another,
    by_metadata,
    by_metadata_in_another_spelling,
    by_metadata_of_the_message,
    with_permissions_of_its_own,
    with_arguments_that_claim_it,
    at_the_agent_s_own_path,
    by_one_that_asks,
]


def refused(speaker: Any, answer: Any) -> None:
    """The task was refused, and says which skill and not which permission."""
    assert speaker.state(answer) == ("failed" if speaker.version == "0.1" else "rejected")
    status = str(speaker.task(answer)["status"])  # the history has what the caller wrote
    assert "Unauthorized: " in status
    assert "vault-key" not in status
    assert "is empty" not in answer.text


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", SPEAKERS)
def test_no_route_leads_to_a_skill_that_is_closed(house: Any, name: str, route: Any, caplog: Any) -> None:
    speaker = house.wire.speaker(name)
    caplog.clear()
    refused(speaker, route(speaker, house.as_("bob")))
    denied = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
    assert any(line.startswith("event=denied user=bob scheme=permission reason=") for line in denied), denied


@pytest.mark.parametrize("name", SPEAKERS)
def test_a_stream_of_a_closed_skill_says_the_same(house: Any, name: str) -> None:
    speaker = house.wire.speaker(name)
    with speaker.stream(tool="empty_vault", message=fresh(), **house.as_("bob")) as reading:
        events = list(reading)
    assert "Unauthorized: " in events[-1].data
    assert "is empty" not in "".join(event.data for event in events)


@pytest.mark.parametrize("name", [each for each in SPEAKERS if each != "0.1-rpc"])
def test_a_message_to_a_task_of_one_s_own_does_not_change_its_skill(house: Any, name: str) -> None:
    speaker = house.wire.speaker(name)
    task = speaker.task(speaker.send(tool="ask_name", message=fresh(), **house.as_("bob")))
    answer = speaker.send(tool="empty_vault", task=task, message=fresh(), **house.as_("bob"))
    assert "is empty" not in answer.text


@pytest.mark.parametrize("name", [each for each in SPEAKERS if each != "0.1-rpc"])
def test_a_permission_that_is_taken_back_ends_a_task_that_waits(house: Any, name: str) -> None:
    speaker, user = house.wire.speaker(name), f"user-{uuid4().hex[:8]}"
    house.users.add(user, "", ("vault-key",))
    who = house.as_(user)
    task = speaker.task(by_one_that_asks(speaker, who))
    assert speaker.state(task) == "input-required"
    house.users.revoke_permission(user, "vault-key")
    answer = speaker.send("gold", task=task, message=fresh(), **who)
    assert "Unauthorized: " in answer.text
    assert "the vault gives" not in answer.text


def test_a_permission_for_a_time_ends_with_it(house: Any) -> None:
    speaker, user = house.wire.speaker("1.0-rpc"), f"user-{uuid4().hex[:8]}"
    house.users.add(user)
    house.users.grant(user, "vault-key", 3600)
    assert speaker.texts(by_a_tool(speaker, house.as_(user))) == ["the vault is empty"]
    house.users.grant(user, "vault-key", -1)
    refused(speaker, by_a_tool(speaker, house.as_(user)))


@pytest.mark.parametrize("name", SPEAKERS)
def test_a_wrong_name_is_answered_without_the_names_of_closed_skills(house: Any, name: str) -> None:
    speaker = house.wire.speaker(name)
    for wrong in ("empty_vaul", "zzz", "ask_vaul"):
        bob = speaker.send(tool=wrong, message=fresh(), **house.as_("bob"))
        assert "empty_vault" not in bob.text.replace(f"`{wrong}`", "")
        assert "ask_vault" not in bob.text.replace(f"`{wrong}`", "")
    assert "empty_vault" in speaker.send(tool="empty_vaul", message=fresh(), **house.as_("vera")).text


@pytest.mark.parametrize("first", ["locked", "free"])
def test_a_text_goes_to_a_skill_the_caller_may_use(house: Any, first: str) -> None:
    agent = Agent("two", description="Two skills")

    def locked(text: str) -> str:
        """Locked."""
        return f"locked {text}"

    def free(text: str) -> str:
        """Free."""
        return f"free {text}"

    for function in (locked, free) if first == "locked" else (free, locked):
        agent.skill(permission="vault-key" if function is locked else None)(function)
    with served(agent) as url:
        speaker = house.wire.at(url).speaker("1.0-rpc")
        assert speaker.texts(speaker.send("hi")) == ["free hi"]


# -- cards -------------------------------------------------------------------------------------------------------------


def skills(card: Any) -> set[str]:
    return {skill["id"] for skill in card["skills"]}


VAULT = {"empty_vault", "ask_vault"}


@pytest.mark.requirement("S0-11")
@pytest.mark.parametrize("path", CARDS)
def test_a_card_lists_what_its_reader_may_use(house: Any, path: str) -> None:
    shown = {
        name: skills(house.wire.request("GET", path, **house.as_(name)).json) & VAULT for name in ("", "bob", "vera")
    }
    assert shown == {"": set(), "bob": set(), "vera": VAULT}


def test_a_card_that_vera_has_seen_is_not_given_to_bob_from_any_cache(house: Any) -> None:
    hers = house.wire.request("GET", CARD, **house.as_("vera"))
    assert hers.headers["cache-control"] == "private, no-cache"
    assert "cookie" in hers.headers["vary"]
    assert "last-modified" not in hers.headers
    for name, seen in (("bob", VAULT - VAULT), ("", VAULT - VAULT), ("vera", VAULT)):
        for asked in (
            {"If-None-Match": hers.headers["etag"]},
            {"If-None-Match": f'W/{hers.headers["etag"]}, "other"'},
            {"If-None-Match": "*"},
            {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        ):
            answer = house.wire.request("GET", CARD, **house.as_(name, **asked))
            if answer.status == 304:
                # Only who has seen this very card, or asks for the one that all may see, is spared it.
                assert name == "" or (name == "vera" and "If-None-Match" in asked)
                assert answer.headers["etag"] != hers.headers["etag"] or name == "vera"
            else:
                assert skills(answer.json) & VAULT == seen


def test_the_public_card_says_that_it_differs_by_caller(house: Any) -> None:
    public = house.wire.request("GET", CARD)
    assert public.headers["cache-control"].startswith("public")
    assert {"cookie", "authorization"} <= set(public.headers["vary"].split(", "))


def test_an_agent_of_the_house_is_no_way_around_the_other_s_lock(house: Any) -> None:
    speaker = house.wire.speaker("1.0-rpc").at("/agents/other")
    refused(speaker, by_a_tool(speaker, house.as_("bob")))
    assert house.wire.speaker("1.0-rpc").at("/agents/none").send("hi", **house.as_("vera")).status == 404


def test_a_grant_counts_for_the_card_at_once(house: Any) -> None:
    user = f"user-{uuid4().hex[:8]}"
    house.users.add(user)
    who = house.as_(user)
    seen = [skills(house.wire.request("GET", CARD, **who).json) & VAULT]
    house.users.grant(user, "vault-key")
    seen.append(skills(house.wire.request("GET", CARD, **who).json) & VAULT)
    house.users.revoke_permission(user, "vault-key")
    seen.append(skills(house.wire.request("GET", CARD, **who).json) & VAULT)
    assert seen == [set(), VAULT, set()]


def test_strangers_reach_open_skills_where_auth_is_not_set(new_agent: Any, house: Any) -> None:
    agent = new_agent()

    @agent.skill(permission="vault-key")
    def empty_vault() -> str:
        """Take everything out."""
        return "the vault is empty"

    with served(Server(agent), grpc=0) as url:
        wire = house.wire.at(url)
        for name in SPEAKERS:
            speaker = wire.speaker(name)
            assert speaker.texts(speaker.send("hi", message=fresh())) == ["hi"]
            refused(speaker, by_a_tool(speaker, {}))
            assert speaker.send("hi", headers={"Cookie": "user=garbage"}).status == 401
