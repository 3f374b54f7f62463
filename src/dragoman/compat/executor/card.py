"""The agent card of A2A 0.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.compat.executor.wire import Wire, read
from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.table import CARD_PROTOCOL_VERSION, V0_3
from dragoman.model.card import AgentExtension, AgentProvider

if TYPE_CHECKING:
    from dragoman.model.card import AgentCard as ModelCard

PROTOCOL_VERSION = CARD_PROTOCOL_VERSION
_TEXT = ("text/plain",)


class AgentCapabilities(Wire, frozen=True):
    """What the agent can do beyond plain requests; what it cannot is not said."""

    streaming: bool = False
    push_notifications: bool = False
    state_transition_history: bool = False
    extensions: tuple[AgentExtension, ...] = ()


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
    """What an agent says about itself."""

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
        """The card in the words of A2A 1.0. Raises BadCard when it has no name or no address."""
        return read_card(self.to_map())

    @classmethod
    def from_model(cls, card: ModelCard) -> AgentCard:
        """Spell a card of A2A 1.0."""
        return read(cls, card_json(card, {}, V0_3))
