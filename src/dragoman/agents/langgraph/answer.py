"""What a task has added to the messages of a graph: its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dragoman.agents.langgraph.messages import messages_in
from dragoman.agents.paragraphs import APART

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

# How many of the messages before are known by their ids: graphs that shorten a conversation keep its end.
_KNOWN = 20


class GraphAnswer(Struct):
    """Knows what was said before the task, and so what is its answer. It is JSON, and outlasts a pause.

    A graph may take back what its models have said, say it in other words, or never put it into its state. Then it is
    no part of the answer, although it was streamed.
    """

    begun: bool = False
    known: list[str] = []
    count: int = 0
    spoke: bool = False

    def see(self, state: Any) -> None:
        """Take a state of the graph: the first is what it begins with."""
        messages = messages_in(state)
        if self.begun:
            self.spoke = self.spoke or bool(_texts(self._added(messages)))
            return
        self.begun, self.count = True, len(messages)
        self.known = [message.id for message in messages[-_KNOWN:] if message.id]

    def text(self, state: Any) -> str | None:
        """The answer in the last state; None when the graph has never said anything there."""
        texts = _texts(self._added(messages_in(state)))
        return APART.join(texts) if texts or self.spoke else None

    def _added(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        if not self.known:
            return messages[self.count :]
        added: list[BaseMessage] = []
        for message in reversed(messages):
            if message.id in self.known:
                break
            added.append(message)
        return added[::-1]


def _texts(messages: list[BaseMessage]) -> list[str]:
    from langchain_core.messages import AIMessage

    found = [str(message.text) for message in messages if isinstance(message, AIMessage)]
    return [text for text in found if text.strip()]
