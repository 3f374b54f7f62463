"""Gemini CLI.

`gemini` answers a prompt from standard input where that is no terminal. With `--output-format stream-json` (since the
end of 2025, 0.11 or so) it writes an `init` line with the session, `message` lines with pieces of what the user and the
assistant say, `tool_use` and `tool_result`, `error` lines of severity `warning` or `error`, and at the end a `result`
with a `status`. The answer is what was said after the last tool. When the model cannot be reached at all there is no
`result`: the program says why on standard error, and ends with a code.

`--resume` finds a session by its id in the folder it was begun in, and takes a prompt from standard input (0.19 and
later). Newer releases refuse to work in a folder that is not trusted: GEMINI_CLI_TRUST_WORKSPACE=true, which is passed
on, or `--skip-trust` allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import Found, ObjectReader, in_line, message_in, object_in, text_in, told

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event


class GeminiReader(ObjectReader):
    """Reads these lines."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, str] = {}

    def read(self, kind: str, found: Found) -> list[Event]:
        """See `ObjectReader.read`."""
        if kind == "init":
            self.draft.belongs_to(found.get("session_id"))
        elif kind == "message":
            content = found.get("content")
            if found.get("role") == "assistant" and isinstance(content, str):
                self.draft.add(content)
        elif kind == "tool_use":
            return self._called(found)
        elif kind == "tool_result":
            return self._returned(found)
        elif kind == "error":
            return self._complained(found)
        elif kind == "result":
            return self._ended(found)
        return []

    def _called(self, found: Found) -> list[Event]:
        name = text_in(found, "tool_name")
        self._calls[text_in(found, "tool_id")] = name
        return [*self.draft.set_aside(), events.tool_status(told(name, found.get("parameters")))]

    def _returned(self, found: Found) -> list[Event]:
        name = self._calls.pop(text_in(found, "tool_id"), "")
        if text_in(found, "status") != "error":
            return []
        return [events.tool_status(told(name, message_in(found, "error") or text_in(found, "output"), "Failed"))]

    def _complained(self, found: Found) -> list[Event]:
        message = text_in(found, "message")
        if text_in(found, "severity") == "error":
            self.draft.complain(message)
            return []
        said = in_line(message)
        return [events.tool_status(said)] if said else []

    def _ended(self, found: Found) -> list[Event]:
        # A complaint of that severity is the end of the work even where the status is said to be a success.
        if text_in(found, "status") == "error" or self.draft.problem:
            return self.draft.fail(message_in(found, "error"), text_in(object_in(found, "error"), "type"))
        return self.draft.finish(self.draft.text)


GEMINI = Profile(
    name="gemini",
    title="Gemini CLI",
    command=("gemini", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=(
        *("GEMINI_API_KEY", "GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_MODEL", "GOOGLE_API_KEY"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
        "GOOGLE_GENAI_USE_VERTEXAI",
    ),
    reader=GeminiReader,
)
