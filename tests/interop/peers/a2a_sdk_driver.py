"""Drive an agent through the official client of a2a-sdk, one JSON line per case.

Runs in the environment of tests/interop/peers/a2a-sdk.txt, never in ours:

    a2a_sdk_driver.py BASE_URL --transport jsonrpc|rest|grpc --protocol 1.0|0.3 [--only CASE]

The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.
"""

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.compat.v0_3.types import Task as LegacyTask
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_data_part, new_raw_part, new_text_part
from a2a.types import (
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskPushNotificationConfig,
    TaskState,
    UnsupportedOperationError,
)
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, InternalError, JSONParseError, MethodNotFoundError
from driving import HTTP_TIMEOUT, NOT_IN_0_3, UNSUPPORTED, case, drive, expect, raising, receiving
from google.protobuf import json_format

KNOWN_CALLER = ClientCallContext(service_parameters={"Authorization": "Bearer open-sesame"})
TOLD_ONLY_TO_THE_LOG = "swordfish"

BINDINGS = {
    "jsonrpc": TransportProtocol.JSONRPC.value,
    "rest": TransportProtocol.HTTP_JSON.value,
    "grpc": TransportProtocol.GRPC.value,
}

TERMINAL = {
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
}

# The client also raises these three when it could not read the answer at all (a bare 404 becomes
# MethodNotFoundError), so they never prove that the server refused for the right reason.
UNREADABLE = (InternalError, MethodNotFoundError, JSONParseError)
REFUSALS = tuple(each for each in JSON_RPC_ERROR_CODE_MAP if each not in UNREADABLE)


@dataclass(frozen=True)
class Peer:
    """The agent under test, seen through two clients of the same interface."""

    card: AgentCard
    protocol: str
    unary: Client
    streaming: Client
    factory: ClientFactory

    @property
    def is_legacy(self) -> bool:
        return self.protocol == "0.3"


# --- asking and expecting


def expect_state(task: Task, wanted: TaskState) -> None:
    seen = TaskState.Name(task.status.state)
    expect(task.status.state == wanted, f"state is {seen}, wanted {TaskState.Name(wanted)}: {text_of(task)!r}")


def refusing(*wanted: type[Exception]) -> AbstractContextManager[None]:
    """The block must raise one of the SDK's own error classes."""
    return raising(*wanted, called="any A2A error" if wanted == REFUSALS else "")


def calling(skill: str, **arguments: Any) -> list[Part]:
    return [new_data_part({"tool": skill, "arguments": arguments})]


def saying(text: str) -> list[Part]:
    return [new_text_part(text)]


def request_of(
    parts: list[Part], *, task_id: str = "", context_id: str = "", return_immediately: bool = False
) -> SendMessageRequest:
    message = Message(
        message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task_id, context_id=context_id
    )
    return SendMessageRequest(
        message=message, configuration=SendMessageConfiguration(return_immediately=return_immediately)
    )


async def exchange(peer: Peer, request: SendMessageRequest) -> StreamResponse:
    answers = [answer async for answer in peer.unary.send_message(request)]
    expect(len(answers) == 1, f"{len(answers)} answers to one unary send")
    return answers[0]


async def send_for_task(peer: Peer, parts: list[Part], **options: Any) -> Task:
    answer = await exchange(peer, request_of(parts, **options))
    expect(answer.HasField("task"), f"wanted a task, got {answer.WhichOneof('payload')}")
    expect(answer.task.id and answer.task.context_id, "the task lacks its id or context id")
    return answer.task


async def start_slow(peer: Peer) -> Task:
    """A task that is working and stays so until it is cancelled."""
    task = await send_for_task(peer, calling("slow"), return_immediately=True)
    expect(task.status.state not in TERMINAL, f"slow is already {TaskState.Name(task.status.state)}")
    while task.status.state != TaskState.TASK_STATE_WORKING:
        task = await get(peer, task.id)
        expect(task.status.state not in TERMINAL, f"slow became {TaskState.Name(task.status.state)}")
    return task


async def ask_name(peer: Peer) -> Task:
    """A task that waits for the answer to its question."""
    task = await send_for_task(peer, calling("ask_name"))
    expect_state(task, TaskState.TASK_STATE_INPUT_REQUIRED)
    question = get_message_text(task.status.message)
    expect(question == "Your name?", f"it asks {question!r}")
    return task


