"""How a2a-sdk 1.x calls an agent, for a2a_sdk_driver.py."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
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
    ListTasksResponse,
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
from a2a_sdk_values import Answer, Content, File, Hook, Sent, StreamSeen, TaskSeen
from driving import HTTP_TIMEOUT, expect, raising
from google.protobuf import json_format

PROTOCOLS = ["1.0", "0.3"]
LISTS_NO_HOOKS = "over REST 0.3 its client neither lists nor deletes push configurations"
KNOWN_CALLER = ClientCallContext(service_parameters={"Authorization": "Bearer open-sesame"})
BINDINGS = {
    "jsonrpc": TransportProtocol.JSONRPC.value,
    "rest": TransportProtocol.HTTP_JSON.value,
    "grpc": TransportProtocol.GRPC.value,
}

# The client also raises these three when it could not read the answer at all (a bare 404 becomes
# MethodNotFoundError), so they never prove that the server refused for the right reason.
UNREADABLE = (InternalError, MethodNotFoundError, JSONParseError)
REFUSALS = {
    "task not found": (TaskNotFoundError,),
    "not cancelable": (TaskNotCancelableError,),
    "unsupported": (UnsupportedOperationError,),
    "any": tuple(each for each in JSON_RPC_ERROR_CODE_MAP if each not in UNREADABLE),
}


class Peer:
    """The agent under test, seen through two clients of the same interface."""

    def __init__(self, card: AgentCard, transport: str, protocol: str, http: httpx.AsyncClient) -> None:
        def factory(*, streaming: bool) -> ClientFactory:
            return ClientFactory(
                ClientConfig(
                    httpx_client=http,
                    grpc_channel_factory=grpc.aio.insecure_channel,
                    streaming=streaming,
                    supported_protocol_bindings=[BINDINGS[transport]],
                )
            )

        self.transport = transport
        self.is_legacy = protocol == "0.3"
        self.has_extended_card = card.capabilities.extended_agent_card
        self.skills = {skill.id for skill in card.skills}
        self._card = card
        self._factory = factory(streaming=False)
        self._unary = self._factory.create(card)
        self._streaming = factory(streaming=True).create(card)

    async def send(self, *contents: Content, immediately: bool = False, hook: str = "", **ids: str) -> Sent:
        request = _request(contents, immediately=immediately, **ids)
        if hook:
            request.configuration.task_push_notification_config.url = hook
        answers = [answer async for answer in self._unary.send_message(request)]
        expect(len(answers) == 1, f"{len(answers)} answers to one unary send")
        answer = answers[0]
        return self.task_seen(answer.task) if answer.HasField("task") else _answer(answer.message)

    def stream(self, *contents: Content, **ids: str) -> AsyncIterator[StreamResponse]:
        return self._streaming.send_message(_request(contents, **ids))

    def subscribe(self, task_id: str) -> AsyncIterator[StreamResponse]:
        return self._streaming.subscribe(SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history_length: int | None = None) -> TaskSeen:
        return self.task_seen(await self._unary.get_task(GetTaskRequest(id=task_id, history_length=history_length)))

    async def cancel(self, task_id: str) -> TaskSeen:
        return self.task_seen(await self._unary.cancel_task(CancelTaskRequest(id=task_id)))

    async def page(self, **filters: Any) -> ListTasksResponse:
        return await self._unary.list_tasks(ListTasksRequest(**filters))

    async def put_hook(self, task_id: str, hook: Hook) -> Hook:
        config = TaskPushNotificationConfig(task_id=task_id, id=hook.id, url=hook.url, token=hook.token)
        return _hook(await self._unary.create_task_push_notification_config(config))

    async def hook(self, task_id: str, name: str) -> Hook:
        request = GetTaskPushNotificationConfigRequest(task_id=task_id, id=name)
        return _hook(await self._unary.get_task_push_notification_config(request))

    async def hooks(self, task_id: str) -> list[str]:
        request = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        return [each.id for each in (await self._unary.list_task_push_notification_configs(request)).configs]

    async def delete_hook(self, task_id: str, name: str) -> None:
        request = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=name)
        await self._unary.delete_task_push_notification_config(request)

    async def extended_skills(self) -> set[str]:
        # The client keeps the card, and would use it for what comes after.
        client = self._factory.create(self._card)
        extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=KNOWN_CALLER)
        return {skill.id for skill in extended.skills}

    def read_push(self, body: bytes) -> tuple[tuple[str, str], str]:
        """The ids in the body of a webhook, and the state if it has one."""
        if self.is_legacy:
            task = LegacyTask.model_validate_json(body)
            return (task.id, task.context_id), task.status.state.name
        event = json_format.Parse(body, StreamResponse())
        return _ids(event), _state(event.status_update.status.state) if event.HasField("status_update") else ""

    def refusing(self, kind: str) -> AbstractContextManager[None]:
        """The block must raise one of the SDK's own error classes."""
        return raising(*REFUSALS[kind], called="any A2A error" if kind == "any" else "")

    def seen(self, events: list[StreamResponse]) -> StreamSeen:
        """The events of a stream together."""
        last = events[-1]
        status = last.status_update.status if last.HasField("status_update") else last.task.status
        return StreamSeen(
            [str(event.WhichOneof("payload")) for event in events],
            {_ids(event) for event in events},
            _state(status.state),
            _streamed_text(events),
            answers=[_answer(event.message) for event in events if event.HasField("message")],
        )

    def task_seen(self, task: Task) -> TaskSeen:
        """A task in the words of the cases."""
        status_text = get_message_text(task.status.message, delimiter="")
        text = "".join(get_artifact_text(artifact, delimiter="") for artifact in task.artifacts)
        return TaskSeen(
            task.id,
            task.context_id,
            _state(task.status.state),
            text or status_text,
            status_text,
            bool(task.artifacts),
            [data for artifact in task.artifacts for data in get_data_parts(artifact.parts)],
            len(task.history),
            [
                File(part.raw, part.media_type, part.filename)
                for message in task.history
                for part in message.parts
                if part.raw
            ],
            str(task),
        )


