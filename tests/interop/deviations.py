"""Where a peer does something else than the others: what it does, as a test, and who is at fault.

`PEER`: it breaks the protocol. `ABSENT`: it has no such thing, which the protocol allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from interop.peers import script
from interop.table import ABSENT, PASS, PEER

from dragoman import Client, Part, State, Task
from dragoman.errors import DragomanError, MethodNotFound, TaskNotFound, UnsupportedOperation

Case = Callable[[Client], Awaitable[None]]

HOOK = "https://example.com/hook"
PICTURE = Part(raw=b"\x89PNG\r\n\x1a\n" + bytes(range(256)), media_type="image/png", filename="dot.png")


async def numbers_become_floats(client: Client) -> None:
    task = await client.send("data")
    assert task.data == script.DATA
    assert isinstance(task.data, dict)
    assert isinstance(task.data["n"], float)


async def files_arrive(client: Client) -> None:
    """What the server has understood of a file stands in the history of its task."""
    task = await client.send("echo hello", files=[PICTURE])
    assert isinstance(task, Task)
    assert files_of(await client.get_task(task)) == [PICTURE.raw]


def files_of(task: Task) -> list[bytes]:
    return [part.raw for message in task.history for part in message.parts if part.raw is not None]


async def files_lose_their_name(client: Client) -> None:
    (found,) = (await client.send("file")).files
    assert found.raw == script.FILE
    assert (found.filename, found.media_type) == (None, script.FILE_TYPE)
    await files_arrive(client)


async def nameless_files_arrive_without_history(client: Client) -> None:
    (found,) = (await client.send("file")).files
    assert found.raw == script.FILE
    assert (found.filename, found.media_type) == (None, script.FILE_TYPE)
    task = await client.send("echo hello", files=[PICTURE])
    assert isinstance(task, Task)
    assert files_of(await client.get_task(task, history_length=10)) == [PICTURE.raw]


async def history_has_to_be_asked_for(client: Client) -> None:
    sent = await client.send("echo again")
    assert isinstance(sent, Task)
    found = await client.get_task(sent)
    assert (found.id, found.context_id, found.state, found.text) == (sent.id, sent.context_id, sent.state, "again")
    assert found.history == ()
    assert (await client.get_task(sent, history_length=10)).history[0].text == "echo again"
    with pytest.raises(TaskNotFound):
        await client.get_task("no-such-task")


async def sent_files_are_kept_in_base64(client: Client) -> None:
    (found,) = (await client.send("file")).files
    assert (found.raw, found.filename, found.media_type) == (script.FILE, script.FILE_NAME, script.FILE_TYPE)
    task = await client.send("echo hello", files=[PICTURE])
    assert isinstance(task, Task)
    assert files_of(await client.get_task(task)) == [PICTURE.raw]  # read as it was sent


async def subscriptions_begin_with_the_next_event(client: Client) -> None:
    task = await client.send("stream 100", wait=False)
    assert isinstance(task, Task)
    assert not task.state.final
    events = client.subscribe(task)
    texts = [event.text async for event in events]
    assert any(texts)
    assert events.task.state is State.COMPLETED
    assert events.task.id == task.id


async def hooks_cannot_be_deleted(client: Client) -> None:
    task = await client.send("slow", wait=False)
    assert isinstance(task, Task)
    await client.create_push_config(task, HOOK, id="hook")
    assert (await client.get_push_config(task, "hook")).url == HOOK
    with pytest.raises(DragomanError):
        await client.delete_push_config(task, "hook")
    assert (await client.get_push_config(task, "hook")).url == HOOK
    await client.cancel_task(task)


async def hooks_can_only_be_made_and_read(client: Client) -> None:
    await hooks_cannot_be_deleted(client)
    with pytest.raises(DragomanError):
        await client.list_push_configs(await client.send("echo hello"))


async def reasons_are_not_kept(client: Client) -> None:
    task = await client.send("fail")
    assert isinstance(task, Task)
    assert task.state is State.FAILED
    assert task.status.message is None
    assert task.history[-1].text == script.FAILURE


async def all_answers_are_tasks(client: Client) -> None:
    assert isinstance(await client.send("message"), Task)


async def answers_start_new_tasks(client: Client) -> None:
    asked = await client.send("ask")
    assert isinstance(asked, Task)
    assert asked.state is State.INPUT_REQUIRED
    answered = await client.send("echo Ada", task=asked)
    assert isinstance(answered, Task)
    assert answered.id != asked.id
    assert (await client.get_task(asked)).state is State.INPUT_REQUIRED


async def nothing_is_listed(client: Client) -> None:
    with pytest.raises(UnsupportedOperation):
        [task async for task in client.list_tasks()]


async def ended_tasks_are_canceled_in_silence(client: Client) -> None:
    task = await client.send("slow", wait=False)
    await client.cancel_task(task)
    assert (await client.wait(task)).state is State.CANCELED
    ended = await client.send("echo done")
    assert (await client.cancel_task(ended)).state is State.COMPLETED


async def there_is_no_list_in_0_3(client: Client) -> None:
    with pytest.raises(MethodNotFound):
        [task async for task in client.list_tasks()]


async def there_are_no_hooks(client: Client) -> None:
    assert not (await client.card()).capabilities.push_notifications
    task = await client.send("echo hello")
    with pytest.raises(DragomanError):
        await client.create_push_config(task, HOOK)


async def there_is_no_extended_card(client: Client) -> None:
    assert not (await client.card()).capabilities.extended_agent_card
    with pytest.raises(DragomanError):
        await client.extended_card()


FLOATS = "{} keeps data in protobuf, where every number is a float: `1` arrives as `1.0`."
NO_DELETE = "a2a-sdk 1.3 has no route to delete a push configuration over REST 0.3; the other three work."
NO_LIST = "a2a-sdk 0.3 can neither list nor delete push configurations over {}; creating and reading work."

Deviation = tuple[str, str, Case]
DEVIATIONS: dict[tuple[str, str, str], Deviation] = {
    **{
        ("a2a-sdk", wire, "data"): (PEER, FLOATS.format("a2a-sdk"), numbers_become_floats)
        for wire in ("jsonrpc-1.0", "rest-1.0", "jsonrpc-0.3", "rest-0.3")
    },
    **{
        ("rust", wire, "data"): (PEER, FLOATS.format("a2a-rs"), numbers_become_floats)
        for wire in ("jsonrpc-1.0", "rest-1.0")
    },
    **{
        (peer, wire, "list"): (ABSENT, "Not in 0.3.", there_is_no_list_in_0_3)
        for peer in ("a2a-sdk", "a2a-sdk-03", "js", "go", "go-23")
        for wire in ("jsonrpc-0.3", "rest-0.3", "grpc-0.3")
    },
    ("a2a-sdk", "rest-0.3", "push"): (PEER, NO_DELETE, hooks_cannot_be_deleted),
    ("a2a-sdk-03", "rest-0.3", "data"): (PEER, FLOATS.format("a2a-sdk"), numbers_become_floats),
    ("a2a-sdk-03", "rest-0.3", "push"): (PEER, NO_LIST.format("REST"), hooks_can_only_be_made_and_read),
    ("a2a-sdk-03", "grpc-0.3", "push"): (PEER, NO_LIST.format("gRPC"), hooks_can_only_be_made_and_read),
    ("a2a-sdk-03", "grpc-0.3", "subscribe"): (
        PASS,
        "a2a-sdk 0.3 sends nothing over gRPC, not even that a subscription has begun, before the next event.",
        subscriptions_begin_with_the_next_event,
    ),
    ("js", "grpc-0.3", "get"): (
        PEER,
        "@a2a-js/sdk sends no history over gRPC 0.3, unless its length is asked for.",
        history_has_to_be_asked_for,
    ),
    ("js", "grpc-0.3", "file"): (
        PEER,
        "@a2a-js/sdk leaves out the name of a file over gRPC 0.3.",
        nameless_files_arrive_without_history,
    ),
    ("js", "rest-0.3", "file"): (
        PEER,
        "@a2a-js/sdk leaves out the name of a file over REST 0.3.",
        files_lose_their_name,
    ),
    ("go-23", "grpc-0.3", "file"): (
        PEER,
        "a2a-go keeps the Base64 of a file in the field of bytes over gRPC 0.3, but only since 2.4; nothing tells the "
        "versions apart, so the agent of 2.3 is given Base64.",
        sent_files_are_kept_in_base64,
    ),
    ("fasta2a", "jsonrpc-1.0", "failed"): (
        ABSENT,
        "fasta2a keeps no message with a status: the state comes, the reason stands in the history only.",
        reasons_are_not_kept,
    ),
    ("fasta2a", "jsonrpc-1.0", "message"): (
        ABSENT,
        "fasta2a answers with tasks only.",
        all_answers_are_tasks,
    ),
    ("fasta2a", "jsonrpc-1.0", "ask"): (
        PEER,
        "fasta2a ignores the task a message names: the answer starts a new one, and the question stays open.",
        answers_start_new_tasks,
    ),
    ("fasta2a", "jsonrpc-1.0", "list"): (ABSENT, "fasta2a lists no tasks.", nothing_is_listed),
    ("fasta2a", "jsonrpc-1.0", "cancel"): (
        PEER,
        "fasta2a cancels, but for a task that has ended it gives no error.",
        ended_tasks_are_canceled_in_silence,
    ),
    ("fasta2a", "jsonrpc-1.0", "push"): (ABSENT, "fasta2a has no push configurations.", there_are_no_hooks),
    ("fasta2a", "jsonrpc-1.0", "extended card"): (
        ABSENT,
        "fasta2a has no extended card.",
        there_is_no_extended_card,
    ),
}

# Of the clients: the case that fails, what its driver must then say, and why. One that passes again is no deviation.
NO_STREAM = "a2a-go takes an error that comes instead of a stream for a stream without events."

CLIENT_FAULTS: dict[tuple[str, str, str], tuple[str, str]] = {
    ("fasta2a", "jsonrpc-1.0", "file_roundtrip"): (
        "parts[1].kind is required",
        "fasta2a calls a method of 0.3 with a file part of 1.0, which 0.3 does not know.",
    ),
    **{(peer, "jsonrpc-1.0", "subscribe_terminal"): ("nothing was refused", NO_STREAM) for peer in ("go", "go-23")},
}
