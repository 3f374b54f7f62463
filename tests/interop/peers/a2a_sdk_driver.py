"""Drive an agent through the client of a2a-sdk, one JSON line per case.

Runs in the environment of tests/interop/peers/a2a-sdk.txt or a2a-sdk-03.txt, never in ours:

    a2a_sdk_driver.py BASE_URL --transport jsonrpc|rest|grpc --protocol 1.0|0.3 [--only CASE]

The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed. How each version of the SDK calls
an agent is in a2a_sdk_client.py and a2a_sdk_client_03.py.
"""

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib import import_module
from importlib.metadata import version
from typing import Any

from a2a_sdk_values import ENDED, Answer, Content, File, Hook, TaskSeen
from driving import NOT_IN_0_3, UNSUPPORTED, case, drive, expect, receiving

SDK: Any = import_module("a2a_sdk_client_03" if version("a2a-sdk").startswith("0.") else "a2a_sdk_client")
Peer = SDK.Peer
KNOWN_ONLY_TO_THE_LOG = "swordfish"


# --- asking and expecting


def expect_state(task: TaskSeen, wanted: str) -> None:
    expect(task.state == wanted, f"state is {task.state}, wanted {wanted}: {task.text!r}")


def calling(skill: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": skill, "arguments": arguments}


async def send_for_task(peer: Peer, *contents: Content, **options: Any) -> TaskSeen:
    answer = await peer.send(*contents, **options)
    expect(isinstance(answer, TaskSeen), f"wanted a task, got {answer}")
    expect(all(answer.ids), "the task lacks its id or context id")
    return answer


async def start_slow(peer: Peer) -> TaskSeen:
    """A task that is working and stays so until it is cancelled."""
    task = await send_for_task(peer, calling("slow"), immediately=True)
    while task.state != "working":
        expect(task.state not in ENDED, f"slow became {task.state}")
        task = await peer.get(task.id)
    return task


async def ask_name(peer: Peer) -> TaskSeen:
    """A task that waits for the answer to its question."""
    task = await send_for_task(peer, calling("ask_name"))
    expect_state(task, "input_required")
    expect(task.status_text == "Your name?", f"it asks {task.status_text!r}")
    return task


async def drained(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


# --- the cases


@case
async def send(peer: Peer) -> str:
    task = await send_for_task(peer, "hello")
    expect_state(task, "completed")
    expect(task.text == "hello", f"echo answered {task.text!r}")
    expect(task.has_artifacts, "the text is not in an artifact")
    return f"task {task.id} completed"


@case
async def send_reply(peer: Peer) -> str:
    answer = await peer.send(calling("reply", text="hi"))
    expect(answer == Answer("agent", "hi"), f"wanted a message, got {answer}")
    return "a bare message"


@case
async def stream(peer: Peer) -> str:
    seen = peer.seen(await drained(peer.stream(calling("count", n=3))))
    expect(seen.kinds and seen.kinds[0] == "task", f"the events are {seen.kinds}, the first must be a task")
    expect("artifact_update" in seen.kinds, f"no artifact chunk in {seen.kinds}")
    expect(seen.text == "1 2 3 ", f"the chunks make {seen.text!r}")
    expect(seen.state == "completed" and seen.is_closed, f"the stream ends with {seen}")
    expect(len(seen.ids) == 1, "the events differ in task id or context id")
    return ", ".join(seen.kinds)


@case
async def stream_reply(peer: Peer) -> str:
    seen = peer.seen(await drained(peer.stream(calling("reply", text="hi"))))
    expect(seen.kinds == ["message"], f"the events are {seen.kinds}, wanted one message")
    expect(seen.answers[0].text == "hi", f"it says {seen.answers[0].text!r}")
    return "one message"


@case
async def return_immediately(peer: Peer) -> str:
    task = await send_for_task(peer, calling("slow"), immediately=True)
    expect(task.state not in ENDED, f"state is {task.state}")
    expect_state(await peer.cancel(task.id), "canceled")
    return f"came back {task.state}"


@case
async def get_task(peer: Peer) -> str:
    sent = await send_for_task(peer, "hello")
    whole = await peer.get(sent.id)
    expect_state(whole, "completed")
    expect(whole.ids == sent.ids, "other ids than those of the send")
    expect(whole.text == "hello", f"its text is {whole.text!r}")
    expect(whole.messages >= 1, "the history lacks the user's message")

    # What 0 means in 0.3 was never settled: none by the words of its schema, no limit by its proto and in the SDK.
    allowed_for_zero = {0, whole.messages} if peer.is_legacy else {0}
    none, one = [(await peer.get(sent.id, limit)).messages for limit in (0, 1)]
    expect(none in allowed_for_zero, f"history_length 0 gave {none} messages of {whole.messages}")
    expect(one == 1, f"history_length 1 gave {one} messages of {whole.messages}")
    return f"{whole.messages} messages in the whole history"


@case
async def get_unknown(peer: Peer) -> str:
    with peer.refusing("task not found"):
        await peer.get(str(uuid.uuid4()))
    return "refused"


@case
async def list_tasks(peer: Peer) -> str:
    if peer.is_legacy:
        return NOT_IN_0_3
    stranger = await send_for_task(peer, "another context")
    first = await send_for_task(peer, "one")
    second = await send_for_task(peer, "two", context_id=first.context_id)
    expect(second.context_id == first.context_id, "a message with a context id did not stay in that context")
    expect(second.id != first.id, "a message with only a context id continued the old task")

    listed: list[TaskSeen] = []
    token = ""
    for last in (False, True):
        page = await peer.page(context_id=first.context_id, page_size=1, page_token=token)
        expect(page.total_size == 2, f"total_size is {page.total_size}, wanted 2")
        expect(len(page.tasks) == 1, f"a page of size 1 has {len(page.tasks)} tasks")
        expect(page.page_size == 1, f"page_size is {page.page_size}, wanted 1")
        expect(bool(page.next_page_token) is not last, f"next_page_token is {page.next_page_token!r}, last={last}")
        listed.extend(map(peer.task_seen, page.tasks))
        token = page.next_page_token
    expect({task.id for task in listed} == {first.id, second.id}, "the two pages are not the two tasks")
    expect(not any(task.has_artifacts for task in listed), "artifacts were listed without being asked for")

    detailed = (await peer.page(context_id=stranger.context_id, include_artifacts=True)).tasks
    expect([task.id for task in detailed] == [stranger.id], "the filter by context id lets others through")
    expect(peer.task_seen(detailed[0]).text == "another context", "include_artifacts left the artifacts out")
    return "two pages of one"


@case
async def cancel(peer: Peer) -> str:
    task = await start_slow(peer)
    expect_state(await peer.cancel(task.id), "canceled")
    expect_state(await peer.get(task.id), "canceled")
    with peer.refusing("not cancelable"):
        await peer.cancel(task.id)
    return "canceled, then refused"


@case
async def cancel_finished(peer: Peer) -> str:
    task = await send_for_task(peer, "hello")
    with peer.refusing("not cancelable"):
        await peer.cancel(task.id)
    return "refused"


@case
async def subscribe(peer: Peer) -> str:
    task = await start_slow(peer)
    async with aclosing(peer.subscribe(task.id)) as events:
        first = await anext(events)
        seen = peer.seen([first])
        expect(seen.kinds == ["task"], f"the first event is {seen.kinds}, wanted a task")
        expect(seen.ids == {task.ids}, "the first event is of another task")
        await peer.cancel(task.id)
        rest = await drained(events)
    expect(rest, "the stream ended without telling that the task was canceled")
    expect(peer.seen(rest).state == "canceled", f"the stream ends with {rest[-1]}")
    expect(peer.seen([first, *rest]).ids == {task.ids}, "an event has other ids")
    return f"{1 + len(rest)} events"


@case
async def subscribe_terminal(peer: Peer) -> str:
    task = await send_for_task(peer, "hello")
    with peer.refusing("any" if peer.is_legacy else "unsupported"):
        await drained(peer.subscribe(task.id))
    return "refused"


@case
async def multi_turn(peer: Peer) -> str:
    asked = await ask_name(peer)
    answered = await send_for_task(peer, "Ada", task_id=asked.id)
    expect_state(answered, "completed")
    expect(answered.id == asked.id, "the answer went to another task")
    expect(answered.context_id == asked.context_id, f"context id {asked.context_id} became {answered.context_id}")
    expect(answered.text == "Hello Ada", f"it answered {answered.text!r}")

    # A server may answer well when asked for the task and still put fresh ids on the events.
    asked = await ask_name(peer)
    seen = peer.seen(await drained(peer.stream("Ada", task_id=asked.id)))
    expect(peer.is_legacy or seen.kinds[0] == "task", "the stream of the answer does not begin with the task")
    expect(seen.ids == {asked.ids}, "an event has other ids")
    expect(seen.text == "Hello Ada", f"the stream says {seen.text!r}")
    expect(seen.state == "completed", f"the stream ends with {seen.state}")
    return "asked and answered, sent and streamed"


@case
async def wrong_context(peer: Peer) -> str:
    asked = await ask_name(peer)
    with peer.refusing("any"):
        await peer.send("Ada", task_id=asked.id, context_id=str(uuid.uuid4()))
    expect_state(await peer.get(asked.id), "input_required")
    expect_state(await peer.cancel(asked.id), "canceled")
    return "refused, and the task still waits"


@case
async def terminal_message(peer: Peer) -> str:
    task = await send_for_task(peer, "hello")
    with peer.refusing("any" if peer.is_legacy else "unsupported"):
        await peer.send("more", task_id=task.id, context_id=task.context_id)
    return "refused"


@case
async def failed(peer: Peer) -> str:
    task = await send_for_task(peer, calling("boom"))
    expect_state(task, "failed")
    expect(KNOWN_ONLY_TO_THE_LOG not in task.whole, "the text of the exception reached the caller")
    return task.text


@case
async def rejected(peer: Peer) -> str:
    task = await send_for_task(peer, calling("deny"))
    expect_state(task, "rejected")
    expect(task.text == "not today", f"it says {task.text!r}")
    return "not today"


@case
async def data_roundtrip(peer: Peer) -> str:
    value = {"number": 7, "half": 0.5, "yes": True, "none": None, "list": [1, "two", {"three": 3}], "text": "ünï"}
    task = await send_for_task(peer, calling("same", value=value))
    expect_state(task, "completed")
    # The SDK reads every number as a float; 7 == 7.0 is the loose comparison that needs.
    expect(task.data == [value], f"{value} came back as {task.data}")
    return "equal"


@case
async def file_roundtrip(peer: Peer) -> str:
    # No skill of the agent returns files: the one that was sent must stand in the history as it came.
    file = File(b"\x00\x01dragoman", "application/octet-stream", "blob.bin")
    sent = await send_for_task(peer, "hello", file)
    expect_state(sent, "completed")
    found = (await peer.get(sent.id)).files
    expect(found == [file], f"{file} came back as {found}")
    if peer.transport == "grpc":
        # Over REST 0.3 nobody can tell whether a text in Base64 is one, or what the SDK has made of another.
        await send_for_task(peer, "hello", File(b"notes of dragoman", "text/plain", "notes.txt"))
    return "equal in the history"


@case
async def push_config(peer: Peer) -> str:
    task = await ask_name(peer)
    hook = Hook("hook", "https://example.com/hook", "secret")
    made = await peer.put_hook(task.id, hook)
    expect((made.id, made.url) == (hook.id, hook.url), f"made {made}")
    found = await peer.hook(task.id, "hook")
    expect(found == Hook(hook.id, hook.url), f"found {found}")
    return "created and read"


@case
async def push_list_delete(peer: Peer) -> str:
    task = await ask_name(peer)
    try:
        for name in ("one", "two"):
            await peer.put_hook(task.id, Hook(name, f"https://example.com/{name}"))
        listed = await peer.hooks(task.id)
    except NotImplementedError:
        return UNSUPPORTED + SDK.LISTS_NO_HOOKS
    expect(listed == ["one", "two"], f"listed {listed}")
    for _ in range(2):
        await peer.delete_hook(task.id, "one")
    left = await peer.hooks(task.id)
    expect(left == ["two"], f"left {left}")
    return "listed and deleted"


@case
async def push_arrives(peer: Peer) -> str:
    with receiving() as receiver:
        sent = await send_for_task(peer, "hello", hook=receiver.url)
        states: list[str] = []
        while not states or states[-1] not in ENDED:
            ids, state = peer.read_push(await receiver.body())
            expect(ids == sent.ids, f"an event of {ids}")
            states += [state] if state else []
    expect(states[-1] == "completed", f"the states are {states}")
    return f"{len(states)} states"


@case
async def extended_card(peer: Peer) -> str:
    # Without the claim the client answers from its own copy, and nothing would be tested.
    expect(peer.has_extended_card, "the card claims no extended card")
    more = await peer.extended_skills() - peer.skills
    expect(more == {"vault"}, f"beyond the public card it has {more}")
    return "one skill more"


if __name__ == "__main__":
    sys.exit(drive(SDK.opened, ["grpc", "jsonrpc", "rest"], SDK.PROTOCOLS))