def _request(contents: tuple[Content, ...], *, immediately: bool = False, **ids: str) -> SendMessageRequest:
    parts = [_part(content) for content in contents]
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, **ids)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=immediately))


def _part(content: Content) -> Part:
    if isinstance(content, File):
        return new_raw_part(content.content, content.media_type, content.name)
    return new_text_part(content) if isinstance(content, str) else new_data_part(content)


def _answer(message: Message) -> Answer:
    return Answer(Role.Name(message.role).removeprefix("ROLE_").lower(), get_message_text(message))


def _hook(config: TaskPushNotificationConfig) -> Hook:
    return Hook(config.id, config.url, config.token)


def _state(state: TaskState) -> str:
    return TaskState.Name(state).removeprefix("TASK_STATE_").lower()


def _ids(event: StreamResponse) -> tuple[str, str]:
    if event.HasField("task"):
        return event.task.id, event.task.context_id
    update = event.status_update if event.HasField("status_update") else event.artifact_update
    return update.task_id, update.context_id


def _streamed_text(events: list[StreamResponse]) -> str:
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


def _speaks(interface: AgentInterface, binding: str, protocol: str) -> bool:
    version = interface.protocol_version
    return interface.protocol_binding == binding and (version == protocol or version.startswith(f"{protocol}."))


def _narrowed(card: AgentCard, binding: str, protocol: str) -> AgentCard:
    """The card with the one interface to test: of several the SDK would always take 1.0."""
    wanted = [interface for interface in card.supported_interfaces if _speaks(interface, binding, protocol)]
    offered = [f"{each.protocol_binding} {each.protocol_version}" for each in card.supported_interfaces]
    expect(wanted, f"the card offers {offered}, not {binding} {protocol}")
    expect(card.capabilities.streaming, "the card does not claim streaming: the client would silently not stream")
    narrow = AgentCard()
    narrow.CopyFrom(card)
    del narrow.supported_interfaces[:]
    narrow.supported_interfaces.append(wanted[0])
    return narrow


@asynccontextmanager
async def opened(url: str, transport: str, protocol: str) -> AsyncIterator[tuple[Peer, str]]:
    """The agent at a URL, and the address that its card names."""
    async with httpx.AsyncClient(timeout=HTTP_TIMEOUT) as http:
        card = _narrowed(await A2ACardResolver(http, url).get_agent_card(), BINDINGS[transport], protocol)
        yield Peer(card, transport, protocol, http), card.supported_interfaces[0].url
