"""The tools that send messages and look after tasks, as they are documented, key by key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from unit.mcp import foreign_agent

from dragoman import Agent, Context, Failed, Rejected
from dragoman.testing import served

STARTED = "Task started. Use subscribe_to_task for streaming updates."
SUBSCRIBED = "Subscribed to task events."

agent = Agent("Many", description="Behaves in many ways")


@agent.skill
async def slow(ctx: Context) -> None:
    """Work until canceled."""
    await ctx.progress("at it")
    await asyncio.Event().wait()


@agent.skill
async def greet(ctx: Context) -> str:
    """Ask for a name."""
    return f"Hello {await ctx.ask('Your name?')}"


@agent.skill
def refuse() -> str:
    """Refuse."""
    raise Rejected("not today")


@agent.skill
def fail() -> str:
    """Fail."""
    raise Failed("it broke")


def adk(task_id: str = "t-1", text: str = "Hello") -> dict[str, Any]:
    return {
        "id": task_id,
        "status": {"state": "completed"},
        "artifacts": [{"parts": [{"kind": "text", "text": text}]}],
    }


LANGGRAPH = {
    "id": "t-2",
    "status": {"state": "completed"},
    "history": [
        {"role": "user", "parts": [{"text": "What is it?"}]},
        {"role": "agent", "parts": [{"text": "It is 42"}]},
    ],
}


OURS = ("agent_id", "text", "source", "next_step")


def plain(shown: Any) -> Any:
    """What is documented, without what is beside it."""
    return {key: value for key, value in shown.items() if key not in OURS}


# -- send_message ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-28", "S4-29", "S4-31", "S4-40", "S4-59")
async def test_an_answer_with_history_is_understood_and_kept(hosted: Any, foreign: Any) -> None:
    foreign.answers |= {"message/send": LANGGRAPH, "tasks/get": None}
    async with hosted() as host:
        task = await host.ok("send_message", agent_id=await host.agent(foreign.url), text="What is it?")
        assert plain(task) == LANGGRAPH
        assert task["text"] == "It is 42"
        again = await host.ok("get_task", task_id="t-2")
        assert plain(again) == plain(task)
        assert "does not say" in again["next_step"]
        short = await host.ok("get_task", task_id="t-2", history_length=1)
        assert [each["role"] for each in short["history"]] == ["agent"]


@pytest.mark.requirement("S4-25")
async def test_messages_go_where_the_card_says(hosted: Any, foreign: Any, other: Any) -> None:
    other.rpc_path = "/deep/rpc"
    other.answers["message/send"] = adk()
    foreign.offers(f"{other.url}/deep/rpc")
    async with hosted() as host:
        await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        assert (foreign.methods(), other.methods()) == ([], ["message/send"])


@pytest.mark.requirement("S4-32", "S4-33")
async def test_an_unknown_or_unreachable_agent_is_a_clear_error(hosted: Any) -> None:
    gone = foreign_agent.ForeignAgent()
    gone.answers["message/send"] = adk()
    async with hosted() as host:
        for tool in ("send_message", "send_streaming_message"):
            assert await host.error(tool, agent_id="agent_9", text="hi") == "Agent not found: agent_9"
        with served(gone) as url:
            gone.offers(url)
            never, once = await host.agent(url), await host.agent(f"{url}/")
            assert never == once
        assert await host.error("send_message", agent_id=never, text="hi") == "Request failed: connection refused"
        assert (
            await host.error("send_streaming_message", agent_id=never, text="hi")
            == "Request failed: connection refused"
        )


@pytest.mark.requirement("S4-33")
async def test_an_agent_that_has_gone_is_a_clear_error(hosted: Any) -> None:
    gone = foreign_agent.ForeignAgent()
    gone.answers["message/send"] = adk()
    async with hosted(reconnect=0.5) as host:
        with served(gone) as url:
            gone.offers(url)
            agent_id = await host.agent(url)
            await host.ok("send_message", agent_id=agent_id, text="hi")
        assert await host.error("send_message", agent_id=agent_id, text="hi") == "Request failed: connection refused"


@pytest.mark.requirement("S4-34")
async def test_an_agent_that_says_nothing_is_given_up(hosted: Any, foreign: Any) -> None:
    foreign.hold("message/send")
    async with hosted(answer_seconds=0.2) as host:
        agent_id = await host.agent(foreign.url)
        assert await host.error("send_message", agent_id=agent_id, text="hi") == "Request failed: timeout"
        assert host.server.context.options.answer_seconds == 0.2
        [task] = (await host.ok("list_tasks"))["tasks"]
        assert (task["status"], task["problem"]) == ({"state": "failed"}, "Request failed: timeout")
        assert await host.error("get_task", task_id=task["id"]) == "Request failed: timeout"
        assert await host.error("subscribe_to_task", task_id=task["id"]) == "Request failed: timeout"
    foreign.let_go("message/send")


# -- send_streaming_message and subscribe_to_task ----------------------------------------------------------------------


@pytest.mark.requirement("S4-36", "S4-37", "S4-38")
async def test_a_streaming_message_gives_an_id_at_once_even_of_a_slow_agent(hosted: Any, foreign: Any) -> None:
    foreign.answers["message/send"] = adk()
    foreign.hold("message/send")
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        # The agent says nothing before it is let go: whoever waited for it would wait for ever.
        started = await host.ok("send_streaming_message", agent_id=agent_id, text="hi")
        assert started == {
            "task_id": started["task_id"],
            "status": {"state": "working"},
            "streaming": True,
            "message": STARTED,
            "agent_id": agent_id,
        }
        assert started["task_id"].startswith("local-")
        shown = await host.ok("subscribe_to_task", task_id=started["task_id"], wait_seconds=0)
        assert shown == {
            "task_id": started["task_id"],
            "subscription": "active",
            "current_state": "working",
            "message": SUBSCRIBED,
            "events": 0,
        }
        foreign.let_go("message/send")
        # Whatever the agent calls it, it keeps the id that the host was given.
        done = await host.ok("subscribe_to_task", task_id=started["task_id"])
        assert (done["task_id"], done["current_state"]) == (started["task_id"], "completed")
        assert (await host.ok("get_task", task_id=started["task_id"]))["id"] == started["task_id"]
        assert [each["id"] for each in (await host.ok("list_tasks"))["tasks"]] == [started["task_id"]]
        assert (await host.ok("get_task", task_id=adk()["id"]))["id"] == started["task_id"]


@pytest.mark.requirement("S4-37", "S4-48")
async def test_a_streaming_message_has_the_agents_own_id_and_can_be_followed(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            agent_id = await host.agent(url)
            started = await host.ok("send_streaming_message", agent_id=agent_id, text="go", skill_id="slow")
            assert not started["task_id"].startswith("local-")
            shown = await host.ok("subscribe_to_task", task_id=started["task_id"], wait_seconds=0.1)
            assert {key: shown[key] for key in ("task_id", "subscription", "current_state", "message")} == {
                "task_id": started["task_id"],
                "subscription": "active",
                "current_state": "working",
                "message": SUBSCRIBED,
            }
            await host.ok("cancel_task", task_id=started["task_id"])
            ended = await host.ok("subscribe_to_task", task_id=started["task_id"])
            assert (ended["current_state"], ended["subscription"]) == ("canceled", "active")


# -- get_task, list_tasks, cancel_task ---------------------------------------------------------------------------------


@pytest.mark.requirement("S4-40")
async def test_a_task_nobody_knows_is_not_found(hosted: Any) -> None:
    async with hosted() as host:
        for tool in ("get_task", "cancel_task", "subscribe_to_task"):
            assert await host.error(tool, task_id="nope") == "Task not found: nope"


async def test_looking_at_tasks_does_not_change_their_order(hosted: Any, foreign: Any) -> None:
    foreign.answers["tasks/get"] = lambda params: {"id": params["id"], "status": {"state": "input-required"}}
    async with hosted() as host:
        agent_id = await host.agent(foreign.url)
        for number in range(6):
            foreign.answers["message/send"] = {"id": str(number), "status": {"state": "input-required"}}
            await host.ok("send_message", agent_id=agent_id, text="hi")
        for _ in range(3):
            await host.ok("get_task", task_id="2")
            listed = (await host.ok("list_tasks"))["tasks"]
            assert [each["id"] for each in listed] == ["5", "4", "3", "2", "1", "0"]


@pytest.mark.requirement("S4-46")
@pytest.mark.parametrize(
    "answer",
    [
        {"id": "t-1", "status": {"state": "canceled"}},
        {"kind": "task", "id": "t-1", "contextId": "c", "status": {"state": "canceled"}},
        {"status": "canceled"},
        {"task_id": "t-1", "status": "canceled"},
        None,
        {},
        True,
    ],
)
async def test_a_cancel_reaches_an_agent_however_it_answers(hosted: Any, foreign: Any, answer: Any) -> None:
    foreign.answers |= {"message/send": {"id": "t-1", "status": {"state": "input-required"}}, "tasks/get": None}
    foreign.answers["tasks/cancel"] = answer
    async with hosted() as host:
        await host.ok("send_message", agent_id=await host.agent(foreign.url), text="hi")
        if answer is True:
            assert (await host.error("cancel_task", task_id="t-1")).startswith("Request failed: ")
            return
        assert await host.ok("cancel_task", task_id="t-1") == {"task_id": "t-1", "status": "canceled"}
        assert foreign.bodies[-1]["method"] == "tasks/cancel"
        assert foreign.bodies[-1]["params"]["id"] == "t-1"
        assert (await host.ok("get_task", task_id="t-1"))["status"]["state"] == "canceled"


@pytest.mark.requirement("S4-46")
async def test_a_cancel_ends_the_work_of_a_real_agent(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            agent_id = await host.agent(url)
            task = await host.ok("send_message", agent_id=agent_id, text="go", skill_id="slow", wait_seconds=0.2)
            assert task["status"]["state"] == "working"
            assert await host.ok("cancel_task", task_id=task["id"]) == {"task_id": task["id"], "status": "canceled"}
            result = await host.call("get_task", task_id=task["id"])
            assert (result.is_error, result.structured_content["status"]["state"]) == (False, "canceled")
            error = await host.error("cancel_task", task_id=task["id"])
            assert error == "Task cannot be canceled: it is canceled"


# -- how an answer is put ----------------------------------------------------------------------------------------------


async def test_a_failed_task_is_an_error_that_says_why(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            agent_id = await host.agent(url)
            for skill, state, why in (("fail", "failed", "it broke"), ("refuse", "rejected", "not today")):
                result = await host.call("send_message", agent_id=agent_id, text="go", skill_id=skill)
                assert result.is_error
                shown = result.structured_content
                assert (shown["status"]["state"], shown["text"]) == (state, why)
                assert why in result.content[0].text
                assert "Many" in shown["source"]


async def test_a_host_without_questions_gets_the_question_and_what_to_do(hosted: Any) -> None:
    with served(agent) as url:
        async with hosted() as host:
            agent_id = await host.agent(url)
            asked = await host.ok("send_message", agent_id=agent_id, text="go", skill_id="greet")
            assert (asked["status"]["state"], asked["question"]) == ("input_required", "Your name?")
            assert asked["id"] in asked["next_step"]
            assert "send_message" in asked["next_step"]
            done = await host.ok("send_message", agent_id=agent_id, text="Ada", task_id=asked["id"])
            assert (done["id"], done["text"], done["status"]["state"]) == (asked["id"], "Hello Ada", "completed")
            assert "question" not in done
            assert len((await host.ok("list_tasks"))["tasks"]) == 1
