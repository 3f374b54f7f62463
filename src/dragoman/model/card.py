"""What an agent says about itself."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class AgentInterface(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One address, what is spoken there, and in which version."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str | None = None


class AgentProvider(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Who offers the agent."""

    url: str
    organization: str


class AgentExtension(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An addition to the protocol that the agent knows, or demands."""

    uri: str = ""
    description: str = ""
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the agent can do beyond plain requests. None is not said."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class AgentSkill(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One thing the agent can be asked to do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[dict[str, Any], ...] = ()


class AgentCardSignature(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A signature over the card."""

    protected: str
    signature: str
    header: dict[str, Any] | None = None


class AgentCard(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An agent's public description, in the words of A2A 1.0."""

    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]
    version: str
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    security_schemes: dict[str, dict[str, Any]] | None = None
    security_requirements: tuple[dict[str, Any], ...] = ()
    signatures: tuple[AgentCardSignature, ...] = ()
    icon_url: str | None = None


SKILL_SCHEMAS = "https://dragoman.dev/extensions/skill-schemas/v1"
"""The JSON schemas of skills, by skill id: `params` has them as `schemas`, or the `url` of a document that does."""
