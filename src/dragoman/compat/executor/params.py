"""The parameters of the methods of A2A 0.3, and its agent card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from msgspec import field

from dragoman.compat.executor.types import Message, Wire, read
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.table import CARD_PROTOCOL_VERSION, V0_3
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.model.card import AgentExtension
from dragoman.model.json import decode_any
from dragoman.model.operation import (
    CancelTaskRequest,
    Count,
    GetTaskRequest,
    Operation,
    SendMessageRequest,
    TaskPushNotificationConfig,
)

if TYPE_CHECKING:
    from typing import Self

    from dragoman.model.card import AgentCard as ModelCard

R = TypeVar("R", CancelTaskRequest, GetTaskRequest, SendMessageRequest, TaskPushNotificationConfig)
PROTOCOL_VERSION = CARD_PROTOCOL_VERSION
_TEXT = ("text/plain",)


class Params(Wire, Generic[R], frozen=True):
    """The parameters of one operation."""

    operation: ClassVar[Operation]

    def to_model(self) -> R:
        """Convert to the request of A2A 1.0. Raises InvalidParams when a parameter is invalid."""
        return cast("R", V03_RPC.read_values(self.operation, self.to_map()))

    @classmethod
    def from_model(cls, request: R) -> Self:
        """Convert a request of A2A 1.0."""
        return read(cls, decode_any(V03_RPC.write_params(cls.operation, request)))


class TaskIDParams(Params[CancelTaskRequest], frozen=True):
    """The parameters of `tasks/cancel` and `tasks/resubscribe`."""

    operation: ClassVar[Operation] = Operation.CANCEL

    id: str
    metadata: dict[str, Any] | None = None


class TaskQueryParams(Params[GetTaskRequest], frozen=True):
    """The parameters of `tasks/get`."""

    operation: ClassVar[Operation] = Operation.GET

    id: str
    history_length: Count | None = None
    metadata: dict[str, Any] | None = None


class PushAuthInfo(Wire, frozen=True):
    """The credentials that are sent to a webhook in the `Authorization` header."""

    schemes: tuple[str, ...]
    credentials: str | None = None


class PushConfig(Wire, frozen=True):
    """The address of a webhook, and what is sent to it for authentication."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: PushAuthInfo | None = None


class TaskPushConfig(Params[TaskPushNotificationConfig], frozen=True):
    """A webhook and its task. Of several authentication schemes `to_model` keeps one, as A2A 1.0 has only one."""

    operation: ClassVar[Operation] = Operation.CREATE_PUSH

    task_id: str
    push_notification_config: PushConfig


class MessageSendConfig(Wire, frozen=True):
    """Options for a message. `blocking=None` leaves it to the server whether it waits for the task to end."""

    accepted_output_modes: tuple[str, ...] = ()
    blocking: bool | None = None
    history_length: Count | None = None
    push_notification_config: PushConfig | None = None


class MessageSendParams(Params[SendMessageRequest], frozen=True):
    """The parameters of `message/send` and `message/stream`. `config` is `configuration` in JSON."""

    operation: ClassVar[Operation] = Operation.SEND

    message: Message
    config: MessageSendConfig | None = field(default=None, name="configuration")
    metadata: dict[str, Any] | None = None


# -- the agent card ----------------------------------------------------------------------------------------------------


class AgentCapabilities(Wire, frozen=True):
    """The optional features of an agent. False and empty ones are left out of the JSON."""

    streaming: bool = False
    push_notifications: bool = False
    state_transition_history: bool = False
    extensions: tuple[AgentExtension, ...] = ()


class AgentProvider(Wire, frozen=True):
    """The organization that offers an agent."""

    url: str
    organization: str


class AgentSkill(Wire, frozen=True):
    """One thing the agent can be asked to do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentCard(Wire, frozen=True, omit_defaults=False):
    """The card that describes an agent: its address, version, capabilities and skills."""

    name: str
    description: str
    url: str
    version: str
    protocol_version: str = PROTOCOL_VERSION
    capabilities: AgentCapabilities = AgentCapabilities()
    skills: tuple[AgentSkill, ...] = ()
    default_input_modes: tuple[str, ...] = _TEXT
    default_output_modes: tuple[str, ...] = _TEXT
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    supports_authenticated_extended_card: bool | None = None
    preferred_transport: str | None = None
    security_schemes: dict[str, Any] | None = None
    security: tuple[dict[str, Any], ...] | None = None

    def to_model(self) -> ModelCard:
        """Convert to the card of A2A 1.0. Raises BadCard when the name or the address is missing."""
        return read_card(self.to_map())

    @classmethod
    def from_model(cls, card: ModelCard) -> AgentCard:
        """Convert a card of A2A 1.0."""
        return read(cls, card_json(card, {}, V0_3))
