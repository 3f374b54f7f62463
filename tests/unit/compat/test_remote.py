"""Remote agents: their cards, and tasks for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import errors
from dragoman.compat.remote import (
    ExternalServiceError,
    NotFoundError,
    RemoteInvocationResult,
    ValidationError,
    clear_agent_card_cache,
    discover_agent,
    fetch_agent_card,
    handle_discover_agent,
    handle_invoke_remote_agent,
    invoke_remote_agent,
)
from dragoman.compat.remote.cards import MAX_CARD, RemoteCardCache
from dragoman.testing import Clock

CARD: dict[str, Any] = {"name": "corvid", "version": "1", "skills": [{"id": "summarize", "name": "Summarize"}]}
PATH = "/.well-known/agent-card.json"
MINUTE = 60


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    clear_agent_card_cache()
    yield
    clear_agent_card_cache()


# -- cards ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-1", "S3-10")
@pytest.mark.parametrize("ending", ["", "/", "/agents/corvid/"])
async def test_a_card_is_fetched_from_its_well_known_place(stub: Any, ending: str) -> None:
    server = await stub(lambda _: CARD)
    assert await fetch_agent_card(server.url + ending) == CARD
    assert server.paths == [f"GET {ending.rstrip('/')}{PATH}"]
    assert server.seen[0].headers["accept"] == "application/json"


@pytest.mark.requirement("S3-10", "S3-31", "S3-48", "S3-49")
async def test_a_card_is_kept_for_exactly_five_minutes(stub: Any) -> None:
    server, clock = await stub(lambda _: CARD), Clock()
    await fetch_agent_card(server.url, clock=clock)
    clock.move(5 * MINUTE)
    await fetch_agent_card(server.url + "/", clock=clock)
    assert len(server.seen) == 1
    clock.move(0.001)
    await fetch_agent_card(server.url, clock=clock)
    assert len(server.seen) == 2


async def test_a_card_is_not_kept_for_longer_by_a_clock_that_was_set_back(stub: Any) -> None:
    server = await stub(lambda _: CARD)
    await fetch_agent_card(server.url, clock=Clock(2_000_000_000_000))
    await fetch_agent_card(server.url, clock=Clock(1_000_000_000_000))
    assert len(server.seen) == 2


@pytest.mark.requirement("S3-32")
async def test_stale_cards_are_forgotten_when_any_card_is_fetched(stub: Any) -> None:
    cache, clock = RemoteCardCache(), Clock()
    one, two, three = [await stub(lambda _: CARD) for _ in range(3)]
    await cache.fetch(one.url, clock)
    clock.move(3 * MINUTE)
    await cache.fetch(two.url, clock)
    assert len(cache) == 2
    clock.move(3 * MINUTE)
    await cache.fetch(three.url, clock)
    assert len(cache) == 2, "the first is stale, the second is not"
    await cache.fetch(two.url, clock)
    assert [len(server.seen) for server in (one, two, three)] == [1, 1, 1]


@pytest.mark.requirement("S3-12")
async def test_a_cleared_cache_fetches_again(stub: Any) -> None:
    server, clock = await stub(lambda _: CARD), Clock()
    await fetch_agent_card(server.url, clock=clock)
    clear_agent_card_cache()
    await fetch_agent_card(server.url, clock=clock)
    assert len(server.seen) == 2


async def test_a_caller_who_changes_its_card_changes_no_other(stub: Any) -> None:
    server, clock = await stub(lambda _: CARD), Clock()
    (await fetch_agent_card(server.url, clock=clock))["skills"].clear()
    kept = await fetch_agent_card(server.url, clock=clock)
    kept["name"] = "mine"
    assert await fetch_agent_card(server.url, clock=clock) == CARD
    assert len(server.seen) == 1


@pytest.mark.requirement("S3-51")
@pytest.mark.parametrize(("status", "named"), [(404, "HTTP 404 Not Found"), (500, "HTTP 500 Internal"), (599, "599")])
async def test_a_status_other_than_success_is_named(stub: Any, status: int, named: str) -> None:
    server = await stub(lambda _: (CARD, status))
    with pytest.raises(ExternalServiceError, match=named) as caught:
        await fetch_agent_card(server.url)
    assert str(caught.value).startswith(f"A2A: Failed to fetch Agent Card from {server.url}{PATH}: HTTP {status}")
    assert (caught.value.status, caught.value.reason) == (status, "UNAVAILABLE")


async def test_an_unreachable_agent_is_a_service_error(refusing: str) -> None:
    with pytest.raises(ExternalServiceError, match="nobody answers") as caught:
        await fetch_agent_card(refusing)
    assert (caught.value.status, caught.value.reason, caught.value.arrived) == (None, "CANNOT_CONNECT", False)


async def test_certificates_are_verified_here(stub: Any, certificate: Path) -> None:
    server = await stub(lambda _: CARD, certificate)
    with pytest.raises(ExternalServiceError, match="not trusted") as caught:
        await fetch_agent_card(server.url)
    assert caught.value.reason == "TLS"
    assert "not trusted" in ((await invoke_remote_agent(server.url, "hi")).error or "")
    assert server.seen == []


async def test_a_card_that_takes_longer_than_ten_seconds_is_not_waited_for(stub: Any) -> None:
    clock, asked, over = Clock(), asyncio.Event(), asyncio.Event()

    async def late(_: Any) -> Any:
        asked.set()
        await over.wait()
        return CARD

    server = await stub(late)
    fetching = asyncio.create_task(fetch_agent_card(server.url, clock=clock))
    await asked.wait()
    clock.move(9.9)
    assert clock.pending == 1
    clock.move(0.1)
    with pytest.raises(ExternalServiceError, match="within 10 s") as caught:
        await fetching
    assert caught.value.reason == "TIMED_OUT"
    over.set()


@pytest.mark.requirement("S3-33", "S3-52")
@pytest.mark.parametrize(
    ("card", "missing"),
    [
        ({}, "missing name, version"),
        ({"name": "", "version": " "}, "missing name, version"),
        ({"name": "n", "version": None}, "missing version"),
        ({"version": "1"}, r"missing name \(required: name, version\)"),
        ({"name": ["n"], "version": "1"}, "missing name"),
    ],
)
async def test_a_card_without_name_or_version_is_refused_by_their_names(stub: Any, card: Any, missing: str) -> None:
    server = await stub(lambda _: card)
    with pytest.raises(ValidationError, match=missing):
        await fetch_agent_card(server.url)
    assert len(server.seen) == 1


@pytest.mark.parametrize("body", [b"<html>", b'{"name": "n"', b"[]", b"", b'"\xff"', b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_no_card(stub: Any, body: bytes) -> None:
    server = await stub(lambda _: body)
    with pytest.raises(ValidationError, match="not a JSON object"):
        await fetch_agent_card(server.url)


async def test_a_card_without_end_is_not_read_to_its_end(stub: Any) -> None:
    server = await stub(lambda _: b" " * (MAX_CARD + 1))
    with pytest.raises(ValidationError, match="larger than 4 MB"):
        await fetch_agent_card(server.url)


async def test_a_card_that_was_refused_is_not_kept(stub: Any) -> None:
    cards = iter([({}, 200), (CARD, 503), (CARD, 200)])
    server = await stub(lambda _: next(cards))
    assert [await discover_agent(server.url) for _ in range(3)] == [None, None, CARD]


@pytest.mark.requirement("S3-11")
@pytest.mark.parametrize("response", [(b"", 404), (b"", 500), (b"<html>", 200), ({"version": "1"}, 200), (b"", 302)])
async def test_discovery_gives_none_for_every_failure(stub: Any, response: Any) -> None:
    server = await stub(lambda _: response)
    assert await discover_agent(server.url) is None
    assert len(server.seen) == 1


@pytest.mark.requirement("S3-11")
async def test_discovery_gives_none_for_an_unreachable_agent(refusing: str) -> None:
    assert await discover_agent(refusing) is None
    assert await discover_agent("not an address") is None


@pytest.mark.requirement("S3-11")
async def test_discovery_gives_the_card_where_there_is_one(stub: Any) -> None:
    server = await stub(lambda _: CARD)
    assert await discover_agent(server.url) == CARD


def test_the_errors_are_of_dragomans_tree() -> None:
    assert issubclass(ValidationError, errors.BadCard)
    assert issubclass(ExternalServiceError, errors.CannotConnect)
    assert issubclass(NotFoundError, errors.DragomanError)
    assert str(NotFoundError("Agent with default project")) == "Agent with default project not found"
    assert str(NotFoundError("Agent", "a1")) == "Agent a1 not found"


# -- invoke --------------------------------------------------------------------------------------------------------


class Watched(Clock):
    """A clock that tells for what time it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.start = self.now()

    def call_later(self, seconds: float, callback: Any) -> Any:
        self.asked.put_nowait(seconds)
        return super().call_later(seconds, callback)

    @property
    def passed(self) -> float:
        return (self.now() - self.start) / 1000

    async def waits(self, *seconds: float) -> None:
        """These are the next times it is asked for."""
        for expected in seconds:
            assert await self.asked.get() == pytest.approx(expected)

    async def passes(self, seconds: float) -> None:
        """This is the next time it is asked for, and now it passes."""
        await self.waits(seconds)
        self.move(seconds)


