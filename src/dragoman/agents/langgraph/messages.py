"""The messages of a graph, in all the forms that authors write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from dragoman.agents.text import PARAGRAPH_BREAK

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage


def plain(value: Any) -> Any:
    """A value as JSON, whatever it is: also models, and texts that are more than texts.

    What has no JSON form is shown as Python shows it: it may be one field of many in a graph's state.
    """
    from pydantic_core import to_json

    return json.loads(to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str))


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
    messages = cast("dict[str, Any]", state).get(MESSAGES) if isinstance(state, dict) else None
    try:
        return [] if messages is None else messages_of(messages)
    except ValueError:
        return []


def canceled_calls(messages: Iterable[BaseMessage]) -> list[ToolMessage]:
    """Answers for the calls that have none. Models do not go on with a conversation in which a call is open."""
    from langchain_core.messages import AIMessage, ToolMessage

    messages = list(messages)
    answered_ids = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return [
        ToolMessage("canceled", tool_call_id=call["id"], name=call["name"], status="error")
        for call in calls
        if call["id"] and call["id"] not in answered_ids
    ]


def turns_of(messages: Iterable[BaseMessage]) -> list[list[Any]]:
    """The messages as JSON, by turns: each begins with what the caller said."""
    from langchain_core.messages import messages_to_dict

    turns: list[list[Any]] = []
    for message in messages:
        if message.type == "human" or not turns:
            turns.append([])
        message_json = plain(messages_to_dict([message])[0])
        # What a tool keeps beside its answer may be any object, and no model sees it.
        message_json["data"].pop("artifact", None)
        turns[-1].append(message_json)
    return turns


# How many of the messages before are known by their ids: graphs that shorten a conversation keep its end.
_TRACKED_IDS = 20


class GraphAnswer(Struct):
    """Knows what was said before the task, and so what is its answer. It is JSON, and outlasts a pause.

    A graph may take back what its models have said, say it in other words, or never put it into its state. Then it is
    no part of the answer, although it was streamed.
    """

    has_started: bool = field(default=False, name="begun")
    earlier_ids: list[str] = field(default_factory=list[str], name="known")
    earlier_count: int = field(default=0, name="count")
    has_text: bool = field(default=False, name="spoke")

    def observe(self, state: Any) -> None:
        """Take a state of the graph: the first is what it begins with."""
        messages = messages_in(state)
        if self.has_started:
            self.has_text = self.has_text or bool(_texts(self._new_messages(messages)))
            return
        self.has_started, self.earlier_count = True, len(messages)
        self.earlier_ids = [message.id for message in messages[-_TRACKED_IDS:] if message.id]

    def text(self, state: Any) -> str | None:
        """The answer in the last state; None when the graph has never said anything there."""
        texts = _texts(self._new_messages(messages_in(state)))
        return PARAGRAPH_BREAK.join(texts) if texts or self.has_text else None

    def _new_messages(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        if not self.earlier_ids:
            return messages[self.earlier_count :]
        added: list[BaseMessage] = []
        for message in reversed(messages):
            if message.id in self.earlier_ids:
                break
            added.append(message)
        return added[::-1]


def _texts(messages: list[BaseMessage]) -> list[str]:
    from langchain_core.messages import AIMessage

    texts = [str(message.text) for message in messages if isinstance(message, AIMessage)]
    return [text for text in texts if text.strip()]
