"""Builds the skills of an ADK agent for its card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import getdoc
from typing import Any

from dragoman.agents.offers import NamedSkill, humanized

_MAX_DESCRIPTION = 1024
_START = "__START__"


def offers_of(root: Any) -> tuple[NamedSkill, ...]:
    """Return one skill for the agent and each of its tools, and the same for its sub-agents or steps, with their names.

    Instructions are never published. Toolsets are not listed, because that might start a server.
    """
    skills: dict[str, NamedSkill] = {}
    for skill in _offers(root, is_root=True):
        skills.setdefault(skill.id, skill)
    return tuple(skills.values())


def description_of(agent: Any) -> str:
    """Return the description of an agent, shortened."""
    return _bounded(getattr(agent, "description", None) or "")


def _offers(agent: Any, *, is_root: bool) -> Iterator[NamedSkill]:
    name, under = str(agent.name), () if is_root else (f"sub_agent:{agent.name}",)
    title = humanized(name)
    kind = _kind(agent)
    about = description_of(agent) or f"Runs {title}"
    yield NamedSkill(name, title, about, (*under, kind), default=is_root)
    for key, label, text, tag in _abilities(agent):
        tool_title = label if is_root else f"{name}: {label}"
        yield NamedSkill(f"{name}-{key}", tool_title, _bounded(text), (*under, kind, tag))
    for child in children_of(agent):
        yield from _offers(child, is_root=False)


def _kind(agent: Any) -> str:
    if hasattr(agent, "instruction"):
        return "llm"
    return "workflow" if any(True for _ in children_of(agent)) else "custom"


def _abilities(agent: Any) -> Iterator[tuple[str, str, str, str]]:
    for tool in getattr(agent, "tools", None) or ():
        if hasattr(tool, "get_tools"):
            continue
        key = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if isinstance(key, str) and key and not _is_example(tool):
            text = getattr(tool, "description", None) or (getdoc(tool) if callable(tool) else None)
            yield key, key, text or f"Tool: {key}", "tools"
    if getattr(agent, "planner", None) is not None:
        yield "planner", "planning", "Plans what to do before it does it", "planning"
    if getattr(agent, "code_executor", None) is not None:
        yield "code-executor", "code-execution", "Runs code", "code_execution"


def _is_example(tool: object) -> bool:
    # It is no tool to call: it adds examples to the prompt.
    return type(tool).__name__ == "ExampleTool"


def children_of(agent: Any) -> Iterable[Any]:
    """Return the sub-agents of an agent, or the steps of a workflow."""
    yield from getattr(agent, "sub_agents", None) or ()
    graph = getattr(agent, "graph", None)
    for node in getattr(graph, "nodes", None) or ():
        if node.name != _START:
            yield node


def _bounded(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_DESCRIPTION else text[: _MAX_DESCRIPTION - 1] + "…"
