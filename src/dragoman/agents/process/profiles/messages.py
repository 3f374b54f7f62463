"""The lines Claude Code writes, which other programs have taken over: messages with blocks, and a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.reading import (
    Found,
    ObjectReader,
    message_in,
    messages_in,
    object_in,
    objects_in,
    text_in,
    told,
)

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

_REASONS = {
    "error_max_turns": "the program has used up the turns it may take",
    "error_max_budget_usd": "the program has used up what it may cost",
    "error_max_structured_output_retries": "the program found no answer of the form that was asked for",
    "error_during_execution": "the program failed at its work",
}
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# Of many refusals the first ones tell enough.
_REFUSALS = 10


class MessageReader(ObjectReader):
    """Reads such lines.

    `assistant` lines carry blocks of a message: text, thoughts and calls of tools. The `result` line repeats the last
    text, or says what went wrong; it is the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._trouble = ""

    def read(self, kind: str, found: Found) -> list[Event]:
        """See `ObjectReader.read`."""
        self.draft.belongs_to(found.get("session_id"))
        if kind == "assistant":
            return self.message(found)
        return self.result(found) if kind == "result" else []

    def message(self, found: Found) -> list[Event]:
        """The events of a message."""
        self._trouble = text_in(found, "error")
        message = object_in(found, "message")
        # What a helper of the agent says is never the answer.
        is_inner = bool(text_in(found, "parent_tool_use_id"))
        whole = text_in(message, "content")
        blocks = [{"type": "text", "text": whole}] if whole else objects_in(message, "content")
        return [event for block in blocks for event in self._block(block, is_inner=is_inner)]

    def _block(self, block: Found, *, is_inner: bool) -> list[Event]:
        kind = text_in(block, "type")
        if kind == "text":
            return self.said(text_in(block, "text"), is_inner=is_inner)
        if kind == "thinking":
            thought = text_in(block, "thinking")
            return [events.thinking(thought)] if thought else []
        if kind in _CALLS:
            call = events.tool_status(told(text_in(block, "name"), block.get("input")))
            return [*self.draft.set_aside(), call]
        return []

    def said(self, text: str, *, is_inner: bool) -> list[Event]:
        """The events of a text of the agent."""
        if not text:
            return []
        if is_inner:
            return [events.thinking(text)]
        aside = self.draft.set_aside()
        self.draft.add(text)
        return aside

    def result(self, found: Found) -> list[Event]:
        """The events of the last line."""
        subtype = text_in(found, "subtype")
        if found.get("is_error") is True or subtype.startswith("error"):
            kind = self._trouble or ("" if subtype == "success" else subtype)
            return self.draft.fail(self._problem(found, subtype), kind)
        refused = [
            events.tool_status(told(text_in(one, "tool_name"), one.get("tool_input"), "Refused"))
            for one in objects_in(found, "permission_denials")[:_REFUSALS]
        ]
        structured = found.get("structured_output")
        return [*refused, *self.draft.finish(self.answer(found) if structured is None else structured)]

    def answer(self, found: Found) -> str:
        """The text of the answer."""
        return text_in(found, "result") or self.draft.text

    def _problem(self, found: Found, subtype: str) -> str:
        said = "; ".join(messages_in(found, "errors")) or message_in(found, "error") or text_in(found, "result")
        return said or _REASONS.get(subtype, self.draft.text)
