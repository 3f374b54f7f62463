"""Drive an agent through the client of a2a-sdk 0.3, one JSON line per case.

Runs in the environment of tests/interop/peers/a2a-sdk-03.txt, never in ours:

    a2a_sdk_03_driver.py BASE_URL --transport jsonrpc|rest|grpc --protocol 0.3 [--only CASE]

The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.
"""

import base64
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, A2AClientHTTPError, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    AgentCard,
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
    TransportProtocol,
)
from a2a.utils import get_artifact_text, get_data_parts, get_file_parts, get_message_text
from driving import HTTP_TIMEOUT, UNSUPPORTED, CaseFailed, PeerAtFault, case, drive, expect, receiving

TRANSPORTS = {
    "jsonrpc": TransportProtocol.jsonrpc,
    "rest": TransportProtocol.http_json,
    "grpc": TransportProtocol.grpc,
}
TERMINAL = {TaskState.completed, TaskState.failed, TaskState.canceled, TaskState.rejected}
CREDENTIALS = {"Authorization": "Bearer open-sesame"}
TOLD_ONLY_TO_THE_LOG = "swordfish"


@dataclass(frozen=True)
class Refusal:
    """The code over JSON-RPC, and what may come instead of it: 0.3 never said which status an error has elsewhere."""

    codes: set[int]
    statuses: set[int]
    names: set[str]
    """Over gRPC, where the SDKs put the name of the error before its text."""


TASK_NOT_FOUND = Refusal({-32001}, {404}, {"TaskNotFoundError"})
TASK_NOT_CANCELABLE = Refusal({-32002}, {400, 409}, {"TaskNotCancelableError"})
ANY_REFUSAL = Refusal(
    {-32600, -32602, -32004, -32007},
    {400, 404, 409, 422},
    {"InvalidRequestError", "InvalidParamsError", "UnsupportedOperationError"},
)

Event = tuple[Task, TaskStatusUpdateEvent | TaskArtifactUpdateEvent | None]


@dataclass(frozen=True)
class Peer:
    """The agent under test, seen through two clients of the same interface."""

    card: AgentCard
    unary: Client
    streaming: Client
    factory: ClientFactory
    transport: TransportProtocol


# --- asking and expecting


@contextmanager
def refusing(wanted: Refusal) -> Iterator[None]:
    """The block must raise such an error; over REST the client keeps nothing but the HTTP status."""
    try:
        yield
    except A2AClientJSONRPCError as refusal:
        expect(refusal.error.code in wanted.codes, f"code {refusal.error.code}, wanted {wanted}")
    except A2AClientHTTPError as refusal:
        expect(refusal.status_code in wanted.statuses, f"status {refusal.status_code}, wanted {wanted}")
    except grpc.aio.AioRpcError as refusal:
        name, _, text = (refusal.details() or "").partition(": ")
        expect(name in wanted.names and text, f"{refusal.code()} {refusal.details()!r}, wanted {wanted}")
    except Exception as other:
        raise CaseFailed(f"raised {other!r}, wanted {wanted}") from other
    else:
        raise CaseFailed(f"nothing was raised, wanted {wanted}")


def expect_state(task: Task, wanted: TaskState) -> None:
    expect(task.status.state == wanted, f"state is {task.status.state}, wanted {wanted}: {text_of(task)!r}")


def calling(skill: str, **arguments: Any) -> Part:
    return Part(DataPart(data={"tool": skill, "arguments": arguments}))


def saying(text: str) -> Part:
    return Part(TextPart(text=text))


def message_of(part: Part, task_id: str | None = None, context_id: str | None = None) -> Message:
    message_id = str(uuid.uuid4())
    return Message(message_id=message_id, role=Role.user, parts=[part], task_id=task_id, context_id=context_id)


async def exchange(peer: Peer, message: Message, *, blocking: bool = True) -> Task | Message:
    configuration = MessageSendConfiguration(blocking=blocking)
    answers = [answer async for answer in peer.unary.send_message(message, configuration=configuration)]
    expect(len(answers) == 1, f"{len(answers)} answers to one unary send")
    answer = answers[0]
    return answer if isinstance(answer, Message) else answer[0]


async def send_for_task(
    peer: Peer, part: Part, task_id: str | None = None, context_id: str | None = None, *, blocking: bool = True
) -> Task:
    answer = await exchange(peer, message_of(part, task_id, context_id), blocking=blocking)
    if not isinstance(answer, Task):
        raise CaseFailed(f"wanted a task, got {answer}")
    return answer