class Remote:
    """Takes a task, and tells in turn of each of these states; the last one stays. Notes when it was asked."""

    def __init__(self, clock: Watched, *tasks: Any, id: str = "t1") -> None:
        self.clock = clock
        self.tasks = list(tasks)
        self.id = id
        self.times: list[float] = []

    def __call__(self, request: Any) -> Any:
        if request.method == "POST":
            return {"id": self.id, "state": "working", "messages": []}
        self.times.append(self.clock.passed)
        return self.tasks.pop(0) if len(self.tasks) > 1 else self.tasks[0]


def task(state: str, *messages: Any) -> dict[str, Any]:
    return {"id": "t1", "state": state, "messages": list(messages)}


def message(*texts: str, role: str = "agent") -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "text": text} for text in texts]}


DONE = task("completed", message("Summarize this", role="user"), {"role": "agent", "parts": [{"text": "Summary..."}]})


@pytest.mark.requirement("S3-1", "S3-9", "S3-13", "S3-46", "S3-47")
async def test_a_message_is_submitted_and_its_result_read(stub: Any) -> None:
    clock = Watched()
    server = await stub(Remote(clock, DONE))
    result = await invoke_remote_agent(server.url, "Summarize this", clock=clock)
    assert result == RemoteInvocationResult(True, "t1", response_text="Summary...")
    assert result.to_map() == {"success": True, "taskId": "t1", "responseText": "Summary..."}
    assert server.paths == ["POST /a2a/tasks/send", "GET /a2a/tasks/t1"]
    sent = {"method": "tasks/send", "params": {"message": "Summarize this", "timeoutMs": 300_000}}
    assert server.seen[0].json == sent
    assert server.seen[0].headers["content-type"] == "application/json"