async def get(peer: Peer, task_id: str, history_length: int | None = None) -> Task:
    return await peer.unary.get_task(GetTaskRequest(id=task_id, history_length=history_length))


async def cancel_task(peer: Peer, task_id: str) -> Task:
    return await peer.unary.cancel_task(CancelTaskRequest(id=task_id))


async def drained(events: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [event async for event in events]


# --- reading


def text_of(task: Task) -> str:
    """All a human would read: the artifacts, else the message of the status."""
    artifacts = "".join(get_artifact_text(artifact, delimiter="") for artifact in task.artifacts)
    return artifacts or get_message_text(task.status.message, delimiter="")


def last_state_of(events: list[StreamResponse]) -> TaskState:
    last = events[-1]
    expect(last.WhichOneof("payload") in ("status_update", "task"), f"the last event is {last.WhichOneof('payload')}")
    return last.status_update.status.state if last.HasField("status_update") else last.task.status.state


def ids_of(event: StreamResponse) -> tuple[str, str]:
    if event.HasField("task"):
        return event.task.id, event.task.context_id
    update = event.status_update if event.HasField("status_update") else event.artifact_update
    return update.task_id, update.context_id


def streamed_text(events: list[StreamResponse]) -> str:
    """The artifacts as a caller assembles them: a snapshot, then chunks that append or replace."""
    texts: dict[str, str] = {}
    for event in events:
        for artifact in event.task.artifacts:
            texts[artifact.artifact_id] = get_artifact_text(artifact, delimiter="")
        if event.HasField("artifact_update"):
            update = event.artifact_update
            before = texts.get(update.artifact.artifact_id, "") if update.append else ""
            texts[update.artifact.artifact_id] = before + get_artifact_text(update.artifact, delimiter="")
    return "".join(texts.values())


# --- the cases


@case
async def send(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    expect_state(task, TaskState.TASK_STATE_COMPLETED)
    expect(text_of(task) == "hello", f"echo answered {text_of(task)!r}")
    expect(task.artifacts, "the text is not in an artifact")
    return f"task {task.id} completed"


@case
async def send_reply(peer: Peer) -> str:
    answer = await exchange(peer, request_of(calling("reply", text="hi")))
    expect(answer.HasField("message"), f"wanted a message, got {answer.WhichOneof('payload')}")
    expect(answer.message.role == Role.ROLE_AGENT, f"role is {Role.Name(answer.message.role)}")
    expect(get_message_text(answer.message) == "hi", f"it says {get_message_text(answer.message)!r}")
    return "a bare message"


@case
async def stream(peer: Peer) -> str:
    events = await drained(peer.streaming.send_message(request_of(calling("count", n=3))))
    kinds = [event.WhichOneof("payload") for event in events]
    expect(kinds and kinds[0] == "task", f"the events are {kinds}, the first must be a task")
    expect("artifact_update" in kinds, f"no artifact chunk in {kinds}")
    expect(streamed_text(events) == "1 2 3 ", f"the chunks make {streamed_text(events)!r}")
    expect(last_state_of(events) == TaskState.TASK_STATE_COMPLETED, f"the stream ends with {events[-1]}")
    expect(len({ids_of(event) for event in events}) == 1, "the events differ in task id or context id")
    return ", ".join(str(kind) for kind in kinds)


@case
async def stream_reply(peer: Peer) -> str:
    events = await drained(peer.streaming.send_message(request_of(calling("reply", text="hi"))))
    kinds = [event.WhichOneof("payload") for event in events]
    expect(kinds == ["message"], f"the events are {kinds}, wanted one message")
    expect(get_message_text(events[0].message) == "hi", f"it says {get_message_text(events[0].message)!r}")
    return "one message"


@case
async def return_immediately(peer: Peer) -> str:
    task = await send_for_task(peer, calling("slow"), return_immediately=True)
    expect(task.status.state not in TERMINAL, f"state is {TaskState.Name(task.status.state)}")
    expect_state(await cancel_task(peer, task.id), TaskState.TASK_STATE_CANCELED)
    return f"came back {TaskState.Name(task.status.state)}"


@case
async def get_task(peer: Peer) -> str:
    sent = await send_for_task(peer, saying("hello"))
    whole = await get(peer, sent.id)
    expect_state(whole, TaskState.TASK_STATE_COMPLETED)
    expect(whole.id == sent.id and whole.context_id == sent.context_id, "other ids than those of the send")
    expect(text_of(whole) == "hello", f"its text is {text_of(whole)!r}")
    expect(len(whole.history) >= 1, "the history lacks the user's message")

    # What 0 means in 0.3 was never settled: none by the words of its schema, no limit by its proto and in the SDK.
    allowed_for_zero = {0, len(whole.history)} if peer.is_legacy else {0}
    none, one = [len((await get(peer, sent.id, limit)).history) for limit in (0, 1)]
    expect(none in allowed_for_zero, f"history_length 0 gave {none} messages of {len(whole.history)}")
    expect(one == 1, f"history_length 1 gave {one} messages of {len(whole.history)}")
    return f"{len(whole.history)} messages in the whole history"


@case
async def get_unknown(peer: Peer) -> str:
    with refusing(TaskNotFoundError):
        await get(peer, str(uuid.uuid4()))
    return "TaskNotFoundError"


@case
async def list_tasks(peer: Peer) -> str:
    if peer.is_legacy:
        return NOT_IN_0_3
    stranger = await send_for_task(peer, saying("another context"))
    first = await send_for_task(peer, saying("one"))
    second = await send_for_task(peer, saying("two"), context_id=first.context_id)
    expect(second.context_id == first.context_id, "a message with a context id did not stay in that context")
    expect(second.id != first.id, "a message with only a context id continued the old task")

    listed: list[Task] = []
    token = ""
    for last in (False, True):
        page = await peer.unary.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=1, page_token=token))
        expect(page.total_size == 2, f"total_size is {page.total_size}, wanted 2")
        expect(len(page.tasks) == 1, f"a page of size 1 has {len(page.tasks)} tasks")
        expect(page.page_size == 1, f"page_size is {page.page_size}, wanted 1")
        expect(bool(page.next_page_token) is not last, f"next_page_token is {page.next_page_token!r}, last={last}")
        listed.extend(page.tasks)
        token = page.next_page_token
    expect({task.id for task in listed} == {first.id, second.id}, "the two pages are not the two tasks")
    expect(not any(task.artifacts for task in listed), "artifacts were listed without being asked for")

    detailed = await peer.unary.list_tasks(ListTasksRequest(context_id=stranger.context_id, include_artifacts=True))
    expect([task.id for task in detailed.tasks] == [stranger.id], "the filter by context id lets others through")
    expect(text_of(detailed.tasks[0]) == "another context", "include_artifacts left the artifacts out")
    return "two pages of one"


