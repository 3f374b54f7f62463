"""Ada's tasks, contexts, webhooks and streams, attacked by Bob and by nobody, in every dialect and transport.

Each attack is made twice: with what Ada has, and with what nobody has. Bob must not be able to tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

NOT_FOUND = {"rpc": -32001, "rest": 404}
UNAUTHENTICATED = {"rpc": -31401, "rest": 401}
EVERY = ("1.0", "1.1", "0.3", "0.1")
SINCE_0_3 = ("1.0", "1.1", "0.3")
MODERN = ("1.0", "1.1")

Attack = Callable[[Any, Any, Any, dict[str, Any]], list[Any]]


def read(reading: Any) -> Any:
    """The refusal that stands where a stream was asked for, or the stream's beginning."""
    return reading.begin()


def get(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [speaker.get(it.task, **who), speaker.get(it.task, historyLength=10, **who)]


def get_and_wait(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [speaker.get(it.task, currentGeneration=1, **who)]


def get_with_another_version(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    headers = {**who["headers"], "A2A-Version": "0.3" if speaker.is_modern else "1.1"}
    return [speaker.get(it.task, headers=headers)]


def cancel(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [speaker.cancel(it.task, **who)]


def subscribe(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    with speaker.subscribe(it.task, **who) as reading:
        return [read(reading)]


def resume_a_stream(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    answers: list[Any] = []
    for after in (0, 1, 2, 99, "x"):
        with speaker.subscribe(it.task, after=after, **who) as reading:
            answers.append(read(reading))
    return answers


def continue_with_a_message(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [speaker.send("Mallory", task=it.task, message={"messageId": str(uuid4())}, **who)]


def continue_with_a_stream(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    with speaker.stream("Mallory", task=it.task, message={"messageId": str(uuid4())}, **who) as reading:
        return [read(reading)]


def continue_in_its_context(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    message = {"messageId": str(uuid4()), "contextId": it.context}
    return [speaker.send("Mallory", task=it.task, message=message, **who)]


def continue_in_another_context(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    message = {"messageId": str(uuid4()), "contextId": "another"}
    return [speaker.send("Mallory", task=it.task, message=message, **who)]


def continue_by_generation(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    configuration = {"ifGenerationMatch": "3"}
    return [speaker.send("Mallory", task=it.task, configuration=configuration, **who)]


def continue_with_a_repeat(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [speaker.send(tool="ask_name", task=it.task, message={"messageId": it.message}, **who)]


def continue_with_a_webhook(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    hook = {"url": "http://127.0.0.1:9/mallory"}
    where = {"1.0": "taskPushNotificationConfig", "1.1": "taskPushNotificationConfig", "0.3": "pushNotificationConfig"}
    name = "pushNotification" if speaker.name == "0.3-rest" else where[speaker.version]
    return [speaker.send("Mallory", task=it.task, configuration={name: hook}, **who)]


def put_a_webhook(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [house.push(speaker, "create", it.task, **who), house.push(speaker, "create", it.task, it.push, **who)]


def read_a_webhook(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [house.push(speaker, "get", it.task, it.push, **who)]


def list_webhooks(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [house.push(speaker, "list", it.task, **who)]


def delete_a_webhook(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    return [house.push(speaker, "delete", it.task, it.push, **who)]


def by_another_agent(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    there = speaker.at("/agents/other")
    return [there.get(it.task, **who), there.cancel(it.task, **who)]


def by_its_own_name(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    there = speaker.at("/agents/wire")
    return [there.get(it.task, **who), there.cancel(it.task, **who)]


def by_the_other_path(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    there = speaker.at("/a2a") if not speaker.is_rest else speaker
    return [there.get(it.task, **who), there.cancel(it.task, **who)]


def as_a_tenant(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    names = ("ada", "bob", "wire", "*", "..", "%")
    return [speaker.get(it.task, tenant=name, **who) for name in names]


def with_a_borrowed_name(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    """Headers by which proxies say who somebody is."""
    names = ("X-User", "X-Forwarded-User", "Remote-User", "X-Remote-User", "X-Authenticated-User", "From")
    return [speaker.get(it.task, headers={**who["headers"], **dict.fromkeys(names, "ada")})]


def with_another_method_in_a_header(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    names = ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method")
    headers = {**who["headers"], **dict.fromkeys(names, "DELETE"), "X-Original-URL": "/healthz"}
    return [speaker.get(it.task, headers=headers)]


def by_a_spelling_of_its_id(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    odd = (
        it.task.upper(),
        f"{it.task} ",
        f" {it.task}",
        f"{it.task}\0",
        f"{it.task}%00",
        f"./{it.task}",
        f"{it.task}/.",
    )
    return [speaker.get(each, **who) for each in odd]


def by_guessing(house: Any, speaker: Any, it: Any, who: Any) -> list[Any]:
    odd = ("%", "_" * 36, "*", "' OR '1'='1", f"{it.task[:8]}%", "1", "0", "-1", "null", "../tasks", "a" * 2000)
    return [speaker.get(each, **who) for each in odd]


ATTACKS: dict[Attack, tuple[str, ...]] = {
    get: EVERY,
    get_and_wait: ("1.1",),
    get_with_another_version: EVERY,
    cancel: EVERY,
    subscribe: EVERY,
    resume_a_stream: EVERY,
    continue_with_a_message: SINCE_0_3,
    continue_with_a_stream: SINCE_0_3,
    continue_in_its_context: SINCE_0_3,
    continue_in_another_context: SINCE_0_3,
    continue_by_generation: ("1.1",),
    continue_with_a_repeat: SINCE_0_3,
    continue_with_a_webhook: SINCE_0_3,
    put_a_webhook: EVERY,
    read_a_webhook: EVERY,
    list_webhooks: SINCE_0_3,
    delete_a_webhook: SINCE_0_3,
    by_another_agent: EVERY,
    by_its_own_name: EVERY,
    by_the_other_path: EVERY,
    as_a_tenant: MODERN,
    with_a_borrowed_name: EVERY,
    with_another_method_in_a_header: EVERY,
    by_a_spelling_of_its_id: EVERY,
    by_guessing: EVERY,
}
SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")


def attacks_in(speaker: str) -> list[Attack]:
    """What can be tried in the words of a speaker."""
    return [attack for attack, versions in ATTACKS.items() if speaker.partition("-")[0] in versions]


class Nothing:
    """What nobody has, in the same form as what Ada has."""

    def __init__(self) -> None:
        self.task, self.context, self.push, self.message = (str(uuid4()) for _ in range(4))


def visible(answer: Any, it: Any) -> tuple[int, str, list[str]]:
    """All that an answer tells, with the names that were asked for left out."""
    text = answer.text
    for name in ("task", "context", "push", "message"):
        for spelled in (getattr(it, name), getattr(it, name).upper(), getattr(it, name)[:8]):
            text = text.replace(spelled, f"<{name}>")
    kept = sorted(
        f"{name}: {value}" for name, value in answer.headers.items() if name not in ("date", "content-length")
    )
    return answer.status, text, kept


@pytest.mark.requirement("S2-32")
@pytest.mark.parametrize("name", SPEAKERS)
def test_a_user_cannot_reach_or_detect_anything_of_another_user(
    house: Any, subtests: pytest.Subtests, name: str
) -> None:
    speaker = house.wire.speaker(name)
    ada, nothing = house.victim(speaker), Nothing()
    before, as_bob, as_ada = house.rows(), house.as_("bob"), house.as_("ada")
    for attack in attacks_in(name):
        with subtests.test(attack.__name__):
            found, missed = attack(house, speaker, ada, as_bob), attack(house, speaker, nothing, as_bob)
            assert [visible(answer, ada) for answer in found] == [visible(answer, nothing) for answer in missed]
            for answer in found:
                assert (answer.code, answer.reason) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND"), answer.text
            assert house.rows() == before
            assert speaker.state(speaker.get(ada.task, **as_ada)) == "input-required"
            assert "127.0.0.1:9/hook" in house.push(speaker, "get", ada.task, ada.push, **as_ada).text


@pytest.mark.requirement("S0-5", "S2-32")
@pytest.mark.parametrize("name", SPEAKERS)
def test_every_attack_without_credentials_is_unauthenticated(house: Any, subtests: pytest.Subtests, name: str) -> None:
    speaker = house.wire.speaker(name)
    ada, before = house.victim(speaker), house.rows()
    for attack in attacks_in(name):
        with subtests.test(attack.__name__):
            for answer in attack(house, speaker, ada, house.as_("")):
                assert answer.status == 401
                assert (answer.code, answer.reason) == (UNAUTHENTICATED[speaker.binding], "UNAUTHENTICATED")
                assert ada.task not in answer.text
                challenges = answer.headers.get_list("www-authenticate")
                assert [each.partition(" ")[0] for each in challenges] == ["Cookie", "Bearer", "ApiKey", "Basic"]
            assert house.rows() == before
    assert speaker.state(speaker.get(ada.task, **house.as_("ada"))) == "input-required"


# For Ada these lead nowhere either.
MISDIRECTED = (by_another_agent, as_a_tenant, by_a_spelling_of_its_id, by_guessing, continue_in_another_context)


@pytest.mark.parametrize("name", SPEAKERS)
def test_every_attack_works_for_the_owner(house: Any, subtests: pytest.Subtests, name: str) -> None:
    speaker = house.wire.speaker(name)
    for attack in attacks_in(name):
        if attack not in MISDIRECTED:
            with subtests.test(attack.__name__):
                answer = attack(house, speaker, house.victim(speaker), house.as_("ada"))[0]
                assert (answer.status, '"error"' in getattr(answer, "text", "")) == (200, False)


# -- what looks the same from outside, and must be Bob's own -------------------------------------------------------


@pytest.mark.parametrize("speaker", [each for each in SPEAKERS if each != "0.1-rpc"])
@pytest.mark.parametrize("how", ["send", "stream"])
def test_a_message_in_the_context_of_another_user_begins_a_conversation_of_its_own(
    house: Any, speaker: str, how: str
) -> None:
    caller = house.wire.speaker(speaker)
    ada = house.victim(caller)
    message = {"messageId": str(uuid4()), "contextId": ada.context}
    if how == "send":
        task = caller.task(caller.send("hi", message=message, **house.as_("bob")))
    else:
        with caller.stream("hi", message=message, **house.as_("bob")) as reading:
            first = caller.event(reading.next())
        task = first.get("task", first)
    assert (task["contextId"], task["id"] == ada.task) == (ada.context, False)
    assert ada.message not in str(task)
    lister = house.wire.speaker("1.0-rpc")
    theirs = {
        name: [each["id"] for each in lister.list(contextId=ada.context, **house.as_(name)).result["tasks"]]
        for name in ("ada", "bob")
    }
    assert theirs == {"ada": [ada.task], "bob": [task["id"]]}


@pytest.mark.parametrize("speaker", [each for each in SPEAKERS if each != "0.1-rpc"])
def test_a_message_of_another_user_is_not_recognized_as_a_repeat(house: Any, speaker: str) -> None:
    caller = house.wire.speaker(speaker)
    ada = house.victim(caller)
    answer = caller.send(tool="ask_name", message={"messageId": ada.message}, **house.as_("bob"))
    assert "idempotent-replayed" not in answer.headers
    assert caller.id_of(caller.task(answer)) != ada.task
    with caller.stream(tool="ask_name", message={"messageId": ada.message}, **house.as_("vera")) as reading:
        assert "idempotent-replayed" not in reading.headers
        assert ada.task not in reading.next().data


@pytest.mark.parametrize("speaker", [each for each in SPEAKERS if each != "0.1-rpc"])
def test_a_reference_to_a_task_of_another_user_reveals_nothing(house: Any, speaker: str) -> None:
    caller = house.wire.speaker(speaker)
    ada, nothing = house.victim(caller), Nothing()
    texts: list[str] = []
    for it in (ada, nothing):
        message = {"messageId": str(uuid4()), "referenceTaskIds": [it.task]}
        texts += caller.texts(caller.send("hi", message=message, **house.as_("bob")))
    assert texts == ["hi", "hi"]


def test_the_id_of_another_user_s_task_cannot_be_chosen(house: Any) -> None:
    caller = house.wire.speaker("0.1-rpc")
    ada, before = house.victim(caller), house.rows()
    for answer in (
        caller.send("Mallory", id=ada.task, **house.as_("bob")),
        caller.send("Mallory", id=ada.task, sessionId=ada.context, **house.as_("bob")),
    ):
        assert (answer.code, answer.field) == (-32602, "id")
        assert ada.context not in answer.text
    with caller.stream("Mallory", id=ada.task, **house.as_("bob")) as reading:
        assert reading.refusal().code == -32602
    assert house.rows() == before
    task = caller.get(ada.task, historyLength=10, **house.as_("ada")).result
    assert "Mallory" not in str(task)
    assert caller.state(task) == "input-required"


def test_a_webhook_of_another_user_is_not_found_under_an_own_task(house: Any) -> None:
    for name in SPEAKERS:
        caller = house.wire.speaker(name)
        ada = house.victim(caller)
        own = caller.id_of(
            caller.task(caller.send(tool="ask_name", message={"messageId": str(uuid4())}, **house.as_("bob")))
        )
        assert house.push(caller, "get", own, ada.push, **house.as_("bob")).reason == "TASK_NOT_FOUND"
        if name != "0.1-rpc":
            assert ada.push not in house.push(caller, "list", own, **house.as_("bob")).text
            house.push(caller, "delete", own, ada.push, **house.as_("bob"))
        assert "127.0.0.1:9/hook" in house.push(caller, "get", ada.task, ada.push, **house.as_("ada")).text
