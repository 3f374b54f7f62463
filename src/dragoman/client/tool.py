"""Wraps an agent as a typed function that agent frameworks accept as a tool."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from dragoman.model.card import AgentCard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.client.client import Client
    from dragoman.client.connection import Connection
    from dragoman.client.sync import Portal
    from dragoman.model.message import Message
    from dragoman.model.part import Part
    from dragoman.model.task import Task

_NOT_IDENTIFIER = re.compile(r"[^a-zA-Z0-9_]+")
_MAX_NAME = 64


def build_tool(
    client: Client,
    connection: Connection,
    target: object,
    name: str | None,
    description: str | None,
    tool: str | None,
) -> Callable[..., Awaitable[Any]]:
    """Build a typed async function that sends its argument to the agent and returns the response.

    Without `tool` it takes and returns a text. With `tool` it returns the tool's value; its arguments are one untyped
    dict, because cards do not list them. The function raises the errors of `Client.call`.
    """
    card = connection.cached_card
    tool_name = name or tool or (card.name if card else _default_name(target))

    if tool is None:

        async def ask(message: str) -> str:
            reply = await client.send(message)
            reply.raise_for_state()
            return _answer_text(reply)

        function: Any = ask
        summary = description or _describe_card(card)
        function.__doc__ = f"{summary}\n\nArgs:\n    message: What to ask, in words."
    else:

        async def call(arguments: dict[str, Any]) -> Any:
            return await client.call(tool, **arguments)

        function = call
        skill = next((each for each in card.skills if each.id == tool), None) if card else None
        summary = description or (skill.description if skill else f"Call {tool!r} of a remote agent.")
        function.__doc__ = f"{summary}\n\nArgs:\n    arguments: The tool's arguments by name."
    function.__name__ = function.__qualname__ = _to_identifier(tool_name)
    # Frameworks expect types here, not the strings of postponed annotations.
    annotations = {"message": str, "return": str} if tool is None else {"arguments": dict[str, Any], "return": Any}
    function.__annotations__ = annotations
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for each, kind in annotations.items()
            if each != "return"
        ],
        return_annotation=annotations["return"],
    )
    return function


def make_blocking(function: Callable[..., Awaitable[Any]], portal: Portal) -> Callable[..., Any]:
    """Return a blocking function with the same signature."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return portal.run(_await(function, args, kwargs))

    wrapper: Any = call
    for name in ("__name__", "__qualname__", "__doc__", "__annotations__", "__signature__"):
        setattr(wrapper, name, getattr(function, name))
    return wrapper


async def _await(function: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
    return await function(*args, **kwargs)


def _answer_text(reply: Task | Message) -> str:
    """Return a response as text for a model: its text, else its data as JSON, else the names of its files."""
    if reply.text:
        return reply.text
    data = [part.data for part in reply.parts if part.kind == "data"]
    if data:
        return "\n".join(msgspec.json.encode(value).decode() for value in data)
    files = ", ".join(_describe_file(part) for part in reply.files)
    return f"The agent has sent files: {files}" if files else ""


def _describe_file(part: Part) -> str:
    name = part.filename or part.url or "without a name"
    return f"{name} ({part.media_type})" if part.media_type else name


def _describe_card(card: AgentCard | None) -> str:
    if card is None:
        return "Ask a remote agent and return its answer."
    skills = "; ".join(f"{skill.name}: {skill.description}" for skill in card.skills if skill.description)
    return f"{card.description}\n\nIt can: {skills}" if skills else card.description


def _default_name(target: object) -> str:
    if isinstance(target, str):
        parts = urlsplit(target)
        last = [word for word in parts.path.split("/") if word and not word.endswith(".json") and word[0] != "."]
        return f"ask_{last[-1] if last else (parts.hostname or 'agent')}"
    return str(getattr(target, "name", "ask_agent"))


def _to_identifier(text: str) -> str:
    word = _NOT_IDENTIFIER.sub("_", text).strip("_")[:_MAX_NAME] or "ask_agent"
    return f"agent_{word}" if word[0].isdigit() else word
