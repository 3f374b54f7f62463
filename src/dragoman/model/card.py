"""The agent card."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class AgentInterface(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One URL of the agent, with the protocol binding and version it serves."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str | None = None


class AgentProvider(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The organization that offers the agent."""

    url: str
    organization: str


class AgentExtension(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A protocol extension that the agent supports or requires."""

    uri: str = ""
    description: str = ""
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Optional protocol features the agent supports; None when the card does not say."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class AgentSkill(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One capability of the agent that callers can use."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[dict[str, Any], ...] = ()


class AgentCardSignature(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A JWS signature over the card."""

    protected: str
    signature: str
    header: dict[str, Any] | None = None


class AgentCard(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An agent's public description, with the members of A2A 1.0."""

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
"""JSON Schemas of skills: `params` has `schemas` by skill id, or the `url` of a document that has them."""
