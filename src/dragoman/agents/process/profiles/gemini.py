"""Profile of Gemini CLI.

`gemini` answers a prompt from standard input if that is no terminal. With `--output-format stream-json` (since the end
of 2025, about 0.11) it writes an `init` line with the session, `message` lines with chunks of the user's and the
assistant's text, `tool_use` and `tool_result`, `error` lines of severity `warning` or `error`, and at the end a
`result` with a `status`. The answer is the text after the last tool. If the model cannot be reached at all, there is no
`result`: the program reports the cause on standard error and exits with a code.

`--resume` finds a session by its id in the folder it was started in, and takes a prompt from standard input (0.19 and
later). Newer releases refuse to work in an untrusted folder: GEMINI_CLI_TRUST_WORKSPACE=true, which is passed on, or
`--skip-trust` allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import (
    JsonObject,
    ObjectReader,
    call_line,
    message_in,
    object_in,
    one_line,
    text_in,
)

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event


class GeminiReader(ObjectReader):
    """Parses the JSON lines of Gemini CLI."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, str] = {}

    def read(self, kind: str, record: JsonObject) -> list[Event]:
        if kind == "init":
            self.draft.set_conversation(record.get("session_id"))
        elif kind == "message":
            content = record.get("content")
            if record.get("role") == "assistant" and isinstance(content, str):
                self.draft.add(content)
        elif kind == "tool_use":
            return self._tool_call(record)
        elif kind == "tool_result":
            return self._tool_result(record)
        elif kind == "error":
            return self._error(record)
        elif kind == "result":
            return self._result(record)
        return []

    def _tool_call(self, record: JsonObject) -> list[Event]:
        name = text_in(record, "tool_name")
        self._calls[text_in(record, "tool_id")] = name
        return [*self.draft.set_aside(), events.tool_status(call_line(name, record.get("parameters")))]

    def _tool_result(self, record: JsonObject) -> list[Event]:
        name = self._calls.pop(text_in(record, "tool_id"), "")
        if text_in(record, "status") != "error":
            return []
        return [events.tool_status(call_line(name, message_in(record, "error") or text_in(record, "output"), "Failed"))]

    def _error(self, record: JsonObject) -> list[Event]:
        message = text_in(record, "message")
        if text_in(record, "severity") == "error":
            self.draft.note_problem(message)
            return []
        status = one_line(message)
        return [events.tool_status(status)] if status else []

    def _result(self, record: JsonObject) -> list[Event]:
        # An error of that severity is fatal even if the status reports success.
        if text_in(record, "status") == "error" or self.draft.problem:
            return self.draft.fail(message_in(record, "error"), text_in(object_in(record, "error"), "type"))
        return self.draft.finish(self.draft.text)


GEMINI = Profile(
    name="gemini",
    title="Gemini CLI",
    command=("gemini", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=(
        *("GEMINI_API_KEY", "GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_MODEL", "GOOGLE_API_KEY"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
        *("GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"),
    ),
    reader=GeminiReader,
)
