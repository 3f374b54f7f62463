"""Profile of opencode.

`opencode run` answers a prompt from standard input and exits. With `--format json` (1.0 and later) it writes lines with
a `sessionID` and a `part`: `step_start`, `text` for each finished text, `tool_use` for each finished call, `reasoning`
(with `--thinking`), `step_finish` with the reason `tool-calls` or `stop`, and `error`, whose text is in
`error.data.message`. No line marks the end of the work, so the answer is known when the output ends: it is the text
after the last tool. `--session` continues a session; before 1.17 it wrote nothing for some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import JsonObject, ObjectReader, call_line, object_in, text_in

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event


class OpencodeReader(ObjectReader):
    """Parses the JSON lines of opencode."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: set[str] = set()

    def read(self, kind: str, record: JsonObject) -> list[Event]:
        self.draft.set_conversation(record.get("sessionID"))
        part = object_in(record, "part")
        if kind == "text":
            # A part may be written again with more text.
            self.draft.put(text_in(part, "id"), text_in(part, "text"))
        elif kind == "reasoning":
            thought = text_in(part, "text")
            return [events.thinking(thought)] if thought else []
        elif kind == "tool_use":
            return self._tool_call(part)
        elif kind == "error":
            problem = object_in(record, "error")
            name = text_in(problem, "name")
            return self.draft.fail(text_in(object_in(problem, "data"), "message") or text_in(problem, "message"), name)
        elif kind == "step_finish" and text_in(part, "reason") == "tool-calls":
            return self.draft.set_aside()
        return []

    def _tool_call(self, part: JsonObject) -> list[Event]:
        call = text_in(part, "callID", "id")
        if call and call in self._calls:
            return []
        self._calls.add(call)
        state = object_in(part, "state")
        before = "Failed" if text_in(state, "status") == "error" else ""
        return [
            *self.draft.set_aside(),
            events.tool_status(call_line(text_in(part, "tool"), state.get("input"), before)),
        ]


OPENCODE = Profile(
    name="opencode",
    title="opencode",
    command=("opencode", "run", "--format", "json"),
    resume=("--session", "{session}"),
    env=(
        *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY", "OPENROUTER_API_KEY"),
        *("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    ),
    reader=OpencodeReader,
)
