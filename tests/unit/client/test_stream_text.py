"""The text of a stream in pieces that are printed as they come, and streams that are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import Agent, Client, Context, Task, sync
from dragoman.client.streams.stream import EventStream
from dragoman.client.streams.text import RESTART_MARK, PrintableText, TextChunk
from dragoman.outputs import Reply

MARK = str(RESTART_MARK)


@pytest.fixture
def agent() -> Agent:
    agent = Agent("test")

    @agent.skill
    async def story(topic: str) -> Any:
        for word in topic.split():
            yield word + " "

    @agent.skill
    async def plan(ctx: Context, city: str) -> Any:
        yield f"{await ctx.ask('How many days?', type=int)} days in {city}"

    @agent.skill
    def hello(name: str = "you") -> Reply:
        return Reply(f"hello {name}")

    return agent


def printed(*texts: str | tuple[str]) -> str:
    """What the pieces print; a text in a tuple replaces the answer."""
    text = PrintableText()
    pieces = list[TextChunk]()
    for each in texts:
        pieces += text.add(each[0], replaces=True) if isinstance(each, tuple) else text.add(each)
    pieces += text.end()
    assert all(pieces)
    assert all(piece.restarted is (piece == MARK) for piece in pieces)
    return "".join(pieces)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a ", "b ", "c"], "a b c"),
        ([("a b",), " c"], "a b c"),
        ([], ""),
        # The agent starts over and says the same: nothing is printed twice.
        (["a ", "b ", ("a ",), "b ", "c"], "a b c"),
        (["a ", "b ", ("a",), " b c"], "a b c"),
        (["a b ", ("a b c",)], "a b c"),
        (["a ", "b ", ("a b ",)], "a b "),
        # It says something else: a mark, and the new text from its beginning.
        (["a ", "b ", ("x ",), "y"], f"a b {MARK}x y"),
        (["a ", "b ", ("a ",), "x ", "y"], f"a b {MARK}a x y"),
        (["a b c", ("a b x",)], f"a b c{MARK}a b x"),
        # It says less, which is certain only at the end.
        (["a ", "b ", ("a ",)], f"a b {MARK}a "),
        (["a ", "b ", ("",)], f"a b {MARK}"),
        # It starts over again and again.
        (["a ", "b ", ("a ",), ("a ",), "b ", "c "], "a b c "),
        (["a b ", ("x ",), ("x ",), "y"], f"a b {MARK}x y"),
        (["a b ", ("x y ",), ("a b ",), "c"], f"a b {MARK}x y {MARK}a b c"),
    ],
)
def test_what_was_printed_is_repeated_only_behind_a_mark(texts: Sequence[Any], expected: str) -> None:
    assert printed(*texts) == expected


def test_the_mark_reads_as_a_line_of_its_own() -> None:
    assert MARK.startswith("\n")
    assert MARK.endswith("\n")
    assert MARK.strip() == "[the answer begins again]"


async def test_the_text_of_a_stream_comes_in_pieces_and_the_task_is_there_afterwards(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream("plan", tool="plan", arguments={"city": "Porto"})
        assert [piece async for piece in stream.text()] == []
        assert stream.task.question == "How many days?"
        stream = client.stream("2", task=stream.task)
        assert "".join([piece async for piece in stream.text()]) == "2 days in Porto"
        assert stream.task.text == "2 days in Porto"


async def test_artifacts_that_are_written_alternately_are_printed_once() -> None:
    agent = Agent("test")

    @agent.skill
    async def report(ctx: Context) -> Any:
        yield "Writing. "
        await ctx.artifact("The report. ", name="report")
        yield "Done."

    async with Client(agent) as client:
        stream = client.stream("go")
        assert "".join([piece async for piece in stream.text()]) == "Writing. The report. Done."


async def test_a_message_instead_of_a_task_has_text_too(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream(tool="hello")
        assert [piece async for piece in stream.text()] == ["hello you"]
        assert not isinstance(stream.result, Task)


async def test_a_stream_is_read_once_and_says_so_the_second_time(agent: Agent) -> None:
    async with Client(agent) as client:
        stream = client.stream("once upon a time", tool="story")
        assert "".join([event.text async for event in stream]) == "once upon a time "
        for read_again in (aiter, EventStream.text):
            with pytest.raises(RuntimeError, match=r"can be read only once.*client\.subscribe\(stream\.task\)"):
                read_again(stream)
        assert stream.task.text == "once upon a time "
        assert [task.id async for task in client.list_tasks()] == [stream.task.id]


def test_the_blocking_stream_does_the_same(agent: Agent) -> None:
    with sync.Client(agent) as client:
        stream = client.stream("once upon a time", tool="story")
        assert "".join(stream.text()) == "once upon a time "
        with pytest.raises(RuntimeError, match="can be read only once"):
            iter(stream)
        with pytest.raises(RuntimeError, match="can be read only once"):
            stream.text()
        assert stream.task.text == "once upon a time "
