"""What runs an ADK agent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.apps.app import App
from google.adk.runners import InMemoryRunner, Runner

from dragoman.model.error import ConfigError


def runner_of(agent: object, app_name: str | None = None) -> Runner:
    """The runner itself, or one that keeps sessions, artifacts and memories in memory.

    Raises:
        ConfigError: it is nothing that ADK runs, or a runner of another name.
    """
    if isinstance(agent, Runner):
        if app_name not in (None, agent.app_name):
            raise ConfigError(f"app_name: the runner is already called `{agent.app_name}`")
        return agent
    try:
        return _made(agent, app_name)
    except ValueError as error:
        raise ConfigError(f"ADK cannot run this: {error}") from error


def _made(agent: object, app_name: str | None) -> Runner:
    if isinstance(agent, App):
        return InMemoryRunner(app=agent) if app_name is None else InMemoryRunner(app=agent, app_name=app_name)
    if isinstance(agent, BaseAgent):
        return InMemoryRunner(agent=agent, app_name=app_name or agent.name)
    node: Any = agent
    if isinstance(node, _node_types()):
        return InMemoryRunner(node=node, app_name=app_name or node.name)
    raise ConfigError(f"an agent, a workflow, an App or a Runner of ADK is needed, and not {type(agent).__name__}")


def _node_types() -> tuple[type, ...]:
    """What a workflow is made of, itself included: 1.x has none."""
    try:
        return (import_module("google.adk.workflow").BaseNode,)
    except (ImportError, AttributeError):
        return ()
