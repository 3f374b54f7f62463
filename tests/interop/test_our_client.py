"""Our client against foreign servers, which all play the script of peers/script.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest
from interop.deviations import DEVIATIONS, Case, files_arrive
from interop.field import PEERS, Peer, Wire, smoke_wires
from interop.peers import script
from interop.table import FAIL, OPERATIONS, OURS, PASS, Cell

from dragoman import Client, Message, State, Task
from dragoman.client.streams.stream import EventStream
from dragoman.errors import TaskNotCancelable, TaskNotFound
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest, HttpResponse

pytestmark = pytest.mark.interop

CHUNKS = 12
HOOK = "https://example.com/hook"
WELL_KNOWN = "/.well-known/"
GRPC, NEW_SERVICE = "grpc", "/lf.a2a.v1."


async def card(client: Client) -> None:
    found = await client.card()
    assert found.name
    assert found.supported_interfaces
    assert found.capabilities.streaming


async def send(client: Client) -> None:
    task = await client.send("echo hello there")
    assert isinstance(task, Task)
    assert task.state is State.COMPLETED
    assert task.text == "hello there"
    assert task.id
    assert task.context_id


async def failed(client: Client) -> None:
    task = await client.send("fail")
    assert isinstance(task, Task)
    assert task.state is State.FAILED
    assert task.error == script.FAILURE


async def message(client: Client) -> None:
    answer = await client.send("message")
    assert isinstance(answer, Message)
    assert answer.text == script.BARE
    stream = client.stream("message")
    assert [event.kind async for event in stream] == ["message"]
    assert stream.result.text == script.BARE


async def stream(client: Client) -> None:
    events = client.stream(f"stream {CHUNKS}")
    seen = [(event.kind, event.text) async for event in events]
    assert [text for kind, text in seen if text] == script.chunks(CHUNKS)
    assert seen[-1][0] == "status"
    assert events.task.state is State.COMPLETED
    assert len(events.task.artifacts) == 1
    assert events.task.text == "".join(script.chunks(CHUNKS))
    stored = await client.get_task(events.task)
    assert stored.text == events.task.text


async def ask(client: Client) -> None:
    asked = await client.send("ask")
    assert isinstance(asked, Task)
    assert asked.state is State.INPUT_REQUIRED
    assert asked.question == script.QUESTION
    answered = await client.send("Ada", task=asked)
    assert isinstance(answered, Task)
    assert (answered.id, answered.context_id) == (asked.id, asked.context_id)
    assert answered.state is State.COMPLETED
    assert answered.text == script.greeting("Ada")

    again = client.stream("ask")
    assert [event.state async for event in again][-1] is State.INPUT_REQUIRED
    answer = client.stream("Bob", task=again.task)
    assert "".join([event.text async for event in answer]) == script.greeting("Bob")
    assert answer.task.id == again.task.id
    assert answer.task.state is State.COMPLETED


async def get(client: Client) -> None:
    sent = await client.send("echo again")
    assert isinstance(sent, Task)
    found = await client.get_task(sent)
    assert (found.id, found.context_id, found.state, found.text) == (sent.id, sent.context_id, sent.state, "again")
    assert found.history[0].text == "echo again"
    with pytest.raises(TaskNotFound):
        await client.get_task("no-such-task")


async def list_tasks(client: Client) -> None:
    first = await client.send("echo one")
    second = await client.send("echo two", context=first)
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    assert second.context_id == first.context_id
    await client.send("echo elsewhere")
    listed = [task async for task in client.list_tasks(context=first, page_size=1)]
    assert sorted(task.id for task in listed) == sorted([first.id, second.id])
    detailed = [task async for task in client.list_tasks(context=first, artifacts=True)]
    assert {task.text for task in detailed} == {"one", "two"}


async def working(client: Client) -> Task:
    task = await client.send("slow", wait=False)
    assert isinstance(task, Task)
    assert not task.state.final
    return task


async def cancel(client: Client) -> None:
    task = await working(client)
    await client.cancel_task(task)
    # A server may answer before it has canceled: what counts is how the task ends.
    assert (await client.wait(task)).state is State.CANCELED
    ended = await client.send("echo done")
    with pytest.raises(TaskNotCancelable):
        await client.cancel_task(ended)


async def subscribe(client: Client) -> None:
    assert isinstance(client, Watched)
    task = await working(client)
    events = client.subscribe(task)
    # Canceled when the answer begins, not at the first event: a server of 0.3 tells nothing before something happens.
    states, _ = await asyncio.gather(states_of(events), cancel_when_read(client, task))
    assert states[-1] is State.CANCELED
    assert events.task.id == task.id


async def cancel_when_read(client: Watched, task: Task) -> None:
    await client.subscribed.wait()
    await client.cancel_task(task)


async def states_of(events: EventStream) -> list[State | None]:
    return [event.state async for event in events]


async def push(client: Client) -> None:
    task = await working(client)
    made = await client.create_push_config(task, HOOK, id="hook", token="secret")
    assert (made.id, made.url) == ("hook", HOOK)
    found = await client.get_push_config(task, "hook")
    assert (found.id, found.url, found.task_id) == ("hook", HOOK, task.id)
    assert [config.id for config in await client.list_push_configs(task)] == ["hook"]
    await client.delete_push_config(task, "hook")
    assert await client.list_push_configs(task) == ()
    await client.cancel_task(task)


async def extended_card(client: Client) -> None:
    assert (await client.extended_card()).name == (await client.card()).name + "-extended"


async def data(client: Client) -> None:
    task = await client.send("data")
    assert task.data == script.DATA
    assert json.dumps(task.data, sort_keys=True) == json.dumps(script.DATA, sort_keys=True)  # 1 is not 1.0


async def file(client: Client) -> None:
    task = await client.send("file")
    (found,) = task.files
    assert found.raw == script.FILE
    assert found.filename == script.FILE_NAME
    assert found.media_type == script.FILE_TYPE
    await files_arrive(client)


CASES: dict[str, Case] = {
    "card": card,
    "send": send,
    "failed": failed,
    "message": message,
    "stream": stream,
    "ask": ask,
    "get": get,
    "list": list_tasks,
    "cancel": cancel,
    "subscribe": subscribe,
    "push": push,
    "extended card": extended_card,
    "data": data,
    "file": file,
}


class Watched(Client):
    """A client of which is known what it really said: a test over the wrong wire would prove nothing."""

    def __init__(self, url: str, wire: Wire) -> None:
        self.spoken: set[Wire] = set()
        self.subscribed = asyncio.Event()
        super().__init__(url, protocol=wire.protocol, transport=wire.transport, interceptors=(self._watch,))

    async def _watch(
        self, request: HttpRequest, call_next: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        scheme, _, path, _, _ = urlsplit(request.url)
        if scheme == GRPC:
            self.spoken.add(Wire("grpc", "1.0" if path.startswith(NEW_SERVICE) else "0.3"))
        elif WELL_KNOWN not in path:
            asked = json.loads(request.body) if request.body else {}
            if "jsonrpc" in asked:
                self.spoken.add(Wire("jsonrpc", "0.3" if "/" in asked["method"] else "1.0"))
            else:
                self.spoken.add(Wire("rest", "0.3" if "/v1/" in path else "1.0"))
        response = await call_next(request)
        if request.operation == Operation.SUBSCRIBE.value:
            self.subscribed.set()
        return response


CELLS = [
    pytest.param(
        *(peer, wire, operation),
        id=f"{peer}-{wire}-{operation.replace(' ', '_')}",
        marks=[pytest.mark.smoke] if operation == "send" and wire in smoke_wires(peer.server_wires) else [],
    )
    for peer in PEERS
    for wire in peer.server_wires
    for operation in OPERATIONS
]


async def try_it(url: str, wire: Wire, case: Case) -> None:
    async with Watched(url, wire) as client:
        await case(client)
        assert client.spoken <= {wire}


@pytest.mark.requirement("S2-111", "S2-117")
@pytest.mark.parametrize(("peer", "wire", "operation"), CELLS)
async def test_our_client_gets_what_it_expects(
    peer: Peer, wire: Wire, operation: str, server_of: Callable[[Peer], str], record: Callable[[Cell], None]
) -> None:
    url = server_of(peer)
    result, why, case = DEVIATIONS.get((str(peer), str(wire), operation), (PASS, "", CASES[operation]))
    try:
        await try_it(url, wire, case)
    except BaseException as error:
        record(Cell(OURS, str(peer), str(wire), operation, FAIL, repr(error)))
        raise
    record(Cell(OURS, str(peer), str(wire), operation, result, why))
