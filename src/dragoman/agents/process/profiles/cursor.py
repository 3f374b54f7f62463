"""Cursor's command-line agent.

`cursor-agent -p` (newer releases are called `agent` as well) answers a prompt from standard input and ends. With
`--output-format stream-json` (the betas of autumn 2025 and later) it writes `system`, `user` and `assistant` lines,
`tool_call` lines with the subtypes `started` and `completed`, whose call is under a key such as `readToolCall`, and at
the end a `result`. That result is all the agent said, one text run into the other, so the last message is taken out of
it. A run that fails ends with an exit code and a text outside of the lines. `--resume` goes on with a chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.messages import MessageReader
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import Found, object_in, text_in, told

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event


class CursorReader(MessageReader):
    """Reads these lines."""

    def read(self, kind: str, found: Found) -> list[Event]:
        """See `ObjectReader.read`."""
        if kind == "tool_call":
            return self._call(found) if text_in(found, "subtype") == "started" else []
        return super().read(kind, found)

    def said(self, text: str, *, is_inner: bool) -> list[Event]:
        """Messages without work between them are pieces of one."""
        self.draft.add(text)
        return []

    def answer(self, found: Found) -> str:
        """See `MessageReader.answer`."""
        everything, last = text_in(found, "result"), self.draft.text
        return last if last.strip() and everything.endswith(last) else everything or last

    def _call(self, found: Found) -> list[Event]:
        calls = object_in(found, "tool_call")
        key = next((name for name in calls if name.endswith("ToolCall")), "function")
        call = object_in(calls, key)
        name = text_in(call, "name") if key == "function" else key.removesuffix("ToolCall").capitalize()
        arguments = call.get("arguments") if key == "function" else call.get("args")
        return [*self.draft.set_aside(), events.tool_status(told(name, arguments))]


CURSOR = Profile(
    name="cursor",
    title="Cursor",
    command=("cursor-agent", "-p", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=("CURSOR_API_KEY", "CURSOR_CONFIG_DIR"),
    reader=CursorReader,
)
