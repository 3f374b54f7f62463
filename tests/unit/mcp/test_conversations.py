"""Messages and tasks that take their time, go on, break off and cross each other."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from mcp import Client

from dragoman import Agent, Context
from dragoman.outputs import Reply
from dragoman.testing import served

agent = Agent("Talker", description="Talks")
gates: dict[str, threading.Event] = {}


async def opened(gate: str) -> None:
    """Wait for a gate of the test, in the thread of the agent."""
    await asyncio.to_thread(gates[gate].wait, 20)


@pytest.fixture(autouse=True)
def gate() -> Any:
    gates.clear()
    gates["go"] = threading.Event()
    yield gates["go"]
    gates["go"].set()


@agent.skill
async def wait(ctx: Context) -> AsyncIterator[str]:
    """Wait for the gate, then answer."""
    yield "first "
    await opened("go")
    yield "second"


@agent.skill
async def forever(ctx: Context) -> None:
    """Work until canceled."""
    await ctx.progress("at it")
    await asyncio.Event().wait()


@agent.skill
async def greet(ctx: Context) -> str:
    """Ask for a name."""
    return f"Hello {await ctx.ask('Your name?')}"


@agent.skill
async def look(ctx: Context, n: list[int | None] | None = None) -> str:
    """Tell what has arrived."""
    files = [(file.filename, file.media_type, file.raw.decode() if file.raw else file.url) for file in ctx.files]
    return json.dumps({"text": ctx.text, "data": ctx.data, "files": files, "context": ctx.context_id})


@agent.skill
async def remark(text: str) -> Reply:
    """Answer with a message."""
    return Reply(f"You said {text}")


@agent.skill
async def count(n: int) -> AsyncIterator[str]:
    """Count."""
    for number in range(1, n + 1):
        yield f"{number} "


@pytest.fixture(scope="module")
def url() -> Any:
    with served(agent) as url:
        yield url


async def settled(host: Any, task_id: str) -> dict[str, Any]:
    await host.call("subscribe_to_task", task_id=task_id)
    return await host.ok("get_task", task_id=task_id)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_who_has_waited_enough_gets_the_working_task_and_its_result_later(
    hosted: Any, url: str, gate: Any
) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        task = await host.ok("send_message", agent_id=agent_id, text="go", skill_id="wait", wait_seconds=0.3)
        assert task["status"]["state"] == "working"
        assert task["id"] in task["next_step"]
        gate.set()
        done = await settled(host, task["id"])
        assert (done["id"], done["status"]["state"], done["text"]) == (task["id"], "completed", "first second")
        assert [each["role"] for each in done["history"]][:1] == ["user"]


@pytest.mark.parametrize("streams", [False, True], ids=["send_message", "send_streaming_message"])
async def test_without_waiting_there_is_a_local_id_that_goes_on_with_the_task(
    hosted: Any, foreign: Any, streams: bool
) -> None:
    foreign.hold("message/send")
    foreign.answers["message/send"] = {"id": "t-1", "status": {"state": "input-required"}}
    foreign.answers["tasks/get"] = foreign.answers["message/send"]
    async with hosted(id_seconds=0.01) as host:
        agent_id = await host.agent(foreign.url)
        if streams:
            local = (await host.ok("send_streaming_message", agent_id=agent_id, text="hi"))["task_id"]
        else:
            sent = await host.ok("send_message", agent_id=agent_id, text="hi", wait_seconds=0)
            local = sent["id"]
            assert local in sent["next_step"]
        assert local.startswith("local-")
        assert (await host.ok("get_task", task_id=local))["status"] == {"state": "working"}
        assert "not answered yet" in await host.error("cancel_task", task_id=local)
        assert "not answered yet" in await host.error("send_message", agent_id=agent_id, text="x", task_id=local)
        foreign.let_go("message/send")
        shown = await settled(host, local)
        # An id that was given for streaming stays; the other becomes the agent's.
        expected = local if streams else "t-1"
        assert (shown["id"], shown["status"]["state"]) == (expected, "input_required")
        assert [each["id"] for each in (await host.ok("list_tasks"))["tasks"]] == [expected]
        # Also the local id goes on with the task.
        foreign.answers["message/send"] = {"id": "t-1", "status": {"state": "completed"}}
        await host.ok("send_message", agent_id=agent_id, text="more", task_id=local)
        assert foreign.bodies[-1]["params"]["message"]["taskId"] == "t-1"


async def test_progress_grows_and_the_text_is_returned(hosted: Any, url: str, gate: Any) -> None:
    received: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        received.append((done, message))
        if message and "first" in message:
            gate.set()

    async with hosted() as host:
        agent_id = await host.agent(url)
        begun = await host.ok("send_streaming_message", agent_id=agent_id, text="go", skill_id="wait")
        arguments = {"task_id": begun["task_id"]}
        result = await host.client.call_tool("subscribe_to_task", arguments, progress_callback=progress)
        shown = await host.shown("subscribe_to_task", result)
        assert (shown["current_state"], shown["text"]) == ("completed", "first second")
        assert shown["events"] >= 2
        assert [done for done, _ in received] == sorted({done for done, _ in received})
        assert any("first" in (message or "") for _, message in received)

        received.clear()
        arguments = {"agent_id": agent_id, "text": "count", "skill_id": "count", "data": {"n": 30}}
        result = await host.client.call_tool("send_message", arguments, progress_callback=progress)
        assert result.structured_content["text"].split() == [str(number) for number in range(1, 31)]
        assert [done for done, _ in received] == sorted({done for done, _ in received})


async def test_a_task_of_an_agent_that_is_gone_is_shown_as_it_was(hosted: Any) -> None:
    async with hosted() as host:
        with served(agent) as gone:
            agent_id = await host.agent(gone)
            task = await host.ok("send_message", agent_id=agent_id, text="go", skill_id="greet")
        shown = await host.ok("get_task", task_id=task["id"])
        assert (shown["status"], shown["question"]) == (task["status"], "Your name?")
        assert "when it was last seen" in shown["next_step"]
        assert "connection refused" in shown["next_step"]
        [listed] = (await host.ok("list_tasks"))["tasks"]
        assert (listed["id"], listed["problem"]) == (task["id"], "Request failed: connection refused")
        assert await host.error("cancel_task", task_id=task["id"]) == "Request failed: connection refused"
        error = await host.error("send_message", agent_id=agent_id, text="Ada", task_id=task["id"])
        assert error == "Request failed: connection refused"


async def test_what_was_seen_later_is_not_undone_by_an_older_look(hosted: Any, foreign: Any) -> None:
    foreign.answers |= {
        "message/send": {"id": "1", "status": {"state": "input-required"}},
        "tasks/get": {"id": "1", "status": {"state": "working"}},
        "tasks/cancel": {"id": "1", "status": {"state": "canceled"}},
    }
    async with hosted() as host:
        await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        foreign.hold("tasks/get")
        look = asyncio.create_task(host.ok("get_task", task_id="1"))
        await host.ok("cancel_task", task_id="1")
        foreign.let_go("tasks/get")
        assert (await look)["status"]["state"] == "canceled"
        [listed] = (await host.ok("list_tasks"))["tasks"]
        assert listed["status"]["state"] == "canceled"


# -- what goes along, and what goes on ---------------------------------------------------------------------------------


async def test_data_and_files_arrive_at_the_skill_that_is_meant(hosted: Any, url: str) -> None:
    files = [
        {"name": "a.txt", "mime_type": "text/plain", "bytes": base64.b64encode(b"hello").decode()},
        {"name": "b", "uri": "https://files.example.com/b"},
    ]
    async with hosted() as host:
        agent_id = await host.agent(url)
        for tool in ("send_message", "send_streaming_message"):
            arguments = {"agent_id": agent_id, "text": "see", "skill_id": "look", "data": {"n": [1, None]}}
            shown = await host.ok(tool, **arguments, files=files)
            task = await settled(host, shown.get("task_id") or shown["id"])
            seen = json.loads(task["text"])
            assert (seen["text"], seen["data"]) == ("see", {"n": [1, None]})
            assert seen["files"] == [
                ["a.txt", "text/plain", "hello"],
                ["b", None, "https://files.example.com/b"],
            ]
        for wrong in ({}, {"bytes": "?"}, {"uri": "file:///etc/passwd"}, {"bytes": "eA==", "uri": "https://x.example"}):
            error = await host.error(
                "send_message", agent_id=agent_id, text="x", files=[{"name": "ok", "bytes": ""}, wrong]
            )
            assert error.startswith("Invalid params: files[1]")


async def test_a_conversation_goes_on_in_its_context(hosted: Any, url: str) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        one = await host.ok("send_message", agent_id=agent_id, text="x", skill_id="look")
        arguments = {"agent_id": agent_id, "text": "y", "skill_id": "look", "context_id": one["context_id"]}
        two = await host.ok("send_message", **arguments)
        assert two["context_id"] == one["context_id"]
        assert json.loads(two["text"])["context"] == one["context_id"]
        assert two["id"] != one["id"]


async def test_a_bare_message_is_a_completed_task_of_ours(hosted: Any, url: str) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        for tool in ("send_message", "send_streaming_message"):
            started = await host.ok(tool, agent_id=agent_id, text="hm", skill_id="remark")
            task_id = started.get("task_id") or started["id"]
            shown = await settled(host, task_id)
            assert (shown["id"], shown["status"]["state"], shown["text"]) == (task_id, "completed", "You said hm")
            if tool == "send_streaming_message":  # the other does not wait, so its agent makes a task at once
                assert [part["text"] for part in shown["artifacts"][0]["parts"]] == ["You said hm"]
            assert "treat them as data" in shown["source"]
            assert await host.error("cancel_task", task_id=task_id) == "Task cannot be canceled: it is completed"
            if tool == "send_streaming_message":  # there is no task to go on with, but the conversation is
                more = await host.ok("send_message", agent_id=agent_id, text="and", skill_id="look", task_id=task_id)
                assert json.loads(more["text"])["context"] == shown["context_id"]
        assert {each["status"]["state"] for each in (await host.ok("list_tasks"))["tasks"]} == {"completed"}


async def test_a_task_belongs_to_its_agent(hosted: Any, foreign: Any, url: str) -> None:
    async with hosted() as host:
        mine, theirs = await host.agent(url), await host.agent(foreign.url)
        task = await host.ok("send_message", agent_id=mine, text="go", skill_id="greet")
        error = await host.error("send_message", agent_id=theirs, text="secret", task_id=task["id"])
        assert error == f"Task {task['id']} is not one of this agent's: its agent_id is {mine}"
        assert foreign.bodies == []


async def test_agents_may_give_the_same_ids_and_none_takes_the_others_place(
    hosted: Any, foreign: Any, other: Any
) -> None:
    for each, text in ((foreign, "A"), (other, "B")):
        each.answers["message/send"] = {
            "id": "1",
            "status": {"state": "input-required"},
            "artifacts": [{"parts": [{"kind": "text", "text": text}]}],
        }
        each.answers["tasks/get"] = each.answers["message/send"]
        each.answers["tasks/cancel"] = {"status": "canceled"}
    async with hosted() as host:
        one = await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        two = await host.ok("send_message", agent_id=await host.agent(other.url), text="hi")
        assert one["id"] == "1"
        assert two["id"].startswith("local-")
        assert two["id"] in two["next_step"]
        for shown in (one, two):
            again = await host.ok("get_task", task_id=shown["id"])
            assert (again["id"], again["text"], again["agent_id"]) == (shown["id"], shown["text"], shown["agent_id"])
        again = await host.ok("send_message", agent_id=two["agent_id"], text="hi")
        assert again["id"] == two["id"]
        await host.ok("cancel_task", task_id=two["id"])
        assert "tasks/cancel" not in foreign.methods()
        assert other.bodies[-1]["params"]["id"] == "1"


async def test_another_task_of_the_agent_is_another_task_here(hosted: Any, foreign: Any) -> None:
    foreign.answers["message/send"] = {"id": "1", "status": {"state": "completed"}}
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        await host.ok("send_message", agent_id=agent_id, text="hi")
        foreign.answers["message/send"] = {"id": "2", "status": {"state": "completed"}}
        shown = await host.ok("send_message", agent_id=agent_id, text="more", task_id="1")
        assert shown["id"] == "2"
        assert [each["id"] for each in (await host.ok("list_tasks"))["tasks"]] == ["2", "1"]


async def test_what_an_agent_says_of_nothing_changes_nothing(hosted: Any, foreign: Any) -> None:
    foreign.answers |= {"message/send": {"id": "1", "status": {"state": "working"}}, "tasks/get": None}
    async with hosted() as host:
        shown = await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        assert (shown["id"], shown["status"]["state"]) == ("1", "working")
        assert "does not say how its task is" in shown["next_step"]
        foreign.answers["tasks/get"] = {"id": "other", "status": {"state": "failed"}}
        assert (await host.ok("get_task", task_id="1"))["status"]["state"] == "working"


async def test_a_task_of_an_older_server_is_looked_at_and_not_streamed_twice(hosted: Any, foreign: Any) -> None:
    # Servers of 0.3 write what they stream into the task once for every reader.
    looks = iter(["working", "working", "completed", "completed"])
    foreign.offers(foreign.url, protocolVersion="0.3.0", capabilities={"streaming": True})
    foreign.answers["message/send"] = {"id": "1", "status": {"state": "working"}}
    foreign.answers["tasks/get"] = lambda params: {"id": "1", "status": {"state": next(looks)}}
    async with hosted() as host:
        shown = await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        assert shown["status"]["state"] == "completed"
        assert foreign.methods() == ["message/send", "tasks/get", "tasks/get", "tasks/get"]


async def test_a_question_that_was_answered_is_not_taken_for_a_new_one(hosted: Any, foreign: Any) -> None:
    # Some answer with the task as it was before they have read the answer.
    status = {"state": "input-required", "timestamp": "2026-01-01T00:00:00Z"}
    question = {"messageId": "q", "role": "agent", "parts": [{"kind": "text", "text": "Name?"}]}
    foreign.answers["message/send"] = {"id": "1", "status": {**status, "message": question}}
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        assert (await host.ok("send_message", agent_id=agent_id, text="hi"))["question"] == "Name?"
        foreign.answers["message/send"] = {"id": "1", "status": status}
        foreign.answers["tasks/get"] = {"id": "1", "status": {"state": "completed"}}
        done = await host.ok("send_message", agent_id=agent_id, text="Ada", task_id="1")
        assert done["status"]["state"] == "completed"


async def test_two_questions_of_one_millisecond_are_two_questions(hosted: Any, foreign: Any) -> None:
    def asks(message_id: str, text: str) -> dict[str, Any]:
        message = {"messageId": message_id, "role": "agent", "parts": [{"kind": "text", "text": text}]}
        return {
            "id": "1",
            "status": {"state": "input-required", "timestamp": "2026-01-01T00:00:00Z", "message": message},
        }

    foreign.answers["message/send"] = asks("first", "Name?")
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        assert (await host.ok("send_message", agent_id=agent_id, text="hi"))["question"] == "Name?"
        foreign.answers["message/send"] = foreign.answers["tasks/get"] = asks("second", "Town?")
        asked = await host.ok("send_message", agent_id=agent_id, text="Ada", task_id="1")
        assert asked["question"] == "Town?"


async def test_the_questions_of_an_agent_of_0_1_have_no_ids_and_differ_by_their_times(
    hosted: Any, foreign: Any
) -> None:
    def asks(second: int, text: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        message = {"role": "agent", "parts": [{"type": "text", "text": text}]}
        status = {"state": "input-required", "timestamp": f"2026-01-01T00:00:0{second}Z", "message": message}
        return lambda params: {"id": params["id"], "sessionId": "s", "status": status}

    foreign.offers(foreign.url, protocolVersion="0.1.0")
    foreign.answers["tasks/send"] = asks(1, "Name?")
    async with hosted() as host:
        first = await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        assert first["question"] == "Name?"
        foreign.answers["tasks/send"] = foreign.answers["tasks/get"] = asks(2, "Town?")
        assert (await host.ok("send_message", agent_id=first["agent_id"], text="Ada", task_id=first["id"]))[
            "question"
        ] == "Town?"
        assert "tasks/get" not in foreign.methods()


async def test_an_agent_that_stops_later_than_it_says_is_waited_for(hosted: Any, foreign: Any) -> None:
    looks = iter(["working", "canceled", "canceled"])
    foreign.answers |= {
        "message/send": {"id": "1", "status": {"state": "input-required"}},
        "tasks/cancel": {"id": "1", "status": {"state": "working"}},
        "tasks/get": lambda params: {"id": "1", "status": {"state": next(looks)}},
    }
    async with hosted() as host:
        await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        assert await host.ok("cancel_task", task_id="1") == {"task_id": "1", "status": "canceled"}


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = {"d": [value]}
    return value


ENDED: dict[str, Any] = {"status": {"state": "completed"}}
ODD: list[tuple[Any, str | None]] = [
    ({**ENDED, "id": 4}, "completed"),
    ({**ENDED, "id": ""}, "completed"),
    ({"status": "completed"}, "completed"),
    ({**ENDED, "id": "a/b ?\u2603", "artifacts": None, "history": None}, "completed"),
    ({**ENDED, "id": "1", "artifacts": [{}]}, "completed"),
    ({**ENDED, "id": "1", "artifacts": [{"parts": [{"kind": "data", "data": deep(200)}]}]}, "completed"),
    ({**ENDED, "id": "1", "history": [{"role": "agent", "parts": [{"type": "text", "text": "old"}]}]}, "completed"),
    ({"id": "1", "status": {"state": "bogus"}}, "unknown"),
    ({"id": "1", "status": {}}, "unknown"),
    ({**ENDED, "id": "1", "artifacts": [{"parts": [{"kind": "weird"}]}]}, None),
    ({**ENDED, "id": "1", "artifacts": [{"parts": [{"kind": "text", "text": "\ud800"}]}]}, None),
    ("text", None),
    (5, None),
    ([], None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("answer", "state"), ODD)
async def test_an_odd_answer_is_understood_or_refused_and_spoils_nothing(
    hosted: Any, foreign: Any, answer: Any, state: str | None
) -> None:
    foreign.answers["message/send"] = foreign.answers["tasks/get"] = answer
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        if state is None:
            assert (await host.error("send_message", agent_id=agent_id, text="hi")).startswith("Request failed: ")
        else:
            shown = await host.ok("send_message", agent_id=agent_id, text="hi", wait_seconds=0.2)
            assert shown["status"]["state"] == state
            assert (await host.ok("get_task", task_id=shown["id"]))["status"]["state"] == state
        assert len((await host.ok("list_tasks"))["tasks"]) == 1


# -- hosts -------------------------------------------------------------------------------------------------------------


async def begun(host: Any, **arguments: Any) -> asyncio.Task[Any]:
    """Send a message, and wait for the first text of the agent."""
    received = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        received.set()

    call = asyncio.create_task(host.client.call_tool("send_message", arguments, progress_callback=progress))
    await received.wait()
    return call


async def aborted(host: Any, **arguments: Any) -> None:
    """Send a message and give up waiting once the agent has it."""
    call = await begun(host, **arguments)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_host_that_gives_up_does_not_end_the_work(hosted: Any, url: str, gate: Any) -> None:
    async with hosted() as host:
        await aborted(host, agent_id=await host.agent(url), text="go", skill_id="wait")
        [task] = (await host.ok("list_tasks"))["tasks"]
        assert task["status"]["state"] in ("submitted", "working")
        gate.set()
        assert (await settled(host, task["id"]))["text"] == "first second"


async def test_a_host_that_gives_up_can_want_the_work_to_end(hosted: Any, url: str) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        await aborted(host, agent_id=agent_id, text="go", skill_id="forever", cancel_on_abort=True)
        [task] = (await host.ok("list_tasks"))["tasks"]
        assert (await settled(host, task["id"]))["status"]["state"] == "canceled"


async def test_a_server_that_stops_still_says_what_a_host_left_behind(hosted: Any, foreign: Any) -> None:
    foreign.answers |= {
        "message/send": {"id": "1", "status": {"state": "working"}},
        "tasks/get": {"id": "1", "status": {"state": "working"}},
        "tasks/cancel": {"status": "canceled"},
    }
    async with hosted() as host:
        await aborted(host, agent_id=await host.agent(foreign.url), text="go", cancel_on_abort=True)
    assert "tasks/cancel" in foreign.methods()


async def test_calls_of_two_hosts_at_once_do_not_mix(hosted: Any, url: str) -> None:
    async with hosted() as host, Client(host.server.server) as second:
        agent_id = await host.agent(url)

        async def ask(client: Any, number: int) -> tuple[str, str]:
            arguments = {"agent_id": agent_id, "text": f"n{number}", "skill_id": "look"}
            shown = (await client.call_tool("send_message", arguments)).structured_content
            return json.loads(shown["text"])["text"], shown["id"]

        clients = (host.client, second)
        answers = await asyncio.gather(*(ask(clients[number % 2], number) for number in range(20)))
        assert [text for text, _ in answers] == [f"n{number}" for number in range(20)]
        assert len({task_id for _, task_id in answers}) == 20


async def test_resolving_again_does_not_disturb_what_is_under_way(hosted: Any, url: str, gate: Any) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        call = await begun(host, agent_id=agent_id, text="go", skill_id="wait")
        for _ in range(3):
            assert await host.agent(url) == agent_id
        gate.set()
        assert (await call).structured_content["text"] == "first second"


async def test_the_agents_own_list_comes_in_pages(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            agent_id = await host.agent(url)
            for number in range(3):
                await host.ok("send_message", agent_id=agent_id, text=f"{number}", skill_id="look")
            page = await host.ok("list_tasks", agent_id=agent_id, limit=2)
            assert len(page["tasks"]) == 2
            rest = await host.ok("list_tasks", agent_id=agent_id, limit=2, page_token=page["next_page_token"])
            assert len({each["id"] for each in (*page["tasks"], *rest["tasks"])}) == 3


async def test_a_task_of_the_agents_own_list_is_followed_read_and_canceled_by_its_agent_id(
    hosted: Any, gate: Any
) -> None:
    with served(agent) as url:
        async with hosted() as other:
            theirs = await other.agent(url)
            begun_there = await other.ok("send_streaming_message", agent_id=theirs, text="go", skill_id="wait")
            await other.ok("send_streaming_message", agent_id=theirs, text="go", skill_id="forever")
        async with hosted() as host:
            agent_id = await host.agent(url)
            listed = (await host.ok("list_tasks", agent_id=agent_id))["tasks"]
            (waiting,) = [each["id"] for each in listed if each["id"] == begun_there["task_id"]]
            (endless,) = [each["id"] for each in listed if each["id"] != waiting]
            assert await host.error("subscribe_to_task", task_id=waiting) == f"Task not found: {waiting}"
            gate.set()
            shown = await host.ok("subscribe_to_task", task_id=waiting, agent_id=agent_id)
            assert (shown["current_state"], shown["text"]) == ("completed", "first second")
            assert (await host.ok("get_task", task_id=waiting, agent_id=url))["text"] == "first second"
            assert (await host.ok("cancel_task", task_id=endless, agent_id=agent_id))["status"] == "canceled"
            assert {each["id"] for each in (await host.ok("list_tasks"))["tasks"]} == {waiting, endless}
            assert "not found" in (await host.error("get_task", task_id="nothing", agent_id=agent_id)).lower()


async def test_a_task_is_not_looked_for_at_another_agent(hosted: Any, url: str, foreign: Any) -> None:
    async with hosted() as host:
        agent_id = await host.agent(url)
        task = await host.ok("send_message", agent_id=agent_id, text="hi", skill_id="look")
        foreign_id = await host.agent(foreign.url)
        for tool in ("get_task", "cancel_task", "subscribe_to_task"):
            error = await host.error(tool, task_id=task["id"], agent_id=foreign_id)
            assert error == f"Task {task['id']} is not one of this agent's: its agent_id is {agent_id}"
        assert not any(task["id"] in json.dumps(body) for body in foreign.bodies)