@case
async def cancel(peer: Peer) -> str:
    task = await start_slow(peer)
    expect_state(await cancel_task(peer, task.id), TaskState.TASK_STATE_CANCELED)
    expect_state(await get(peer, task.id), TaskState.TASK_STATE_CANCELED)
    with refusing(TaskNotCancelableError):
        await cancel_task(peer, task.id)
    return "canceled, then TaskNotCancelableError"


@case
async def cancel_finished(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    with refusing(TaskNotCancelableError):
        await cancel_task(peer, task.id)
    return "TaskNotCancelableError"


@case
async def subscribe(peer: Peer) -> str:
    task = await start_slow(peer)
    async with aclosing(peer.streaming.subscribe(SubscribeToTaskRequest(id=task.id))) as events:
        first = await anext(events)
        expect(first.HasField("task"), f"the first event is {first.WhichOneof('payload')}, wanted a task")
        expect(first.task.id == task.id, "the first event is another task")
        await cancel_task(peer, task.id)
        rest = await drained(events)
    expect(rest, "the stream ended without telling that the task was canceled")
    expect(last_state_of(rest) == TaskState.TASK_STATE_CANCELED, f"the stream ends with {rest[-1]}")
    expect({ids_of(event) for event in [first, *rest]} == {(task.id, task.context_id)}, "an event has other ids")
    return f"{1 + len(rest)} events"


@case
async def subscribe_terminal(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    with refusing(*(REFUSALS if peer.is_legacy else (UnsupportedOperationError,))):
        await drained(peer.streaming.subscribe(SubscribeToTaskRequest(id=task.id)))
    return "refused"


@case
async def multi_turn(peer: Peer) -> str:
    asked = await ask_name(peer)
    answered = await send_for_task(peer, saying("Ada"), task_id=asked.id)
    expect_state(answered, TaskState.TASK_STATE_COMPLETED)
    expect(answered.id == asked.id, "the answer went to another task")
    expect(answered.context_id == asked.context_id, f"context id {asked.context_id} became {answered.context_id}")
    expect(text_of(answered) == "Hello Ada", f"it answered {text_of(answered)!r}")

    # A server may answer well when asked for the task and still put fresh ids on the events.
    asked = await ask_name(peer)
    events = await drained(peer.streaming.send_message(request_of(saying("Ada"), task_id=asked.id)))
    expect(peer.is_legacy or events[0].HasField("task"), "the stream of the answer does not begin with the task")
    expect({ids_of(event) for event in events} == {(asked.id, asked.context_id)}, "an event has other ids")
    expect(streamed_text(events) == "Hello Ada", f"the stream says {streamed_text(events)!r}")
    expect(last_state_of(events) == TaskState.TASK_STATE_COMPLETED, f"the stream ends with {events[-1]}")
    return "asked and answered, sent and streamed"


@case
async def wrong_context(peer: Peer) -> str:
    asked = await ask_name(peer)
    with refusing(*REFUSALS):
        await exchange(peer, request_of(saying("Ada"), task_id=asked.id, context_id=str(uuid.uuid4())))
    expect_state(await get(peer, asked.id), TaskState.TASK_STATE_INPUT_REQUIRED)
    expect_state(await cancel_task(peer, asked.id), TaskState.TASK_STATE_CANCELED)
    return "refused, and the task still waits"


@case
async def terminal_message(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    with refusing(*(REFUSALS if peer.is_legacy else (UnsupportedOperationError,))):
        await exchange(peer, request_of(saying("more"), task_id=task.id, context_id=task.context_id))
    return "refused"


@case
async def failed(peer: Peer) -> str:
    task = await send_for_task(peer, calling("boom"))
    expect_state(task, TaskState.TASK_STATE_FAILED)
    expect(TOLD_ONLY_TO_THE_LOG not in str(task), "the text of the exception reached the caller")
    return text_of(task)


@case
async def rejected(peer: Peer) -> str:
    task = await send_for_task(peer, calling("deny"))
    expect_state(task, TaskState.TASK_STATE_REJECTED)
    expect(text_of(task) == "not today", f"it says {text_of(task)!r}")
    return "not today"


@case
async def data_roundtrip(peer: Peer) -> str:
    value = {"number": 7, "half": 0.5, "yes": True, "none": None, "list": [1, "two", {"three": 3}], "text": "ünï"}
    task = await send_for_task(peer, calling("same", value=value))
    expect_state(task, TaskState.TASK_STATE_COMPLETED)
    seen = [data for artifact in task.artifacts for data in get_data_parts(artifact.parts)]
    # The SDK reads every number as a float; 7 == 7.0 is the loose comparison that needs.
    expect(seen == [value], f"{value} came back as {seen}")
    return "equal"


@case
async def file_roundtrip(peer: Peer) -> str:
    # No skill of the agent returns files: the one that was sent must stand in the history as it came.
    content = b"\x00\x01dragoman"
    sent = await send_for_task(peer, [*saying("hello"), new_raw_part(content, "application/octet-stream", "blob.bin")])
    expect_state(sent, TaskState.TASK_STATE_COMPLETED)
    parts = [part for message in (await get(peer, sent.id)).history for part in message.parts if part.raw]
    expect(len(parts) == 1, f"{len(parts)} files in the history")
    expect(parts[0].raw == content, f"the bytes came back as {parts[0].raw!r}")
    expect(parts[0].media_type == "application/octet-stream", f"the media type is {parts[0].media_type!r}")
    expect(parts[0].filename == "blob.bin", f"the name is {parts[0].filename!r}")
    if peer.card.supported_interfaces[0].protocol_binding == BINDINGS["grpc"]:
        # Over REST 0.3 nobody can tell whether a text in Base64 is one, or what the SDK has made of another.
        await send_for_task(peer, [*saying("hello"), new_raw_part(b"notes of dragoman", "text/plain", "notes.txt")])
    return "equal in the history"


@case
async def push_config(peer: Peer) -> str:
    task = await ask_name(peer)
    config = TaskPushNotificationConfig(task_id=task.id, id="hook", url="https://example.com/hook", token="secret")
    made = await peer.unary.create_task_push_notification_config(config)
    expect((made.id, made.url) == ("hook", config.url), f"made {made}")
    asked = GetTaskPushNotificationConfigRequest(task_id=task.id, id="hook")
    found = await peer.unary.get_task_push_notification_config(asked)
    expect((found.id, found.url, found.token) == ("hook", config.url, ""), f"found {found}")
    return "created and read"


@case
async def push_list_delete(peer: Peer) -> str:
    task = await ask_name(peer)
    for name in ("one", "two"):
        config = TaskPushNotificationConfig(task_id=task.id, id=name, url=f"https://example.com/{name}")
        await peer.unary.create_task_push_notification_config(config)
    asked = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    try:
        listed = (await peer.unary.list_task_push_notification_configs(asked)).configs
    except NotImplementedError:
        return UNSUPPORTED + "over REST 0.3 its client neither lists nor deletes push configurations"
    expect([each.id for each in listed] == ["one", "two"], f"listed {listed}")
    for _ in range(2):
        await peer.unary.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="one")
        )
    left = (await peer.unary.list_task_push_notification_configs(asked)).configs
    expect([each.id for each in left] == ["two"], f"left {left}")
    return "listed and deleted"


@case
async def push_arrives(peer: Peer) -> str:
    with receiving() as receiver:
        request = request_of(saying("hello"))
        request.configuration.task_push_notification_config.url = receiver.url
        sent = (await exchange(peer, request)).task
        states: list[TaskState] = []
        while not states or states[-1] not in TERMINAL:
            body = await receiver.body()
            if peer.is_legacy:
                told = LegacyTask.model_validate_json(body)
                expect(told.id == sent.id, f"told of {told.id}")
                states.append(TaskState.Value(f"TASK_STATE_{told.status.state.name.upper()}"))
            else:
                event = json_format.Parse(body, StreamResponse())
                expect(ids_of(event) == (sent.id, sent.context_id), f"told of {ids_of(event)}")
                if event.HasField("status_update"):
                    states.append(event.status_update.status.state)
    expect(states[-1] == TaskState.TASK_STATE_COMPLETED, f"the states are {states}")
    return f"{len(states)} states"


@case
async def extended_card(peer: Peer) -> str:
    # Without the capability the client answers from its own copy, and nothing would be tested.
    expect(peer.card.capabilities.extended_agent_card, "the card claims no extended card")
    # The client keeps the card, and would use it for what comes after.
    client = peer.factory.create(peer.card)
    extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=KNOWN_CALLER)
    public = {skill.id for skill in peer.card.skills}
    more = {skill.id for skill in extended.skills} - public
    expect(more == {"vault"}, f"beyond the public card it has {more}")
    return "one skill more"


