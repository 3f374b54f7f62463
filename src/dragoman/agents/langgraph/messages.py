"""The messages of a graph, in all the forms that authors write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.langgraph.values import plain

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage

MESSAGES = "messages"


def messages_of(value: Any) -> list[BaseMessage]:
    """One message or several, each an object, a dict, a pair of role and text, or a text.

    Raises:
        ValueError: one is in no such form.
    """
    from langchain_core.messages import BaseMessage, convert_to_messages

    is_pair = isinstance(value, tuple) and isinstance(cast("tuple[Any, ...]", value)[0], str)
    is_one = is_pair or isinstance(value, str | dict | BaseMessage)
    try:
        return convert_to_messages(cast("Any", [value] if is_one else value))
    except (NotImplementedError, TypeError, KeyError) as error:
        raise ValueError("these are no messages") from error


def messages_in(state: Any) -> list[BaseMessage]:
    """The messages in the state of a graph; none when what has that name is something else."""
    found = cast("dict[str, Any]", state).get(MESSAGES) if isinstance(state, dict) else None
    try:
        return [] if found is None else messages_of(found)
    except ValueError:
        return []


def canceled_calls(messages: Iterable[BaseMessage]) -> list[ToolMessage]:
    """Answers for the calls that have none. Models do not go on with a conversation in which a call is open."""
    from langchain_core.messages import AIMessage, ToolMessage

    messages = list(messages)
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return [
        ToolMessage("canceled", tool_call_id=call["id"], name=call["name"], status="error")
        for call in calls
        if call["id"] and call["id"] not in answered
    ]


def turns_of(messages: Iterable[BaseMessage]) -> list[list[Any]]:
    """The messages as JSON, by turns: each begins with what the caller said."""
    from langchain_core.messages import messages_to_dict

    turns: list[list[Any]] = []
    for message in messages:
        if message.type == "human" or not turns:
            turns.append([])
        kept = plain(messages_to_dict([message])[0])
        # What a tool keeps beside its answer may be any object, and no model sees it.
        kept["data"].pop("artifact", None)
        turns[-1].append(kept)
    return turns