async def streamed(peer: Peer, message: Message) -> list[Event]:
    events: list[Event] = []
    async for event in peer.streaming.send_message(message):
        if isinstance(event, Message):
            raise CaseFailed(f"a message in the stream of a task: {event}")
        # The task is one object that grows, so a copy tells what it was at this event.
        events.append((event[0].model_copy(deep=True), event[1]))
    return events


async def start_slow(peer: Peer) -> Task:
    """A task that is working and stays so until it is cancelled."""
    task = await send_for_task(peer, calling("slow"), blocking=False)
    while task.status.state != TaskState.working:
        expect(task.status.state not in TERMINAL, f"slow became {task.status.state}")
        task = await get(peer, task.id)
    return task


async def ask_name(peer: Peer) -> Task:
    """A task that waits for the answer to its question."""
    task = await send_for_task(peer, calling("ask_name"))
    expect_state(task, TaskState.input_required)
    question = get_message_text(task.status.message) if task.status.message else ""
    expect(question == "Your name?", f"it asks {question!r}")
    return task


async def get(peer: Peer, task_id: str, history_length: int | None = None) -> Task:
    return await peer.unary.get_task(TaskQueryParams(id=task_id, history_length=history_length))


async def cancel_task(peer: Peer, task_id: str) -> Task:
    return await peer.unary.cancel_task(TaskIdParams(id=task_id))


def text_of(task: Task) -> str:
    """All a human would read: the artifacts, else the message of the status."""
    artifacts = "".join(get_artifact_text(artifact, delimiter="") for artifact in task.artifacts or [])
    return artifacts or (get_message_text(task.status.message, delimiter="") if task.status.message else "")


# --- the cases