@pytest.mark.requirement("S3-13", "S3-46")
@pytest.mark.parametrize(("mine", "theirs"), [(100, 1000), (5000, 5000), (3_600_000, 600_000)])
async def test_skill_and_time_limit_are_passed_on(stub: Any, mine: int, theirs: int) -> None:
    clock = Watched()
    server = await stub(Remote(clock, DONE))
    await invoke_remote_agent(server.url + "/", "hi", skill="summarize", timeout_ms=mine, clock=clock)
    assert server.paths[0] == "POST /a2a/tasks/send"
    assert server.seen[0].json["params"] == {"message": "hi", "skill": "summarize", "timeoutMs": theirs}


@pytest.mark.requirement("S3-9")
def test_a_result_is_spelled_as_the_document_spells_it() -> None:
    failed = RemoteInvocationResult(False, "", error="no")
    assert msgspec.json.decode(msgspec.json.encode(failed)) == {"success": False, "taskId": "", "error": "no"}
    assert failed.to_map() == {"success": False, "taskId": "", "error": "no"}
    with pytest.raises(AttributeError):
        failed.error = "yes"  # type: ignore[misc]


@pytest.mark.requirement("S3-13", "S3-34")
async def test_a_task_is_looked_at_every_three_seconds_until_it_ends(stub: Any) -> None:
    clock = Watched()
    remote = Remote(clock, task("submitted"), task("working"), task("working"), DONE)
    server = await stub(remote)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", clock=clock))
    await clock.waits(30)
    for _ in range(3):
        await clock.waits(10)
        await clock.passes(3)
    await clock.waits(10)
    assert (await invoking).success
    assert remote.times == [0, 3, 6, 9]
    assert clock.pending == 0


@pytest.mark.requirement("S3-35")
@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([message("one"), message("two")], "two"),
        ([message("one"), message("two"), message("thanks", role="user")], "two"),
        ([message("a", "b")], "ab"),
        ([message("question", role="user")], None),
        ([], None),
        ([message("one"), None, {"role": "agent", "parts": [7, {"type": "data", "data": 1}, {"text": "x"}]}], "x"),
    ],
)
async def test_the_response_is_the_text_of_the_agents_last_message(stub: Any, messages: Any, text: str | None) -> None:
    clock = Watched()
    server = await stub(Remote(clock, task("completed", *messages)))
    result = await invoke_remote_agent(server.url, "hi", clock=clock)
    assert (result.success, result.response_text, result.error) == (True, text, None)


