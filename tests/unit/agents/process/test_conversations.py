"""Programs that are talked to: nothing they say is lost, nobody hears what is another task's, none is left open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Any

import pytest

from dragoman import Agent, Client, State
from dragoman.agents.process.events import Backlog
from dragoman.errors import A2AError

# It asks, says something at once, and goes on with the answer.
HASTY = """
import json, sys
def say(**line): print(json.dumps(line), flush=True)
say(ask="first?")
say(text="meanwhile ")
say(ask="second?")
say(text=sys.stdin.readline().strip() + " ")
say(text=sys.stdin.readline().strip())
"""
ASKS = """
import json, sys
print(json.dumps({"ask": "How many, " + sys.argv[1] + "?"}), flush=True)
print(json.dumps({"text": sys.argv[1] + " " + sys.stdin.readline().strip()}), flush=True)
"""


def asking(code: str = ASKS, **options: Any) -> Agent:
    return Agent.from_command(["python3", "-c", code, "{prompt}"], output="jsonl", name="asking", **options)


def shell(script: str, **limits: Any) -> Agent:
    quick = {"quiet": 0.05, **limits}
    return Agent.from_command(["bash", "-c", script], input="interactive", name="shell", limits=quick)


async def test_a_new_message_ends_a_program_that_waits_for_another_answer_and_gets_its_own() -> None:
    agent = asking()
    async with Client(agent) as client:
        first = await client.send("apples")
        second = await client.send("pears", context=first)
        assert (second.state, second.question) == (State.INPUT_REQUIRED, "How many, pears?")
        assert (await client.send("3", task=second)).text == "pears 3"
        late = await client.send("2", task=first)
        assert late.state is State.FAILED
        assert late.error is not None and late.error.startswith("the program that asked has ended meanwhile")
        assert agent.backend.sessions is not None and agent.backend.sessions.programs == 0


async def test_output_before_the_answer_belongs_to_the_next_turn() -> None:
    async with Client(asking(HASTY)) as client:
        first = await client.send("go")
        assert first.question == "first?"
        second = await client.send("one", task=first)
        assert second.question == "second?"
        done = await client.send("two", task=second)
        assert (done.state, done.text) == (State.COMPLETED, "meanwhile one two")


async def test_a_program_that_works_in_silence_does_not_ask() -> None:
    script = "read x; echo thinking; sleep 0.4; echo answer to $x; read y; echo and $y"
    async with Client(shell(script)) as client:
        first = await client.send("one")
        assert (first.state, first.text) == (State.INPUT_REQUIRED, "thinking\nanswer to one")
        assert (await client.send("two", task=first)).text == "thinking\nanswer to one\nand two"


async def test_an_answer_needs_no_place_of_its_own() -> None:
    agent = asking(limits={"sessions": 1})
    async with Client(agent) as client:
        asked = await client.send("apples")
        busy = await client.send("pears", wait=False)  # takes the only place, and keeps it until it asks
        assert (await client.send("2", task=asked)).text == "apples 2"
        assert (await client.wait(busy)).question == "How many, pears?"


async def test_of_an_answer_that_is_canceled_at_once_no_program_is_left() -> None:
    agent = asking()
    async with Client(agent) as client:
        for _ in range(5):
            asked = await client.send("apples")
            answering = asyncio.ensure_future(client.send("2", task=asked))
            await asyncio.sleep(0)
            with contextlib.suppress(A2AError):  # it may have been answered in time
                await client.cancel_task(asked)
            await asyncio.wait((answering,))
            answering.exception()
        sessions = agent.backend.sessions
        assert sessions is not None
        runs = sessions._session_runs()
        await asyncio.gather(*runs._cancellations)
        assert sessions.programs == 0


@pytest.mark.parametrize("at_first", ["", "trap '' TERM; "], ids=["it ends", "it is still ending"])
async def test_the_program_that_has_waited_longest_makes_room(at_first: str) -> None:
    agent = shell(f"{at_first}while read x; do echo got $x; done", sessions=2, grace=1)
    async with Client(agent) as client:
        first = await client.send("a")
        second = await client.send("b")
        first = await client.send("again", task=first)
        third = await client.send("c")
        fourth = await client.send("d")
        assert fourth.state is State.INPUT_REQUIRED
        gone = await client.send("?", task=second)
        assert (gone.state, gone.error) == (
            State.FAILED,
            "the program that asked has ended meanwhile: others needed its place",
        )
        assert third.state is State.INPUT_REQUIRED


async def test_lines_that_are_no_json_are_counted_and_not_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    noisy = Agent.from_command(["sh", "-c", "yes x | head -n 5000"], output="jsonl", name="noisy")
    with caplog.at_level(logging.WARNING, "dragoman.process"):
        async with Client(noisy) as client:
            assert (await client.send("go")).state is State.COMPLETED
    assert len(caplog.records) == 4
    assert caplog.messages[-1] == "a program wrote 5000 lines that are not JSON lines"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_cannot_be_read_is_passed_over() -> None:
    agent = Agent.from_command(["sh", "-c", "echo x > a.txt; chmod 000 a.txt; echo done"], name="closed")
    async with Client(agent) as client:
        assert (await client.send("go")).text == "done"


async def test_one_who_closes_a_shared_agent_does_not_make_success_of_anothers_task() -> None:
    agent = shell("read x; echo begun; read y; echo more; sleep 60", quiet=0.05)
    async with Client(agent) as client:
        asked = await client.send("go")
        stream = client.stream("on", task=asked)
        async for event in stream:
            if "more" in event.text:
                break
        await agent.close()
        task = await client.wait(asked)
        assert (task.state, task.error) == (State.FAILED, "the program was ended: the server stops")


async def test_a_program_that_says_too_much_while_nobody_listens_is_made_to_wait() -> None:
    backlog = Backlog()
    full = [backlog.add({"type": "text", "text": str(n)}) for n in range(300)]
    assert full[254] is None and full[255] is not None and not full[255].done()
    backlog.put_back([{"type": "text", "text": "first"}])
    taken = backlog.take()
    assert [event["text"] for event in taken[:2]] == ["first", "0"] and len(taken) == 301
    assert full[255].done()
