"""Which skill a message means, and who may use it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Agent, Context, Part, User
from dragoman.engine.call import CallContext
from dragoman.model.state import State


@pytest.fixture
def agent() -> Agent:
    agent = Agent("test")

    @agent.skill
    def first(text: str = "") -> str:
        return f"first {text}"

    @agent.skill(id="second")
    def other(n: int = 0, text: str = "") -> str:
        return f"second {n} {text}"

    @agent.skill(permission="key")
    def locked() -> str:
        return "opened"

    return agent


def tool(name: str, **arguments: Any) -> tuple[Part, ...]:
    return (Part(data={"tool": name, "arguments": arguments}),)


async def test_a_data_part_names_the_tool_wherever_it_stands(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    call = tool("second", n=3)
    for parts in (call, (Part(text="and"), *call), (*call, Part(text="and")), (Part(data={"x": 1}), *call)):
        task = await engine.send(None, parts=parts)
        assert task.text.startswith("second 3")
        assert task.artifacts[0].name == "second-result"


async def test_arguments_may_be_missing(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    assert (await engine.send(None, parts=(Part(data={"tool": "second"}),))).text == "second 0 "
    assert (await engine.send(None, parts=(Part(data={"tool": "second", "arguments": None}),))).text == "second 0 "


@pytest.mark.parametrize("key", ["skillId", "skill_id"])
@pytest.mark.parametrize("place", ["metadata", "message_metadata"])
async def test_metadata_names_the_skill_and_the_data_part_is_its_arguments(
    start: Any, agent: Agent, key: str, place: str
) -> None:
    engine = await start(agent)
    task = await engine.send(None, parts=(Part(data={"n": 4}),), **{place: {key: "second"}})
    assert task.text == "second 4 "


async def test_a_tool_goes_before_metadata(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    assert (await engine.send(None, parts=tool("first"), metadata={"skillId": "second"})).text == "first "


async def test_without_a_name_the_first_skill_is_meant(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    task = await engine.send("hello")
    assert task.text == "first hello"
    assert task.artifacts[0].name == "first-result"


async def test_without_a_name_the_marked_skill_is_meant(start: Any, agent: Agent) -> None:
    @agent.skill(default=True)
    def marked(text: str) -> str:
        return f"marked {text}"

    engine = await start(agent)
    assert (await engine.send("hello")).text == "marked hello"


async def test_without_a_name_the_first_skill_that_the_caller_may_use_is_meant(start: Any) -> None:
    agent = Agent("test")

    @agent.skill(permission="key")
    def locked(text: str) -> str:
        return f"locked {text}"

    @agent.skill
    def free(text: str) -> str:
        return f"free {text}"

    engine = await start(agent)
    allowed = CallContext(user=User("me", permissions=frozenset({"key"})))
    assert (await engine.send("hello")).text == "free hello"
    assert (await engine.send("hello", call=allowed)).text == "locked hello"


async def test_an_unknown_tool_fails_naming_the_nearest(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    task = await engine.send(None, parts=tool("secnd"))
    assert (task.state, task.error) == (State.FAILED, "unknown tool `secnd`: did you mean `second`?")
    task = await engine.send(None, parts=tool("zzz"))
    assert task.error == "unknown tool `zzz`: this agent has first, second"
    task = await engine.send(None, parts=tool("lockd"))
    assert "locked" not in (task.error or "")
    allowed = CallContext(user=User("me", permissions=frozenset({"key"})))
    task = await engine.send(None, parts=tool("zzz"), call=allowed)
    assert task.error == "unknown tool `zzz`: this agent has first, second, locked"
    task = await engine.send("x", metadata={"skillId": "secnd"})
    assert task.error == "unknown tool `secnd`: did you mean `second`?"


async def test_an_agent_without_skills_says_so(start: Any) -> None:
    engine = await start(Agent("test"))
    assert (await engine.send("hello")).error == "this agent has no skills"


async def test_a_permission_opens_a_skill(start: Any, agent: Agent) -> None:
    engine = await start(agent)
    for call in (
        CallContext(),
        CallContext(user=User("me")),
        CallContext(user=User("me", permissions=frozenset({"other"}))),
    ):
        task = await engine.send(None, parts=tool("locked"), call=call)
        assert (task.state, task.error) == (State.REJECTED, "Unauthorized: locked")
        assert "key" not in task.error
    allowed = CallContext(user=User("me", permissions=frozenset({"key"})))
    assert (await engine.send(None, parts=tool("locked"), call=allowed)).text == "opened"


async def test_a_named_skill_stands_beside_a_low_level_run(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield f"run {ctx.text}"

    agent = Agent("test", run=run)

    @agent.skill
    def skill(text: str = "") -> str:
        return f"skill {text}"

    engine = await start(agent)
    assert (await engine.send("hi")).text == "run hi"
    assert (await engine.send(None, parts=tool("skill"))).text == "skill "
    assert (await engine.send(None, parts=tool("unknown"))).text == "run "  # the run may know it


async def test_an_answer_never_changes_the_skill(start_skill: Any) -> None:
    async def one() -> str:
        return "one"

    async def two(ctx: Context) -> str:
        return f"two {await ctx.ask('?')} {ctx.metadata.get('k')}"

    engine = await start_skill(one, two)
    beginnings = (
        {"metadata": {"skillId": "two", "k": 1}},
        {"message_metadata": {"skillId": "two", "k": 1}},
        {"parts": tool("two"), "metadata": {"k": 1}},
    )
    answers = (
        {},
        {"metadata": {"trace": "x"}},
        {"metadata": {"skillId": "one", "k": 2}},
        {"message_metadata": {"skillId": "one"}},
        {"parts": tool("one")},
    )
    for beginning in beginnings:
        for answer in answers:
            task = await engine.send(**beginning)
            assert task.state is State.INPUT_REQUIRED
            ended = await engine.send("yes", task=task, **answer)
            assert ended.text == "two yes 1"
            assert ended.artifacts[0].name == "two-result"