@pytest.mark.requirement("S3-55")
@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (task("failed", message("hi", role="user"), message("out of paper")), "out of paper"),
        (task("failed", message("hi", role="user")), "Task failed"),
        (task("failed", message("")), "Task failed"),
        ({"state": "failed"}, "Task failed"),
        (task("canceled"), "Task canceled"),
        (task("rejected", message("not mine")), "not mine"),
    ],
)
async def test_a_failed_task_is_reported_in_its_own_words_if_it_has_any(stub: Any, ended: Any, error: str) -> None:
    clock = Watched()
    server = await stub(Remote(clock, ended))
    result = await invoke_remote_agent(server.url, "hi", clock=clock)
    assert result.to_map() == {"success": False, "taskId": "t1", "error": error}


@pytest.mark.requirement("S3-53")
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ((b"overloaded,\ntry later", 503), "Submit failed: HTTP 503 — overloaded, try later"),
        ((b"", 503), "Submit failed: HTTP 503 Service Unavailable"),
        (({"error": "Authentication required"}, 401), 'Submit failed: HTTP 401 — {"error": "Authentication required"}'),
        ((b"x" * 1000, 500), f"Submit failed: HTTP 500 — {'x' * 200}…"),
    ],
)
async def test_a_refused_message_is_reported_with_the_status(stub: Any, reply: Any, error: str) -> None:
    server = await stub(lambda _: reply)
    result = await invoke_remote_agent(server.url, "hi")
    assert result.to_map() == {"success": False, "taskId": "", "error": error}
    assert server.paths == ["POST /a2a/tasks/send"]


@pytest.mark.parametrize("body", [b"<html>", [], {}, {"id": ""}, {"id": 7}, {"result": {"id": "t"}}])
async def test_an_answer_without_a_task_is_a_failed_submit(stub: Any, body: Any) -> None:
    server = await stub(lambda _: body)
    result = await invoke_remote_agent(server.url, "hi")
    assert result == RemoteInvocationResult(False, "", error="Submit failed: the answer is not a task")
    assert len(server.seen) == 1


async def test_a_submit_to_an_unreachable_agent_is_a_failed_result(refusing: str) -> None:
    for base, text in [(refusing, "nobody answers"), ("nowhere", "is not a base URL")]:
        result = await invoke_remote_agent(base, "hi")
        assert (result.success, result.task_id) == (False, "")
        assert (result.error or "").startswith("Submit failed: ")
        assert text in (result.error or "")
    assert (await invoke_remote_agent(refusing, "\ud800")).error == (
        "Submit failed: the message has characters that are not Unicode"
    )


@pytest.mark.requirement("S3-54")
async def test_a_task_that_does_not_end_in_time_is_given_up(stub: Any) -> None:
    clock = Watched()
    remote = Remote(clock, task("working"))
    server = await stub(remote)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", timeout_ms=100, clock=clock))
    await clock.waits(30, 0.1)
    await clock.passes(0.1)
    assert (await invoking).to_map() == {"success": False, "taskId": "t1", "error": "Timed out after 100ms"}
    assert remote.times == [0]


@pytest.mark.requirement("S3-34", "S3-54")
async def test_the_last_wait_is_no_longer_than_the_time_that_is_left(stub: Any) -> None:
    clock = Watched()
    remote = Remote(clock, task("working"))
    server = await stub(remote)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", timeout_ms=7000, clock=clock))
    await clock.waits(30, 7)
    await clock.passes(3)
    await clock.waits(4)
    await clock.passes(3)
    await clock.waits(1)
    await clock.passes(1)
    assert (await invoking).error == "Timed out after 7000ms"
    assert (remote.times, clock.passed) == ([0, 3, 6], 7)


@pytest.mark.requirement("S3-34")
async def test_a_look_that_fails_is_followed_by_another(stub: Any) -> None:
    clock = Watched()
    remote = Remote(clock, (b"", 500), (b"", 404), b"<html>", [], {"state": ["odd"]}, DONE)
    server = await stub(remote)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", clock=clock))
    await clock.waits(30)
    for _ in range(5):
        await clock.waits(10)
        await clock.passes(3)
    assert (await invoking).response_text == "Summary..."
    assert remote.times == [0, 3, 6, 9, 12, 15]


