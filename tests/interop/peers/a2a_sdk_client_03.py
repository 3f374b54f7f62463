"""How a2a-sdk 0.3 calls an agent, for a2a_sdk_driver.py."""

import base64
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
    TaskStatusUpdateEvent,
    TextPart,
    TransportProtocol,
)
from a2a.utils import get_artifact_text, get_data_parts, get_file_parts, get_message_text
from a2a_sdk_values import Answer, Content, File, Hook, Sent, StreamSeen, TaskSeen
from driving import HTTP_TIMEOUT, CaseFailed, PeerAtFault, expect

PROTOCOLS = ["0.3"]
LISTS_NO_HOOKS = "its client sets and gets, and neither lists nor deletes"
TRANSPORTS = {
    "jsonrpc": TransportProtocol.jsonrpc,
    "rest": TransportProtocol.http_json,
    "grpc": TransportProtocol.grpc,
}
CREDENTIALS = {"Authorization": "Bearer open-sesame"}

Event = Message | tuple[Task, TaskStatusUpdateEvent | TaskArtifactUpdateEvent | None]


@dataclass(frozen=True)
class Refusal:
    """The code over JSON-RPC, and what may come instead of it: 0.3 never said which status an error has elsewhere."""

    codes: set[int]
    statuses: set[int]
    names: set[str]
    """Over gRPC, where the SDKs put the name of the error before its text."""


REFUSALS = {
    "task not found": Refusal({-32001}, {404}, {"TaskNotFoundError"}),
    "not cancelable": Refusal({-32002}, {400, 409}, {"TaskNotCancelableError"}),
    "any": Refusal(
        {-32600, -32602, -32004, -32007},
        {400, 404, 409, 422},
        {"InvalidRequestError", "InvalidParamsError", "UnsupportedOperationError"},
    ),
}


