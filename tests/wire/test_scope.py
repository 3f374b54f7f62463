"""Whose request it is and how it is to be taken: tenants, owners, repeats, extensions, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

from dragoman import User
from dragoman.testing import served

MODERN = ["1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest"]
SINCE_0_3 = [*MODERN, "0.3-rpc", "0.3-rest"]
NOT_FOUND = {"rpc": -32001, "rest": 404}


def refused(speaker: Any, task: str, **options: Any) -> list[tuple[int, str, str]]:
    """What every operation on a task answers."""
    answers = [speaker.get(task, **options), speaker.cancel(task, **options)]
    if speaker.version != "0.1":  # there, an unknown id is a new task's
        answers.append(speaker.send("hi", task=task, **options))
    return [(answer.code, answer.reason, answer.json["error"]["message"]) for answer in answers]


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_a_tenant_sees_its_own_tasks_only(speaker: Any) -> None:
    tenants = [f"tenant-{uuid4()}", f"tenant-{uuid4()}"]
    mine, theirs = (
        (speaker.at(f"/{tenant}"), {}) if speaker.is_rest else (speaker, {"tenant": tenant}) for tenant in tenants
    )
    task = speaker.id_of(mine[0].send(tool="ask_name", **mine[1]))
    assert speaker.state(mine[0].get(task, **mine[1])) == "input-required"
    assert [each["id"] for each in mine[0].list(**mine[1]).result["tasks"]] == [task]
    unknown = [(NOT_FOUND[speaker.binding], "TASK_NOT_FOUND", "Task not found")] * 3
    assert refused(theirs[0], task, **theirs[1]) == unknown
    assert refused(speaker, task) == unknown
    assert theirs[0].list(**theirs[1]).result["tasks"] == []


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_the_agent_is_told_the_tenant(speaker: Any) -> None:
    answers = [speaker.send(tool="who", tenant="acme")]
    if speaker.is_rest:
        answers += [speaker.at("/acme").send(tool="who"), speaker.at("/acme").send(tool="who", tenant="other")]
    assert {text for answer in answers for text in speaker.texts(answer)} == {"user= tenant=acme extensions="}


def test_one_tenant_is_the_same_in_a_path_in_a_body_and_in_a_query(wire: Any) -> None:
    tenant = f"tenant {uuid4()}/ü"
    rest, rpc = wire.speaker("1.0-rest"), wire.speaker("1.0-rpc")
    task = rpc.id_of(rpc.send("hi", tenant=tenant))
    assert rest.at(f"/{quote(tenant, safe='')}").get(task).json["id"] == task
    assert rest.get(task, tenant=tenant).json["id"] == task
    assert rest.at(f"/{quote(tenant, safe='')}").get(task).json == rpc.get(task, tenant=tenant).result


def test_a_stream_of_another_tenant_cannot_be_read(wire: Any) -> None:
    rest = wire.speaker("1.0-rest")
    task = rest.id_of(rest.at("/acme").send(tool="ask_name"))
    with rest.at("/acme").subscribe(task) as reading:
        assert reading.next().json["task"]["id"] == task
    for after in (None, 1):
        with rest.subscribe(task, after=after) as reading:
            assert reading.refusal().reason == "TASK_NOT_FOUND"


# -- owners ------------------------------------------------------------------------------------------------------------


async def by_name(request: Any) -> User | None:
    """Trusts everybody who says a name."""
    name = request.headers.get("x-user")
    if name == "broken":
        raise ValueError("the directory at /etc/users is gone")
    return User(name) if name else None


@pytest.fixture(scope="module")
def guarded(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """A server that wants to know who is calling."""
    with served(new_agent(), auth=by_name, heartbeat=0.05, drain=0) as url:
        yield wire.at(url)


def as_(name: str) -> dict[str, Any]:
    return {"headers": {"X-User": name}}


@pytest.mark.requirement("S2-32")
def test_a_task_belongs_to_who_created_it(speaker: Any, guarded: Any) -> None:
    speaker = guarded.speaker(speaker.name)
    task = speaker.id_of(speaker.send(tool="ask_name", **as_("ada")))
    assert speaker.state(speaker.get(task, **as_("ada"))) == "input-required"
    unknown = {(NOT_FOUND[speaker.binding], "TASK_NOT_FOUND", "Task not found")}
    assert set(refused(speaker, task, **as_("bob"))) == unknown
    assert set(refused(speaker, "never-was", **as_("bob"))) == unknown
    for after in (None, 1):
        with speaker.subscribe(task, after=after, **as_("bob")) as reading:
            assert reading.refusal().reason == "TASK_NOT_FOUND"
    assert speaker.state(speaker.get(task, **as_("ada"))) == "input-required"


@pytest.mark.parametrize("speaker", MODERN, indirect=True)
def test_everybody_lists_their_own_tasks(speaker: Any, guarded: Any) -> None:
    speaker, one, other = guarded.speaker(speaker.name), as_(str(uuid4())), as_(str(uuid4()))
    task = speaker.id_of(speaker.send("hi", **one))
    assert [each["id"] for each in speaker.list(**one).result["tasks"]] == [task]
    assert speaker.list(**other).result["tasks"] == []


def test_the_agent_is_told_the_user(speaker: Any, guarded: Any) -> None:
    speaker = guarded.speaker(speaker.name)
    assert speaker.texts(speaker.send(tool="who", **as_("ada"))) == ["user=ada tenant= extensions="]


def test_an_id_that_somebody_else_has_chosen_cannot_be_used(guarded: Any) -> None:
    speaker, task = guarded.speaker("0.1-rpc"), str(uuid4())
    speaker.send(tool="ask_name", id=task, **as_("ada"))
    answer = speaker.send("hi", id=task, **as_("bob"))
    assert (answer.code, answer.field) == (-32602, "id")


@pytest.mark.requirement("S2-32")
def test_a_stranger_is_refused_with_401(speaker: Any, guarded: Any) -> None:
    speaker = guarded.speaker(speaker.name)
    for answer in (speaker.send("hi"), speaker.get("t"), speaker.cancel("t")):
        assert answer.status == 401
        assert (answer.code, answer.reason) == (401 if speaker.is_rest else -31401, "UNAUTHENTICATED")
        assert answer.json["error"]["message"] == "Authentication required"
    with speaker.stream("hi") as reading:
        assert reading.refusal().status == 401


@pytest.mark.parametrize(
    ("path", "status"), [("/.well-known/agent-card.json", 200), ("/healthz", 200), ("/readyz", 200)]
)
def test_a_stranger_may_read_the_card_and_the_health(guarded: Any, path: str, status: int) -> None:
    assert guarded.request("GET", path).status == status


@pytest.mark.requirement("S2-32")
def test_without_an_authenticator_everybody_is_welcome(speaker: Any) -> None:
    assert speaker.state(speaker.send("hi")) == "completed"


def test_an_authenticator_that_breaks_lets_nobody_in_and_says_nothing(speaker: Any, guarded: Any) -> None:
    speaker = guarded.speaker(speaker.name)
    answer = speaker.send("hi", **as_("broken"))
    assert (answer.code, answer.reason) == (500 if speaker.is_rest else -32603, "INTERNAL_ERROR")
    assert "/etc" not in answer.text
    assert speaker.state(speaker.send("hi", **as_("ada"))) == "completed"


# -- repeats -----------------------------------------------------------------------------------------------------------


def repeated(answer: Any) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_message_that_comes_twice_is_taken_once(speaker: Any) -> None:
    message = {"messageId": str(uuid4())}
    first, second = (speaker.send("hi", message=message) for _ in range(2))
    assert (repeated(first), repeated(second)) == (False, True)
    assert second.json == first.json


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
@pytest.mark.parametrize(
    ("message_id", "words", "caller"),
    [
        pytest.param("m1", "hi", "ada", id="hand-typed"),
        pytest.param("as-long-as-a-uuid-but-typed-by-hand-", "hi", "ada", id="hand-typed-long"),
        pytest.param(str(UUID(int=1)), "other words", "ada", id="other-words"),
        pytest.param(str(UUID(int=2)), "hi", "bob", id="other-caller"),
    ],
)
def test_only_the_same_words_of_the_same_caller_under_a_uuid_are_a_repeat(
    speaker: Any, guarded: Any, message_id: str, words: str, caller: str
) -> None:
    speaker, message = guarded.speaker(speaker.name), {"messageId": message_id}
    first = speaker.send(f"hi {speaker.name}", message=message, **as_("ada"))
    second = speaker.send(f"{words} {speaker.name}", message=message, **as_(caller))
    assert (repeated(first), repeated(second)) == (False, False)
    assert speaker.id_of(first) != speaker.id_of(second)


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_stream_that_is_asked_for_twice_is_shown_again_from_its_task_on(speaker: Any) -> None:
    message = {"messageId": str(uuid4())}
    with speaker.stream(tool="count", arguments={"n": 3}, message=message) as reading:
        assert not repeated(reading)
        first = list(reading)
    with speaker.stream(tool="count", arguments={"n": 3}, message=message) as reading:
        assert repeated(reading)
        assert list(reading) == first


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_task_at_work_is_joined_by_a_repeat(speaker: Any) -> None:
    message = {"messageId": str(uuid4())}
    with (
        speaker.stream(tool="until_told", message=message) as one,
        speaker.stream(tool="until_told", message=message) as two,
    ):
        firsts = one.next(), two.next()
        assert firsts[0] == firsts[1]
        task = speaker.event(firsts[0])
        speaker.send("enough", task=speaker.id_of(task), message={"messageId": "m2"})
        assert list(one) == list(two)


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_an_answer_that_comes_twice_is_taken_once(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    message = {"messageId": str(uuid4())}
    first, second = (speaker.send("Ada", task=task, message=message) for _ in range(2))
    assert (repeated(first), repeated(second)) == (False, True)
    assert second.json == first.json


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_the_stream_of_an_answer_that_comes_twice_goes_on_to_the_end(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    message = {"messageId": str(uuid4())}
    for _ in range(2):
        with speaker.stream("Ada", task=task, message=message) as reading:
            last = list(reading)[-1]
        assert speaker.state(speaker.event(last)) == "completed"


def test_repeats_can_be_turned_off(wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(), dedupe=0) as url:
        speaker = wire.at(url).speaker("1.0-rpc")
        message = {"messageId": str(uuid4())}
        tasks = [speaker.send("hi", message=message) for _ in range(2)]
    assert [repeated(task) for task in tasks] == [False, False]
    assert speaker.id_of(tasks[0]) != speaker.id_of(tasks[1])


# -- extensions --------------------------------------------------------------------------------------------------------

ONE, TWO, NEED = "https://example.com/one", "https://example.com/two", "https://example.com/need"


@pytest.fixture(scope="module")
def extended(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """A server whose agent knows two extensions."""
    with served(new_agent(extensions=[ONE, TWO]), drain=0) as url:
        yield wire.at(url)


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize(
    ("asked", "activated"),
    [(ONE, ONE), (f"{TWO}, {ONE}", f"{ONE}, {TWO}"), (f"{ONE},https://example.com/unknown", ONE), ("nothing", None)],
)
def test_activated_extensions_are_told_to_caller_and_agent(
    speaker: Any, extended: Any, header: str, asked: str, activated: str | None
) -> None:
    speaker = extended.speaker(speaker.name)
    answered = {"1": "a2a-extensions", "0": "x-a2a-extensions"}[speaker.version[0]]
    answer = speaker.send(tool="who", headers={header: asked})
    told = None if speaker.version == "0.1" else activated
    assert answer.headers.get(answered) == told
    assert speaker.texts(answer) == [f"user= tenant= extensions={(activated or '').replace(', ', ',')}"]
    with speaker.stream("hi", headers={header: asked}) as reading:
        assert reading.headers.get(answered) == told


def test_nothing_is_activated_that_nobody_asked_for(speaker: Any, extended: Any) -> None:
    answer = extended.speaker(speaker.name).send("hi")
    assert "a2a-extensions" not in answer.headers
    assert "x-a2a-extensions" not in answer.headers


def test_a_required_extension_must_be_asked_for(speaker: Any, wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(extensions=[{"uri": NEED, "required": True}]), drain=0) as url:
        speaker = wire.at(url).speaker(speaker.name)
        code = 400 if speaker.is_rest else -32008 if speaker.is_modern else -32603
        for answer in (speaker.send("hi"), speaker.get("t"), speaker.cancel("t")):
            assert (answer.code, answer.reason) == (code, "EXTENSION_SUPPORT_REQUIRED")
            assert NEED in answer.json["error"]["message"]
        assert speaker.state(speaker.send("hi", headers={"A2A-Extensions": NEED})) == "completed"
        card = wire.at(url).request("GET", "/.well-known/agent-card.json").json
    assert card["capabilities"]["extensions"][0] == {"uri": NEED, "required": True}


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.5", "2.0", "9", "latest", "1.0, 1.0", "-1"])
def test_an_unknown_version_is_refused(speaker: Any, version: str) -> None:
    for answer in (
        speaker.send("hi", headers={"A2A-Version": version}),
        speaker.get("t", headers={"A2A-Version": version}),
    ):
        assert (answer.code, answer.reason) == (400 if speaker.is_rest else -32009, "VERSION_NOT_SUPPORTED")
        assert version in answer.json["error"]["message"]
    speaker.wire.healthy()


@pytest.mark.parametrize("version", ["", "1.0", "1.0.1", "1", "0.3", "0.2.6", "0.1"])
def test_a_known_version_or_none_is_answered(speaker: Any, version: str) -> None:
    assert speaker.state(speaker.send("hi", headers={"A2A-Version": version})) == "completed"


@pytest.mark.parametrize("version", ["", "0.3", "1.0"])
def test_the_method_decides_and_the_header_only_asks_for_1_1(wire: Any, version: str) -> None:
    shapes = {"1.0-rpc": {"task"}, "0.3-rpc": {"kind"}, "0.1-rpc": {"sessionId"}}
    for name, member in shapes.items():
        answer = wire.speaker(name).send("hi", headers={"A2A-Version": version})
        assert member <= set(answer.result)
        assert "generation" not in answer.text