@pytest.mark.requirement("S3-34")
async def test_a_look_that_hangs_is_given_up_after_ten_seconds(stub: Any) -> None:
    clock, over = Watched(), asyncio.Event()
    looked = asyncio.Event()
    remote = Remote(clock, DONE)

    async def slow_at_first(request: Any) -> Any:
        if request.method == "GET" and not looked.is_set():
            looked.set()
            await over.wait()
        return remote(request)

    server = await stub(slow_at_first)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", clock=clock))
    await clock.waits(30, 10)
    await looked.wait()
    clock.move(10)
    await clock.passes(3)
    assert (await invoking).success
    assert remote.times[0] == 13
    over.set()


async def test_a_submit_is_given_thirty_seconds(stub: Any) -> None:
    clock, asked, over = Watched(), asyncio.Event(), asyncio.Event()

    async def late(_: Any) -> Any:
        asked.set()
        await over.wait()
        return DONE

    server = await stub(late)
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", timeout_ms=100, clock=clock))
    await asked.wait()
    await clock.passes(30)
    result = await invoking
    assert (result.success, result.task_id) == (False, "")
    assert result.error == f"Submit failed: {server.url}/a2a/tasks/send did not answer within 30 s"
    over.set()


async def test_a_task_id_cannot_lead_to_another_path(stub: Any) -> None:
    clock = Watched()
    server = await stub(Remote(clock, DONE, id="../admin?x#y z"))
    result = await invoke_remote_agent(server.url, "hi", clock=clock)
    assert result.task_id == "../admin?x#y z"
    assert server.paths[1] == "GET /a2a/tasks/..%2Fadmin%3Fx%23y%20z"


async def test_an_invocation_that_is_given_up_leaves_no_timer(stub: Any) -> None:
    clock = Watched()
    server = await stub(Remote(clock, task("working")))
    invoking = asyncio.create_task(invoke_remote_agent(server.url, "hi", clock=clock))
    await clock.waits(30, 10, 3)
    invoking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await invoking
    assert clock.pending == 0


# -- the tool handlers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-62")
async def test_the_handler_of_the_discovery_tool_gives_the_card_or_the_reason(stub: Any) -> None:
    server = await stub(lambda _: CARD)
    assert msgspec.json.decode(await handle_discover_agent({"url": server.url})) == CARD
    broken = await stub(lambda _: (b"", 503))
    answer = await handle_discover_agent({"url": broken.url})
    assert answer.startswith(f"Failed to discover agent at {broken.url}: ")
    assert "503" in answer
    with pytest.raises(ValidationError, match="url is required"):
        await handle_discover_agent({})


@pytest.mark.parametrize("answer", [(b"", 503), (b"no", 200), ({}, 200), None])
async def test_no_error_text_holds_the_password_of_a_url(stub: Any, refusing: str, answer: Any) -> None:
    server = None if answer is None else await stub(lambda _: answer)
    url = (refusing if server is None else server.url).replace("://", "://user:s3cret@")
    for each in (url, f"{url}?query", url.removeprefix("http://")):
        assert "s3cret" not in await handle_discover_agent({"url": each})
        assert "s3cret" not in await handle_invoke_remote_agent({"agent_url": each, "message": "hi"})
        with pytest.raises((ExternalServiceError, ValidationError)) as caught:
            await fetch_agent_card(each)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("minutes", ["soon", "", [5], {}, "inf", float("nan"), 1e308])
async def test_a_time_limit_that_is_no_number_is_refused_before_anything_is_sent(stub: Any, minutes: Any) -> None:
    server = await stub(lambda _: CARD)
    with pytest.raises(ValidationError, match="timeout_minutes must be a number"):
        await handle_invoke_remote_agent({"agent_url": server.url, "message": "hi", "timeout_minutes": minutes})
    assert server.seen == []


@pytest.mark.requirement("S3-62")
async def test_the_handler_of_the_invocation_tool_gives_the_answer_or_the_reason(stub: Any) -> None:
    def answer(request: Any) -> Any:
        state = "failed" if "fail" in json.dumps(server.seen[0].json) else "completed"
        messages = [{"role": "agent", "parts": [{"type": "text", "text": "Summary..."}]}]
        return {"id": "t1", "state": state, "messages": messages}

    server = await stub(answer)
    given = {"agent_url": server.url, "message": "Summarize this", "skill": "summarize", "timeout_minutes": 0.5}
    assert await handle_invoke_remote_agent(given) == "Summary..."
    assert server.seen[0].json["params"] == {"message": "Summarize this", "skill": "summarize", "timeoutMs": 30_000}
    server.seen.clear()
    assert await handle_invoke_remote_agent({**given, "message": "fail"}) == "Remote agent failed: Summary..."
    with pytest.raises(ValidationError, match="message is required"):
        await handle_invoke_remote_agent({"agent_url": server.url})
