"""Messages of a graph: parsing, serialization, and which of them are the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from dragoman.agents.text import PARAGRAPH_BREAK

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage


def plain(value: Any) -> Any:
    """Convert any value to JSON values.

    Values without a JSON form become their `str`, since they may be one field of many in a graph's state.
    """
    from pydantic_core import to_json

    return json.loads(to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str))


MESSAGES = "messages"


def messages_of(value: Any) -> list[BaseMessage]:
    """Parse one message or several, each an object, a dict, a pair of role and text, or text.

    Raises:
        ValueError: a message has another form.
    """
    from langchain_core.messages import BaseMessage, convert_to_messages

    is_pair = isinstance(value, tuple) and isinstance(cast("tuple[Any, ...]", value)[0], str)
    is_one = is_pair or isinstance(value, str | dict | BaseMessage)
    try:
        return convert_to_messages(cast("Any", [value] if is_one else value))
    except (NotImplementedError, TypeError, KeyError) as error:
        raise ValueError("these are no messages") from error


def messages_in(state: Any) -> list[BaseMessage]:
    """Return the messages in the state of a graph; none if that key holds something else."""
    messages = cast("dict[str, Any]", state).get(MESSAGES) if isinstance(state, dict) else None
    try:
        return [] if messages is None else messages_of(messages)
    except ValueError:
        return []


def canceled_calls(messages: Iterable[BaseMessage]) -> list[ToolMessage]:
    """Return a tool message for each call without a response: models reject a history with an open call."""
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
    """Return the messages as JSON by turns; each turn begins with a message of the caller."""
    from langchain_core.messages import messages_to_dict

    turns: list[list[Any]] = []
    for message in messages:
        if message.type == "human" or not turns:
            turns.append([])
        message_json = plain(messages_to_dict([message])[0])
        # A tool's artifact may be any object, and is not sent to models.
        message_json["data"].pop("artifact", None)
        turns[-1].append(message_json)
    return turns


# Number of earlier message ids that are stored: graphs that trim a conversation keep its end.
_TRACKED_IDS = 20


class GraphAnswer(Struct):
    """Determines which messages of a graph's state answer the task. It is stored as JSON and survives a pause.

    A graph may remove what its models have written, rephrase it, or never put it into its state. Such text is not part
    of the answer, although it was streamed.
    """

    has_started: bool = field(default=False, name="begun")
    earlier_ids: list[str] = field(default_factory=list[str], name="known")
    earlier_count: int = field(default=0, name="count")
    has_text: bool = field(default=False, name="spoke")

    def observe(self, state: Any) -> None:
        """Process a state of the graph; the first one is the input."""
        messages = messages_in(state)
        if self.has_started:
            self.has_text = self.has_text or bool(_texts(self._new_messages(messages)))
            return
        self.has_started, self.earlier_count = True, len(messages)
        self.earlier_ids = [message.id for message in messages[-_TRACKED_IDS:] if message.id]

    def text(self, state: Any) -> str | None:
        """Return the answer in the final state; None if the graph never had a text there."""
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
