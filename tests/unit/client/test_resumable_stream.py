"""Following a task over connections that break, servers that do not stream, and servers that are sloppy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace
from support.clocks import EagerClock

from dragoman import State, Task
from dragoman.client.event import Event, NumberedEvent
from dragoman.client.follow import ResumableStream
from dragoman.client.message import build_message, build_send_request
from dragoman.client.options import MessageOptions
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.errors import (
    AuthError,
    BadResponse,
    CannotConnect,
    InternalError,
    MethodNotFound,
    Overloaded,
    ServerError,
    TaskNotFound,
    TimedOut,
    UnsupportedOperation,
)
from dragoman.model.card import AgentCapabilities, AgentCard
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, Operation
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.model.task import Artifact, TaskStatus
from dragoman.testing import Clock

REQUEST = build_send_request(build_message(MessageOptions("go")), wait=True)
CARD = AgentCard("test", "", (), "1", AgentCapabilities(streaming=True), ("text/plain",), ("text/plain",), ())
CUT = CannotConnect("cut", reason="CONNECTION_LOST")
REFUSED = UnsupportedOperation("no")


def task(
    text: str = "", state: State = State.WORKING, message: str | None = None, generation: int | None = None
) -> Task:
    artifacts = (Artifact("a", (Part(text=text),)),) if text else ()
    status_message = None if message is None else Message("m", Role.AGENT, (Part(text=message),))
    return Task("t", "c", TaskStatus(state, status_message), artifacts, generation=generation)


def chunk(text: str, append: bool = True) -> ArtifactUpdate:
    return ArtifactUpdate("t", "c", Artifact("a", (Part(text=text),)), append)


def status(state: State, message: str | None = None) -> StatusUpdate:
    return StatusUpdate("t", "c", task(state=state, message=message).status)


DONE = status(State.COMPLETED)


async def last_of(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


def numbered(first: int, *events: Any) -> list[NumberedEvent]:
    return [NumberedEvent(number, event) for number, event in enumerate(events, first)]


def bare(*events: Any) -> list[NumberedEvent]:
    return [NumberedEvent(0, event) for event in events]


class Scripted:
    """A connection that plays what it is given: one list per stream, with an error at its end or not."""

    def __init__(
        self, *streams: list[Any] | Exception, gets: Sequence[Any] = (), send: Any = None, card: AgentCard | None = CARD
    ) -> None:
        self.streams = list(streams)
        self.gets = list(gets)
        self.send = send
        self.cached_card = card
        self.fetched_card = CARD
        self.reached = True
        self.reconnect = 60.0
        self.can_resubscribe = True
        self.clock: Any = EagerClock()
        self.calls: list[tuple[str, int | None]] = []
        self.open = 0

    async def card(self) -> AgentCard:
        self.calls.append(("CARD", None))
        if not self.reached:
            raise CannotConnect("nobody answers", arrived=False)
        self.cached_card = self.fetched_card
        return self.fetched_card

    async def perform(self, operation: Operation, request: Any, backoff: Any = None) -> Any:
        await asyncio.sleep(0)
        self.calls.append((operation.name, None))
        if operation is Operation.SEND:
            found = self.send
        else:
            assert isinstance(request, GetTaskRequest)
            if request.id != "t":
                raise TaskNotFound
            found = self.gets.pop(0) if len(self.gets) > 1 else self.gets[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def open_stream(
        self, operation: Operation, request: Any, after: int | None, budget: Any = None
    ) -> AsyncGenerator[Any, None]:
        self.calls.append((operation.name, after))
        stream = self.streams.pop(0) if self.streams else REFUSED
        if isinstance(stream, Exception):
            raise stream
        self.open += 1
        try:
            for each in stream:
                await asyncio.sleep(0)
                if isinstance(each, Exception):
                    raise each
                if each is FOREVER:
                    await asyncio.Event().wait()
                yield each if isinstance(each, list) else [each]
        finally:
            self.open -= 1

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def stream(self, retries: int = 5, **options: Any) -> ResumableStream:
        connection: Any = self
        return ResumableStream(connection, retries, **options)


FOREVER = object()


async def sent_events(stream: ResumableStream, request: Any = REQUEST) -> list[Event]:
    return [event async for event in stream.send(request)]


async def subscribed_events(stream: ResumableStream, after: int | None = None) -> list[Event]:
    return [event async for event in stream.subscribe("t", after)]


def joined(events: Sequence[Event]) -> str:
    answer = ""
    for event in events:
        answer = event.text if event.replaces else answer + event.text
    return answer


# Numbers


async def test_a_stream_that_breaks_is_taken_up_after_the_last_number() -> None:
    wire = Scripted(
        [numbered(1, task(), chunk("a ")), CUT],
        [numbered(3, chunk("b ")), CUT],
        [numbered(4, chunk("c"), DONE)],
    )
    events = await sent_events(wire.stream())
    assert wire.calls == [("STREAM", None), ("SUBSCRIBE", 2), ("SUBSCRIBE", 3)]
    assert [(event.id, event.text) for event in events] == [(1, ""), (2, "a "), (3, "b "), (4, "c"), (5, "")]
    assert wire.clock.slept == []


async def test_a_snapshot_with_its_number_tells_only_what_is_new() -> None:
    wire = Scripted([numbered(1, task(), chunk("a ")), CUT], [numbered(5, task("a b "), chunk("c"), DONE)])
    events = await sent_events(wire.stream())
    assert [event.text for event in events] == ["", "a ", "b ", "c", ""]
    assert wire.names == ["STREAM", "SUBSCRIBE"]


async def test_numbers_that_leave_a_gap_are_not_trusted() -> None:
    wire = Scripted(
        [numbered(1, task(), chunk("a ")), CUT],
        [numbered(3, chunk("b ")), numbered(5, chunk("d")), FOREVER],
        gets=[task("a b c d", State.COMPLETED)],
    )
    assert [event.text for event in await sent_events(wire.stream())] == ["", "a ", "b ", "c d", ""]


@pytest.mark.parametrize("number", [1, 7], ids=["counted from one", "the id of the request"])
async def test_numbers_that_are_not_the_tasks_own_lose_nothing(number: int) -> None:
    """Some servers count the events of each connection, or put one id before all of them."""
    constant = number == 7
    first = [
        *(NumberedEvent(number if constant else place, event) for place, event in enumerate([task(), chunk("a ")], 1))
    ]
    again = [
        NumberedEvent(number if constant else place, event)
        for place, event in enumerate([task("a b "), chunk("b ")], 1)
    ]
    wire = Scripted([*first, CUT], [*again, FOREVER], gets=[task("a b "), task("a b c", State.COMPLETED)])
    wire.gets = [task("a b "), task("a b c", State.COMPLETED)]
    stirring = _Stirring(wire)
    events = await sent_events(stirring.stream())
    assert joined(events) == "a b c"
    assert sum(len(event.text) for event in events) == len("a b c")


class _Stirring(Scripted):
    """Like `Scripted`, but a stream that would say nothing more says something that only wakes."""

    def __init__(self, wire: Scripted) -> None:
        super().__init__(*wire.streams, gets=wire.gets)

    async def open_stream(
        self, operation: Operation, request: Any, after: int | None, budget: Any = None
    ) -> AsyncGenerator[Any, None]:
        async with aclosing(super().open_stream(operation, request, after, budget)) as batches:
            async for batch in batches:
                yield batch
                if operation is Operation.SUBSCRIBE:
                    await asyncio.sleep(0)
                    yield bare(chunk("?"))
                    yield bare(chunk("?"))


# Servers that do not number


async def test_without_numbers_the_task_is_read_and_its_events_only_wake() -> None:
    wire = Scripted(
        [bare(task()), bare(chunk("a ")), CUT],
        # The snapshot, then an event that is in it already.
        [bare(task("a b ")), bare(chunk("b ")), bare(chunk("c")), bare(DONE)],
        gets=[task("a b "), task("a b c", State.COMPLETED)],
    )
    events = await sent_events(wire.stream())
    assert [event.text for event in events] == ["", "a ", "b ", "c", ""]
    assert events[-1].state is State.COMPLETED
    assert wire.open == 0


async def test_a_server_whose_streams_do_harm_is_looked_at_instead() -> None:
    wire = Scripted([bare(task()), bare(chunk("a ")), CUT], gets=[task("a b "), task("a b c", State.COMPLETED)])
    wire.can_resubscribe = V03_RPC.row.subscribes_again
    assert [event.text for event in await sent_events(wire.stream())] == ["", "a ", "b ", "c", ""]
    assert wire.names == ["STREAM", "GET", "GET"]


async def test_an_error_of_a_stream_that_only_wakes_is_raised_after_the_new_events() -> None:
    wire = Scripted(
        [bare(task()), CUT],
        [bare(task()), InternalError("the agent died")],
        gets=[task("a ")],
    )
    stream = wire.stream()
    with pytest.raises(InternalError, match="the agent died"):
        await last_of(stream.send(REQUEST))
    assert isinstance(stream.result, Task)
    assert stream.result.text == "a "


# Breaks that bring nothing


async def test_every_break_without_news_is_followed_by_a_longer_pause() -> None:
    wire = Scripted([numbered(1, task()), CUT], *[[CUT]] * 30, [numbered(2, DONE)], gets=[task()])
    assert (await sent_events(wire.stream(retries=2)))[-1].state is State.COMPLETED
    assert len(wire.clock.slept) == 30
    assert wire.clock.slept == sorted(wire.clock.slept)
    assert 0 < wire.clock.slept[0] < 0.5
    assert wire.clock.slept[-1] == 5.0


async def test_streams_that_end_at_once_are_no_endless_loop() -> None:
    for stream in ([numbered(2, task())], [bare(task())], [bare(status(State.WORKING))], []):
        wire = Scripted(
            [numbered(1, task())], *[list(stream) for _ in range(2000)], gets=[*[task()] * 2000, TaskNotFound()]
        )
        with pytest.raises(TaskNotFound):
            await sent_events(wire.stream())
        # Every few calls there is a pause, and soon it is a long one.
        assert wire.clock.slept.count(5.0) > len(wire.calls) / 5
        assert wire.open == 0


async def test_a_subscription_that_never_comes_through_does_not_hide_what_the_task_says() -> None:
    wire = Scripted([numbered(1, task()), CUT], *[[CUT]] * 10, gets=[task("a", State.COMPLETED, generation=9)])
    events = await sent_events(wire.stream())
    assert [(event.id, event.text) for event in events] == [(1, ""), (9, "a"), (9, "")]
    assert wire.names.count("SUBSCRIBE") == 4


async def test_a_server_that_refuses_streams_while_it_stops_is_resumed_event_by_event() -> None:
    stopping = ServerError("the server is stopping", retryAfter="1")
    after = [numbered(2, chunk("a "), chunk("b"), DONE)]
    wire = Scripted([numbered(1, task()), CUT], *[stopping] * 8, after, gets=[task("a b", generation=3)])
    events = await sent_events(wire.stream())
    assert [(event.id, event.text) for event in events] == [(1, ""), (2, "a "), (3, "b"), (4, "")]


async def test_a_server_that_refuses_streams_for_long_does_not_hide_what_the_task_says() -> None:
    busy = ServerError("too many streams", retryAfter="1")
    wire = Scripted([numbered(1, task()), CUT], *[busy] * 30, gets=[task("a", State.COMPLETED, generation=9)])
    events = await sent_events(wire.stream())
    assert [(event.id, event.text) for event in events] == [(1, ""), (9, "a"), (9, "")]
    assert 10 < sum(wire.clock.slept) < 60


async def test_the_place_is_forgotten_when_what_is_new_has_no_number() -> None:
    wire = Scripted(
        [numbered(1, task(), chunk("a ")), CUT],
        *[[CUT]] * 4,
        [numbered(5, task("a b c "), chunk("d"), DONE)],
        gets=[task("a ")] * 3 + [task("a b ")],
    )
    assert [event.text for event in await sent_events(wire.stream())] == ["", "a ", "b ", "c ", "d", ""]
    assert [after for name, after in wire.calls if name == "SUBSCRIBE"] == [2, 2, 2, 2, None]


async def test_silence_beyond_the_idle_timeout_is_an_error() -> None:
    silent = TimedOut("said nothing")
    wire = Scripted([numbered(1, task()), silent], [silent], gets=[task()])
    with pytest.raises(CannotConnect) as caught:
        await sent_events(wire.stream())
    assert caught.value is silent
    # A connection that only seemed to be there: the task has moved on.
    wire = Scripted([numbered(1, task()), silent], [silent], [numbered(2, chunk("a"), DONE)], gets=[task("a")])
    assert joined(await sent_events(wire.stream())) == "a"


async def test_wrong_credentials_in_the_middle_are_an_error_at_once() -> None:
    wire = Scripted([numbered(1, task()), CUT], AuthError("who are you?"), gets=[task()])
    with pytest.raises(AuthError):
        await sent_events(wire.stream())


# A message nobody is known to have taken


async def test_a_message_is_sent_again_until_an_event_arrives() -> None:
    wire = Scripted([CUT], Overloaded(), [numbered(1, task("a"), DONE)])
    assert len(await sent_events(wire.stream())) == 2
    assert [name for name in wire.names if name != "GET"] == ["STREAM"] * 3


async def test_after_the_last_retry_the_error_is_raised() -> None:
    for problem, expected in ((CUT, CannotConnect), (Overloaded(), Overloaded)):
        wire = Scripted(*[problem] * 9)
        with pytest.raises(expected) as caught:
            await sent_events(wire.stream(retries=3))
        assert caught.value is problem
        assert wire.names.count("STREAM") == 4


@pytest.mark.parametrize(
    "answer",
    [
        [],
        InternalError("HTTP 500"),
        CannotConnect("HTTP 502", reason="UNAVAILABLE", status=502),
        CannotConnect("HTTP 504", reason="UNAVAILABLE", status=504),
        CannotConnect("HTTP 503", reason="UNAVAILABLE", status=503),
        BadResponse("HTML", status=500),
    ],
)
@pytest.mark.parametrize("known", [CARD, None])
async def test_after_an_answer_that_may_mean_that_it_was_run_a_message_is_not_sent_again(
    answer: Any, known: AgentCard | None
) -> None:
    wire = Scripted(answer, [numbered(1, task("a"), DONE)], send=task("a", State.COMPLETED), card=known)
    with pytest.raises((BadResponse, CannotConnect, InternalError)):
        await sent_events(wire.stream())
    assert [name for name in wire.names if name != "CARD"] == ["STREAM"]


@pytest.mark.parametrize(
    "answer",
    [
        UnsupportedOperation(),
        MethodNotFound(),
        BadResponse("HTML", status=404),
        BadResponse("HTML", status=405),
        BadResponse("HTML", status=501),
    ],
)
async def test_a_server_without_streams_gets_the_message_the_other_way(answer: Exception) -> None:
    wire = Scripted(answer, send=task("a", State.COMPLETED))
    assert joined(await sent_events(wire.stream())) == "a"
    assert wire.names == ["STREAM", "SEND"]


@pytest.mark.parametrize(
    "problem",
    [
        CannotConnect("no trust", reason="TLS"),
        TimedOut("silent"),
        CannotConnect("gateway", reason="UNAVAILABLE", status=504),
        BadResponse("HTML", status=200),
        TaskNotFound(),
        ServerError("it broke"),
        AuthError("no"),
    ],
    ids=lambda problem: problem.reason,
)
async def test_what_would_be_the_same_again_is_not_tried_again(problem: Exception) -> None:
    wire = Scripted(problem, [numbered(1, task(), DONE)])
    with pytest.raises(type(problem)) as caught:
        await sent_events(wire.stream())
    assert caught.value is problem
    assert wire.names == ["STREAM"]


async def test_who_was_never_reached_is_not_tried_again() -> None:
    wire = Scripted(CannotConnect("nobody answers", arrived=False), [numbered(1, task(), DONE)], card=None)
    wire.reached = False
    with pytest.raises(CannotConnect):
        await sent_events(wire.stream())
    assert wire.names == ["CARD"]


async def test_a_task_of_our_naming_is_looked_for_before_its_message_is_sent_again() -> None:
    wire = Scripted([CUT], [numbered(2, chunk("b"), DONE)], gets=[task("a ", generation=1)])
    events = await sent_events(wire.stream(), replace(REQUEST, new_task_id="t"))
    assert joined(events) == "a b"
    assert wire.names == ["STREAM", "GET", "SUBSCRIBE"]


@pytest.mark.parametrize("found", [TaskNotFound(), AuthError("no"), CUT])
async def test_a_message_whose_stream_began_and_broke_is_not_sent_again(found: Exception) -> None:
    cut = CannotConnect("cut", reason="CONNECTION_LOST", status=200)
    wire = Scripted([cut], [numbered(1, task("a"), DONE)], gets=[found])
    with pytest.raises(CannotConnect) as caught:
        await sent_events(wire.stream(), replace(REQUEST, new_task_id="t"))
    assert caught.value is cut
    assert wire.names == ["STREAM", "GET"]


async def test_a_task_of_our_naming_is_followed_when_the_stream_of_its_message_began_and_broke() -> None:
    cut = CannotConnect("cut", reason="CONNECTION_LOST", status=200)
    wire = Scripted([cut], [numbered(2, chunk("b"), DONE)], gets=[task("a ", generation=1)])
    assert joined(await sent_events(wire.stream(), replace(REQUEST, new_task_id="t"))) == "a b"
    assert wire.names == ["STREAM", "GET", "SUBSCRIBE"]


async def test_an_error_within_a_stream_is_raised_when_the_task_has_not_ended() -> None:
    wire = Scripted([numbered(1, task(), chunk("a ")), InternalError("oh")], gets=[task("a b")])
    stream = wire.stream()
    with pytest.raises(InternalError, match="oh"):
        await last_of(stream.send(REQUEST))
    assert isinstance(stream.result, Task)
    assert stream.result.text == "a b"
    wire = Scripted([numbered(1, task()), InternalError("oh")], gets=[task("", State.FAILED, "broken")])
    events = await sent_events(wire.stream())
    assert events[-1].state is State.FAILED


async def test_an_error_within_a_stream_is_raised_when_the_task_cannot_be_read() -> None:
    wire = Scripted([numbered(1, task()), InternalError("oh")], gets=[ServerError("this agent keeps no tasks")])
    with pytest.raises(InternalError, match="oh"):
        await last_of(wire.stream().send(REQUEST))


# Servers that do not stream


@pytest.mark.parametrize("problem", [UnsupportedOperation(), MethodNotFound()], ids=lambda each: each.reason)
async def test_an_agent_that_does_not_stream_is_sent_to_and_looked_at(problem: Exception) -> None:
    wire = Scripted(problem, send=task(), gets=[task(), task("a "), task("a b", State.COMPLETED)])
    assert [event.text for event in await sent_events(wire.stream())] == ["", "a ", "b", ""]
    assert wire.names == ["STREAM", "SEND", "GET", "GET", "GET"]
    assert len(wire.clock.slept) == 2


@pytest.mark.parametrize("streaming", [False, None])
async def test_an_agent_whose_card_does_not_say_that_it_streams_is_not_asked_to(streaming: bool | None) -> None:
    card = replace(CARD, capabilities=AgentCapabilities(streaming=streaming))
    wire = Scripted(send=task("a", State.COMPLETED), card=card)
    assert [event.text for event in await sent_events(wire.stream())] == ["a"]
    assert wire.names == ["SEND"]


async def test_the_card_is_read_before_the_first_message() -> None:
    wire = Scripted(send=Message("m", Role.AGENT, (Part(text="hi"),)), card=None)
    wire.fetched_card = replace(CARD, capabilities=AgentCapabilities(streaming=False))
    assert [(event.kind, event.text) for event in await sent_events(wire.stream())] == [("message", "hi")]
    assert wire.names == ["CARD", "SEND"]


# Servers whose streams leave something out


def says(text: str) -> StatusUpdate:
    return status(State.WORKING, text)


async def test_an_answer_in_the_messages_of_a_working_task_is_the_text_of_its_end() -> None:
    wire = Scripted([bare(task(), says("one"), says("two"), DONE)])
    stream = wire.stream()
    events = await sent_events(stream)
    assert [event.text for event in events] == ["", "", "", "one\n\ntwo"]
    assert isinstance(stream.result, Task)
    assert stream.result.text == "one\n\ntwo"
    assert wire.names == ["STREAM"]


async def test_an_answer_that_only_the_task_holds_is_read_once_at_the_end() -> None:
    whole = replace(task(state=State.COMPLETED), history=(Message("m", Role.AGENT, (Part(text="hi"),)),))
    wire = Scripted([bare(task(), DONE)], gets=[whole])
    stream = wire.stream()
    assert joined(await sent_events(stream)) == "hi"
    assert stream.result == whole
    assert wire.names == ["STREAM", "GET"]


@pytest.mark.parametrize("answer", ["", "thanks"])
async def test_a_question_that_was_answered_elsewhere_is_not_taken_for_the_answer(answer: str) -> None:
    """Only the task itself has the answer that its caller gave meanwhile."""
    user = Message("u", Role.USER, (Part(text="done"),))
    messages = (Message("m", Role.AGENT, (Part(text=answer),)),) if answer else ()
    whole = replace(task(state=State.COMPLETED), history=(user, *messages))
    asked = status(State.AUTH_REQUIRED, "log in")
    wire = Scripted([bare(task(), asked, *([says(answer)] if answer else []), DONE)], gets=[whole])
    stream = wire.stream(until_final=True)
    events = await subscribed_events(stream)
    assert joined(events) == answer
    assert isinstance(stream.result, Task)
    assert stream.result.text == answer


@pytest.mark.parametrize("found", [task(state=State.COMPLETED), task(), TaskNotFound(), CUT])
async def test_a_task_that_says_no_more_stays_as_it_was_streamed(found: Any) -> None:
    wire = Scripted([bare(task(), DONE)], gets=[found])
    assert [event.kind for event in await sent_events(wire.stream())] == ["task", "status"]
    assert wire.names == ["STREAM", "GET"]


@pytest.mark.parametrize("apart", [False, True])
async def test_what_comes_after_the_end_is_read_from_the_task(apart: bool) -> None:
    late = [bare(task(), DONE), bare(chunk("late"))] if apart else [bare(task(), DONE, chunk("late"))]
    wire = Scripted(late, gets=[task("late", State.COMPLETED)])
    wire.clock = Clock()
    assert joined(await sent_events(wire.stream())) == "late"
    assert wire.names == ["STREAM", "GET"]


async def test_a_stream_that_is_left_open_after_the_end_is_left_soon() -> None:
    wire = Scripted([bare(task("a"), DONE), FOREVER])
    wire.clock = clock = Clock()
    reader = asyncio.ensure_future(sent_events(wire.stream()))
    await clock.advance(0.4)
    assert not reader.done()
    await clock.advance(0.2)
    assert joined(await reader) == "a"
    assert (wire.names, wire.open) == (["STREAM"], 0)


async def test_after_an_event_that_could_not_be_read_the_task_is_read() -> None:
    wire = Scripted(
        [bare(task(), chunk("a ", False)), [], bare(chunk("c"), DONE)], gets=[task("a b c", State.COMPLETED)]
    )
    assert joined(await sent_events(wire.stream())) == "a b c"
    assert wire.names == ["STREAM", "GET"]


async def test_a_refusal_of_the_message_itself_is_raised() -> None:
    wire = Scripted(UnsupportedOperation("ended"), send=UnsupportedOperation("ended"))
    with pytest.raises(UnsupportedOperation, match="ended"):
        await sent_events(wire.stream())


async def test_who_refuses_subscriptions_is_looked_at_ever_less_often() -> None:
    wire = Scripted([bare(task()), CUT], REFUSED, gets=[*[task()] * 40, task("a"), task("a", State.COMPLETED)])
    wire.clock = clock = Clock()
    reader = asyncio.ensure_future(sent_events(wire.stream()))
    await clock.advance(10)
    assert 5 < wire.names.count("GET") < 10
    await clock.advance(300)
    assert joined(await reader) == "a"
    assert wire.names.count("SUBSCRIBE") == 1


# Waiting, asking, and where it ends


async def test_a_question_ends_a_message_but_not_a_subscription() -> None:
    asked = numbered(1, task(), status(State.INPUT_REQUIRED, "how many?"))
    events = await sent_events(Scripted([*asked, FOREVER]).stream())
    assert (events[-1].state, events[-1].text) == (State.INPUT_REQUIRED, "")
    wire = Scripted([asked, numbered(3, status(State.WORKING), chunk("a"), DONE)])
    events = await subscribed_events(wire.stream(until_final=True))
    assert [event.state for event in events if event.kind == "status"] == [
        State.INPUT_REQUIRED,
        State.WORKING,
        State.COMPLETED,
    ]


async def test_a_stream_that_stays_open_at_auth_required_is_read_on() -> None:
    events = numbered(1, task(), status(State.AUTH_REQUIRED), chunk("a"), DONE)
    assert joined(await sent_events(Scripted([events]).stream())) == "a"


async def test_a_stream_that_ends_at_auth_required_is_over() -> None:
    wire = Scripted([numbered(1, task(), status(State.AUTH_REQUIRED))])
    assert (await sent_events(wire.stream()))[-1].state is State.AUTH_REQUIRED
    assert wire.names == ["STREAM"]


async def test_a_stream_that_breaks_at_auth_required_is_taken_up_again() -> None:
    wire = Scripted([numbered(1, task(), status(State.AUTH_REQUIRED)), CUT], [numbered(3, chunk("a"), DONE)])
    assert joined(await sent_events(wire.stream())) == "a"


@pytest.mark.parametrize("state", [State.COMPLETED, State.INPUT_REQUIRED, State.AUTH_REQUIRED])
async def test_waiting_ends_when_the_task_ends_or_asks(state: State) -> None:
    wire = Scripted([bare(task()), bare(chunk("a ")), bare(chunk("a ")), bare(status(state)), FOREVER])
    stream = wire.stream(snapshot=task(), wait_only=True)
    await last_of(stream.subscribe("t"))
    assert isinstance(stream.result, Task)
    assert stream.result.state is state
    # What happens on the way is of no interest: nothing is read for it.
    assert wire.names == ["SUBSCRIBE"]
    assert wire.open == 0


async def test_waiting_polls_where_nothing_can_be_streamed() -> None:
    wire = Scripted(REFUSED, gets=[task(), task(), task("a", State.COMPLETED)])
    stream = wire.stream(snapshot=task(), wait_only=True)
    await last_of(stream.subscribe("t"))
    assert stream.result == task("a", State.COMPLETED)
    assert len(wire.clock.slept) == 2
    assert wire.names == ["SUBSCRIBE", "GET", "GET", "GET"]


# Polling


NO_STREAM = replace(CARD, capabilities=AgentCapabilities(streaming=False))


@pytest.mark.parametrize("why", ["a subscription may do harm", "the agent does not stream"])
async def test_a_task_that_cannot_be_streamed_is_polled_and_each_change_is_the_whole_task(why: str) -> None:
    gets = [task("a"), task("a"), task("a b", State.INPUT_REQUIRED), task("a b c", State.COMPLETED)]
    wire = Scripted(gets=gets, card=CARD if why.startswith("a sub") else NO_STREAM)
    wire.can_resubscribe = not why.startswith("a sub")
    stream = wire.stream(until_final=True, poll_pause=1)
    assert stream.polls
    events = [(event.kind, event.task, event.text) async for event in stream.watch("t", task())]
    assert events == [("task", each, each.text) for each in (gets[0], gets[2], gets[3])]
    assert stream.result == gets[3]
    assert wire.names == ["GET"] * 4


async def test_a_task_that_can_be_streamed_is_watched_by_its_stream() -> None:
    wire = Scripted(numbered(1, task(), chunk("a ", False), DONE))
    stream = wire.stream(poll_pause=1)
    assert not stream.polls
    assert [event.kind async for event in stream.watch("t")] == ["task", "artifact", "status"]
    assert wire.names == ["SUBSCRIBE"]


async def test_polls_become_rare_with_the_time_that_a_task_takes() -> None:
    wire = Scripted(gets=[*[task()] * 200, task("a", State.COMPLETED)], card=NO_STREAM)
    await wire.stream(poll_pause=3).wait(task())
    slept = wire.clock.slept
    assert slept[0] == 0.05
    assert slept == sorted(slept)
    assert slept[-1] == 3
    assert all(pause <= max(0.05, sum(slept[:number]) / 10 + 0.001) for number, pause in enumerate(slept))


async def test_a_polled_task_that_does_not_change_is_given_up_after_the_idle_timeout() -> None:
    changing = [task("a" * number) for number in range(1, 40)]
    wire = Scripted(gets=[*changing, *[changing[-1]] * 200], card=NO_STREAM)
    stream = wire.stream(poll_pause=1, idle_timeout=5)
    with pytest.raises(TimedOut, match="nothing new for 5 s"):
        await stream.wait(task())
    assert stream.result == changing[-1]
    assert 5 < sum(wire.clock.slept[39:]) <= 6.1


@pytest.mark.parametrize("polls", [True, False])
async def test_who_waits_gets_the_whole_task_and_reads_it_once(polls: bool) -> None:
    whole = replace(task("a ", State.COMPLETED), history=(Message("m", Role.USER, (Part(text="go"),)),))
    wire = Scripted([bare(DONE)], gets=[whole], card=NO_STREAM if polls else CARD)
    follower = wire.stream(snapshot=task(), wait_only=True, poll_pause=1)
    assert await follower.wait(task()) == whole
    assert wire.names == (["GET"] if polls else ["SUBSCRIBE", "GET"])


# Subscriptions


async def test_a_task_that_has_ended_cannot_be_subscribed_to() -> None:
    wire = Scripted(REFUSED, gets=[task("a", State.COMPLETED)])
    with pytest.raises(UnsupportedOperation) as caught:
        await subscribed_events(wire.stream(until_final=True))
    assert caught.value is REFUSED


async def test_a_subscription_that_is_refused_while_the_task_works_is_replaced_by_looking() -> None:
    wire = Scripted(REFUSED, gets=[task("a "), task("a b", State.COMPLETED)])
    events = await subscribed_events(wire.stream(until_final=True))
    assert [(event.kind, event.text) for event in events] == [("task", "a "), ("artifact", "b"), ("status", "")]


async def test_an_unknown_task_is_an_error() -> None:
    with pytest.raises(TaskNotFound):
        await subscribed_events(Scripted(TaskNotFound(), gets=[TaskNotFound()]).stream(until_final=True))


async def test_a_subscription_that_breaks_before_its_first_event_is_made_again() -> None:
    wire = Scripted([CUT], [], CUT, [numbered(4, chunk("b"), DONE)], gets=[task("a b")])
    events = await subscribed_events(wire.stream(until_final=True), after=3)
    assert [event.text for event in events] == ["b", ""]
    assert [after for name, after in wire.calls if name == "SUBSCRIBE"] == [3, 3, 3, 3]


async def test_a_server_that_does_not_know_the_number_begins_with_the_task() -> None:
    wire = Scripted([numbered(2, task("a "), chunk("b"), DONE)])
    events = await subscribed_events(wire.stream(until_final=True), after=1000)
    assert [(event.id, event.text) for event in events] == [(2, "a "), (3, "b"), (4, "")]


# Leaving


@pytest.mark.parametrize("stream", [numbered(1, task(), chunk("a")), bare(task(), chunk("a"))], ids=["numbers", "none"])
async def test_who_leaves_closes_every_connection(stream: list[NumberedEvent]) -> None:
    for first in ([stream, FOREVER], [stream, CUT]):
        wire = Scripted([*first], [bare(task("ab")), FOREVER], gets=[task("ab")])
        async with aclosing(wire.stream().send(REQUEST)) as events:
            async for event in events:
                if event.text == ("a" if FOREVER in first else "b"):
                    break
        assert wire.open == 0
        assert len(asyncio.all_tasks()) == 1


async def test_who_is_cancelled_closes_every_connection() -> None:
    for first in (FOREVER, CUT):
        wire = Scripted([bare(task()), first], [bare(task()), FOREVER], gets=[task()])
        reader = asyncio.ensure_future(sent_events(wire.stream()))
        for _ in range(30):
            await asyncio.sleep(0)
        assert wire.open == 1
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert wire.open == 0
        assert len(asyncio.all_tasks()) == 1