@case
async def send(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    expect_state(task, TaskState.completed)
    expect(task.artifacts, "the text is not in an artifact")
    expect(text_of(task) == "hello", f"echo answered {text_of(task)!r}")
    return "completed"


@case
async def send_reply(peer: Peer) -> str:
    answer = await exchange(peer, message_of(calling("reply", text="hi")))
    if not isinstance(answer, Message):
        raise CaseFailed(f"wanted a message, got task {answer.id}")
    expect(answer.role == Role.agent, f"role is {answer.role}")
    expect(get_message_text(answer) == "hi", f"it says {get_message_text(answer)!r}")
    return "a bare message"


@case
async def stream(peer: Peer) -> str:
    events = await streamed(peer, message_of(calling("count", n=3)))
    task, last = events[-1]
    expect(any(isinstance(update, TaskArtifactUpdateEvent) for _, update in events), "no artifact chunk")
    expect(text_of(task) == "1 2 3 ", f"the chunks make {text_of(task)!r}")
    expect_state(task, TaskState.completed)
    expect(isinstance(last, TaskStatusUpdateEvent) and last.final, f"the last event is {last}")
    expect(len({(seen.id, seen.context_id) for seen, _ in events}) == 1, "the events differ in their ids")
    return f"{len(events)} events"


@case
async def stream_reply(peer: Peer) -> str:
    events = [event async for event in peer.streaming.send_message(message_of(calling("reply", text="hi")))]
    expect(len(events) == 1 and isinstance(events[0], Message), f"wanted one message, got {events}")
    return "one message"


@case
async def return_immediately(peer: Peer) -> str:
    task = await send_for_task(peer, calling("slow"), blocking=False)
    expect(task.status.state not in TERMINAL, f"state is {task.status.state}")
    expect_state(await cancel_task(peer, task.id), TaskState.canceled)
    return f"came back {task.status.state}"


@case
async def get_task(peer: Peer) -> str:
    sent = await send_for_task(peer, saying("hello"))
    whole = await get(peer, sent.id)
    expect_state(whole, TaskState.completed)
    expect((whole.id, whole.context_id) == (sent.id, sent.context_id), "other ids than those of the send")
    expect(text_of(whole) == "hello", f"its text is {text_of(whole)!r}")
    expect(whole.history, "the history lacks the user's message")
    one = await get(peer, sent.id, 1)
    expect(len(one.history or []) == 1, f"history_length 1 gave {len(one.history or [])} messages")
    return "the same task"


@case
async def get_unknown(peer: Peer) -> str:
    with refusing(TASK_NOT_FOUND):
        await get(peer, str(uuid.uuid4()))
    return "refused"


@case
async def list_tasks(peer: Peer) -> str:
    return "not in 0.3"


@case
async def cancel(peer: Peer) -> str:
    task = await start_slow(peer)
    expect_state(await cancel_task(peer, task.id), TaskState.canceled)
    expect_state(await get(peer, task.id), TaskState.canceled)
    return "canceled"


@case
async def cancel_finished(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    with refusing(TASK_NOT_CANCELABLE):
        await cancel_task(peer, task.id)
    return "refused"


@case
async def subscribe(peer: Peer) -> str:
    task = await start_slow(peer)
    async with aclosing(peer.streaming.resubscribe(TaskIdParams(id=task.id))) as events:
        first, _ = await anext(events)
        expect((first.id, first.context_id) == (task.id, task.context_id), "the first event is of another task")
        await cancel_task(peer, task.id)
        rest = [event async for event in events]
    expect(rest, "the stream ended without telling that the task was canceled")
    expect_state(rest[-1][0], TaskState.canceled)
    return f"{1 + len(rest)} events"


@case
async def multi_turn(peer: Peer) -> str:
    asked = await ask_name(peer)
    answered = await send_for_task(peer, saying("Ada"), asked.id)
    expect_state(answered, TaskState.completed)
    expect((answered.id, answered.context_id) == (asked.id, asked.context_id), "the answer went to another task")
    expect(text_of(answered) == "Hello Ada", f"it answered {text_of(answered)!r}")

    asked = await ask_name(peer)
    events = await streamed(peer, message_of(saying("Ada"), asked.id, asked.context_id))
    expect({(task.id, task.context_id) for task, _ in events} == {(asked.id, asked.context_id)}, "other ids")
    expect(text_of(events[-1][0]) == "Hello Ada", f"the stream says {text_of(events[-1][0])!r}")
    return "asked and answered, sent and streamed"


@case
async def wrong_context(peer: Peer) -> str:
    asked = await ask_name(peer)
    with refusing(ANY_REFUSAL):
        await exchange(peer, message_of(saying("Ada"), asked.id, str(uuid.uuid4())))
    expect_state(await get(peer, asked.id), TaskState.input_required)
    expect_state(await cancel_task(peer, asked.id), TaskState.canceled)
    return "refused, and the task still waits"


@case
async def terminal_message(peer: Peer) -> str:
    task = await send_for_task(peer, saying("hello"))
    with refusing(ANY_REFUSAL):
        await exchange(peer, message_of(saying("more"), task.id, task.context_id))
    return "refused"


@case
async def failed(peer: Peer) -> str:
    task = await send_for_task(peer, calling("boom"))
    expect_state(task, TaskState.failed)
    expect(TOLD_ONLY_TO_THE_LOG not in str(task), "the text of the exception reached the caller")
    return text_of(task)


@case
async def rejected(peer: Peer) -> str:
    task = await send_for_task(peer, calling("deny"))
    expect_state(task, TaskState.rejected)
    expect(text_of(task) == "not today", f"it says {text_of(task)!r}")
    return "not today"


@case
async def data_roundtrip(peer: Peer) -> str:
    value = {"number": 7, "half": 0.5, "yes": True, "none": None, "list": [1, "two", {"three": 3}], "text": "ünï"}
    task = await send_for_task(peer, calling("same", value=value))
    expect_state(task, TaskState.completed)
    seen = [data for artifact in task.artifacts or [] for data in get_data_parts(artifact.parts)]
    expect(seen == [value], f"{value} came back as {seen}")
    return "equal"


@case
async def file_roundtrip(peer: Peer) -> str:
    # No skill of the agent returns files: the one that was sent must stand in the history as it came.
    encoded = base64.b64encode(b"\x00\x01dragoman").decode()
    file = FileWithBytes(bytes=encoded, mime_type="application/octet-stream", name="blob.bin")
    message = message_of(saying("hello"))
    message.parts.append(Part(FilePart(file=file)))
    sent = await exchange(peer, message)
    if not isinstance(sent, Task):
        raise CaseFailed(f"wanted a task, got {sent}")
    history = (await get(peer, sent.id)).history or []
    seen = [found for message in history for found in get_file_parts(message.parts)]
    expect(seen == [file], f"{file} came back as {seen}")
    if peer.transport is TransportProtocol.grpc:
        # Over REST nobody can tell whether a text in Base64 is one, or what the SDK has made of another.
        notes = FileWithBytes(bytes=base64.b64encode(b"notes of dragoman").decode(), mime_type="text/plain")
        message = message_of(saying("hello"))
        message.parts.append(Part(FilePart(file=notes)))
        await exchange(peer, message)
    return "equal in the history"


@case
async def push_config(peer: Peer) -> str:
    task = await send_for_task(peer, calling("ask_name"))
    hook = PushNotificationConfig(id="hook", url="https://example.com/hook", token="secret")
    config = TaskPushNotificationConfig(task_id=task.id, push_notification_config=hook)
    made = await peer.unary.set_task_callback(config)
    expect(made.push_notification_config.id == "hook", f"made {made}")
    asked = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="hook")
    found = (await peer.unary.get_task_callback(asked)).push_notification_config
    expect((found.id, found.url, found.token or "") == ("hook", hook.url, ""), f"found {found}")
    return "set and read"


@case
async def push_arrives(peer: Peer) -> str:
    with receiving() as receiver:
        hook = PushNotificationConfig(url=receiver.url)
        configuration = MessageSendConfiguration(blocking=True, push_notification_config=hook)
        sending = peer.unary.send_message(message_of(saying("hello")), configuration=configuration)
        try:
            answers = [answer async for answer in sending]
        except AttributeError as error:
            raise PeerAtFault("over REST and gRPC its client cannot send a webhook with a message") from error
        states: list[TaskState] = []
        while not states or states[-1] is not TaskState.completed:
            told = Task.model_validate_json(await receiver.body())
            states.append(told.status.state)
        expect(told.id == answers[0][0].id, f"told of {told.id}")
        expect(told.artifacts, "the last task has no artifacts")
    return f"{len(states)} states"


class WithToken(grpc.aio.UnaryUnaryClientInterceptor):
    """Says who calls: the SDK has no metadata of the caller's own."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        credentials = [(name.lower(), value) for name, value in CREDENTIALS.items()]
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), *credentials)
        return await continuation(client_call_details._replace(metadata=metadata), request)


@case
async def extended_card(peer: Peer) -> str:
    # Without the claim the client answers from its own copy, and nothing would be tested.
    expect(peer.card.supports_authenticated_extended_card, "the card claims no extended card")
    public = {skill.id for skill in peer.card.skills}
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT, headers=CREDENTIALS) as http:
        factory = ClientFactory(
            ClientConfig(
                httpx_client=http,
                grpc_channel_factory=lambda address: grpc.aio.insecure_channel(address, interceptors=[WithToken()]),
                supported_transports=[peer.transport],
            )
        )
        extended = await factory.create(peer.card.model_copy(deep=True)).get_card()
    more = {skill.id for skill in extended.skills} - public
    expect(more == {"vault"}, f"beyond the public card it has {more}")
    return "one skill more"


@case
async def push_list_delete(peer: Peer) -> str:
    missing = [name for name in ("list_task_callback", "delete_task_callback") if not hasattr(peer.unary, name)]
    expect(len(missing) == 2, f"the client has more than {missing} is missing")
    return UNSUPPORTED + "its client sets and gets, and neither lists nor deletes"


# --- running


@asynccontextmanager
async def opened(url: str, transport: str, protocol: str) -> AsyncIterator[tuple[Peer, str]]:
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT) as http:

        def factory(*, streaming: bool) -> ClientFactory:
            return ClientFactory(
                ClientConfig(
                    httpx_client=http,
                    grpc_channel_factory=grpc.aio.insecure_channel,
                    streaming=streaming,
                    supported_transports=[TRANSPORTS[transport]],
                )
            )

        card = await A2ACardResolver(http, url).get_agent_card()
        expect(card.protocol_version.startswith(protocol), f"the card says version {card.protocol_version}")
        expect(card.capabilities.streaming, "the card does not claim streaming: the client would silently not stream")
        unary = factory(streaming=False)
        yield (
            Peer(card, unary.create(card), factory(streaming=True).create(card), unary, TRANSPORTS[transport]),
            card.url,
        )


if __name__ == "__main__":
    sys.exit(drive(opened, sorted(TRANSPORTS), ["0.3"]))