# --- running


def speaks(interface: AgentInterface, binding: str, protocol: str) -> bool:
    version = interface.protocol_version
    return interface.protocol_binding == binding and (version == protocol or version.startswith(f"{protocol}."))


def narrowed(card: AgentCard, binding: str, protocol: str) -> AgentCard:
    """The card with the one interface to test: of several the SDK would always take 1.0."""
    wanted = [interface for interface in card.supported_interfaces if speaks(interface, binding, protocol)]
    offered = [f"{each.protocol_binding} {each.protocol_version}" for each in card.supported_interfaces]
    expect(wanted, f"the card offers {offered}, not {binding} {protocol}")
    expect(card.capabilities.streaming, "the card does not claim streaming: the client would silently not stream")
    narrow = AgentCard()
    narrow.CopyFrom(card)
    del narrow.supported_interfaces[:]
    narrow.supported_interfaces.append(wanted[0])
    return narrow


async def discover(url: str, http: httpx.AsyncClient, binding: str, protocol: str) -> Peer:
    def factory(*, streaming: bool) -> ClientFactory:
        return ClientFactory(
            ClientConfig(
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                streaming=streaming,
                supported_protocol_bindings=[binding],
            )
        )

    unary, streaming = factory(streaming=False), factory(streaming=True)
    card = narrowed(await A2ACardResolver(http, url).get_agent_card(), binding, protocol)
    return Peer(card, protocol, unary.create(card), streaming.create(card), unary)


@asynccontextmanager
async def opened(url: str, transport: str, protocol: str) -> AsyncIterator[tuple[Peer, str]]:
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT) as http:
        peer = await discover(url, http, BINDINGS[transport], protocol)
        yield peer, peer.card.supported_interfaces[0].url


if __name__ == "__main__":
    sys.exit(drive(opened, sorted(BINDINGS), ["1.0", "0.3"]))