class WithToken(grpc.aio.UnaryUnaryClientInterceptor):
    """Says who calls: the SDK has no metadata of the caller's own."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        credentials = [(name.lower(), value) for name, value in CREDENTIALS.items()]
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), *credentials)
        return await continuation(client_call_details._replace(metadata=metadata), request)


class Peer:
    """The agent under test, seen through two clients of the same interface."""

    is_legacy = True

    def __init__(self, card: AgentCard, transport: str, http: httpx.AsyncClient) -> None:
        def client(*, streaming: bool) -> Client:
            config = ClientConfig(
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                streaming=streaming,
                supported_transports=[TRANSPORTS[transport]],
            )
            return ClientFactory(config).create(card)

        self.transport = transport
        self.has_extended_card = card.supports_authenticated_extended_card
        self.skills = {skill.id for skill in card.skills}
        self._card = card
        self._unary, self._streaming = client(streaming=False), client(streaming=True)

    async def send(self, *contents: Content, immediately: bool = False, hook: str = "", **ids: str) -> Sent:
        pushes = PushNotificationConfig(url=hook) if hook else None
        configuration = MessageSendConfiguration(blocking=not immediately, push_notification_config=pushes)
        sending = self._unary.send_message(_message(contents, **ids), configuration=configuration)
        try:
            answers = [answer async for answer in sending]
        except AttributeError as error:
            if not hook:
                raise
            raise PeerAtFault("over REST and gRPC its client cannot send a webhook with a message") from error
        expect(len(answers) == 1, f"{len(answers)} answers to one unary send")
        answer = answers[0]
        return _answer(answer) if isinstance(answer, Message) else _task_seen(answer[0])

    async def stream(self, *contents: Content, **ids: str) -> AsyncIterator[Event]:
        async for event in self._streaming.send_message(_message(contents, **ids)):
            # The task is one object that grows, so a copy tells what it was at this event.
            yield event if isinstance(event, Message) else (event[0].model_copy(deep=True), event[1])

    async def subscribe(self, task_id: str) -> AsyncIterator[Event]:
        async for task, update in self._streaming.resubscribe(TaskIdParams(id=task_id)):
            yield task.model_copy(deep=True), update

    async def get(self, task_id: str, history_length: int | None = None) -> TaskSeen:
        return _task_seen(await self._unary.get_task(TaskQueryParams(id=task_id, history_length=history_length)))

    async def cancel(self, task_id: str) -> TaskSeen:
        return _task_seen(await self._unary.cancel_task(TaskIdParams(id=task_id)))

    async def put_hook(self, task_id: str, hook: Hook) -> Hook:
        config = PushNotificationConfig(id=hook.id, url=hook.url, token=hook.token or None)
        named = TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
        return _hook((await self._unary.set_task_callback(named)).push_notification_config)

    async def hook(self, task_id: str, name: str) -> Hook:
        params = GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id=name)
        return _hook((await self._unary.get_task_callback(params)).push_notification_config)

    async def hooks(self, task_id: str) -> list[str]:
        missing = [name for name in ("list_task_callback", "delete_task_callback") if not hasattr(self._unary, name)]
        expect(len(missing) == 2, f"the client has more than {missing} is missing")
        raise NotImplementedError

    async def extended_skills(self) -> set[str]:
        async with httpx.AsyncClient(timeout=HTTP_TIMEOUT, headers=CREDENTIALS) as http:
            config = ClientConfig(
                httpx_client=http,
                grpc_channel_factory=lambda address: grpc.aio.insecure_channel(address, interceptors=[WithToken()]),
                supported_transports=[TRANSPORTS[self.transport]],
            )
            extended = await ClientFactory(config).create(self._card.model_copy(deep=True)).get_card()
        return {skill.id for skill in extended.skills}

    def read_push(self, body: bytes) -> tuple[tuple[str, str], str]:
        """The ids in the body of a webhook, and the state."""
        task = _task_seen(Task.model_validate_json(body))
        expect(task.state != "completed" or task.has_artifacts, "the last task has no artifacts")
        return task.ids, task.state

    @contextmanager
    def refusing(self, kind: str) -> Iterator[None]:
        """The block must raise such an error; over REST the client keeps nothing but the HTTP status."""
        wanted = REFUSALS[kind]
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

    def seen(self, events: list[Event]) -> StreamSeen:
        """The events of a stream together."""
        answers = [_answer(event) for event in events if isinstance(event, Message)]
        if answers:
            return StreamSeen(["message" for _ in events], set(), "", "", answers=answers)
        tasks = [_task_seen(task) for task, _ in events]
        updates = [update for _, update in events]
        last = updates[-1]
        return StreamSeen(
            [update.kind.replace("-", "_") if update else "task" for update in updates],
            {task.ids for task in tasks},
            tasks[-1].state,
            tasks[-1].text,
            isinstance(last, TaskStatusUpdateEvent) and last.final,
        )


def _message(contents: tuple[Content, ...], **ids: str) -> Message:
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[_part(each) for each in contents], **ids)


def _part(content: Content) -> Part:
    if isinstance(content, File):
        encoded = base64.b64encode(content.content).decode()
        return Part(FilePart(file=FileWithBytes(bytes=encoded, mime_type=content.media_type, name=content.name)))
    return Part(TextPart(text=content)) if isinstance(content, str) else Part(DataPart(data=content))


def _answer(message: Message) -> Answer:
    return Answer(message.role.value, get_message_text(message))


def _hook(config: PushNotificationConfig) -> Hook:
    return Hook(config.id or "", config.url, config.token or "")


def _task_seen(task: Task) -> TaskSeen:
    """A task in the words of the cases."""
    artifacts, history = task.artifacts or [], task.history or []
    status_text = get_message_text(task.status.message, delimiter="") if task.status.message else ""
    files = [file for message in history for file in get_file_parts(message.parts)]
    return TaskSeen(
        task.id,
        task.context_id,
        task.status.state.value.replace("-", "_"),
        "".join(get_artifact_text(artifact, delimiter="") for artifact in artifacts) or status_text,
        status_text,
        bool(artifacts),
        [data for artifact in artifacts for data in get_data_parts(artifact.parts)],
        len(history),
        [File(base64.b64decode(file.bytes), file.mime_type or "", file.name or "") for file in files],
        str(task),
    )


@asynccontextmanager
async def opened(url: str, transport: str, protocol: str) -> AsyncIterator[tuple[Peer, str]]:
    """The agent at a URL, and the address that its card names."""
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        expect(card.protocol_version.startswith(protocol), f"the card says version {card.protocol_version}")
        expect(card.capabilities.streaming, "the card does not claim streaming: the client would silently not stream")
        yield Peer(card, transport, http), card.url
