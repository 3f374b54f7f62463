"""Profile of Codex.

`codex exec -` answers a prompt from standard input and exits. With `--json` (in this form since October 2025, about
0.44) it writes `thread.started` with the thread's id, `turn.started`, then `item.started`, `item.updated` and
`item.completed` for everything that happens, and `turn.completed` or `turn.failed`. The last `agent_message` before
`turn.completed` is the answer; with `--output-schema` it is JSON as text. An `error` line may be one of several
attempts to reach the model: only the end of the turn shows whether it was fatal.

`exec resume` continues a thread; options of `exec` precede it. A session folder is no Git repository, so
`--skip-git-repo-check` is needed. What the program may do is decided by its sandbox: read-only by default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.agents.process import events
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import (
    JsonObject,
    ObjectReader,
    call_line,
    message_in,
    object_in,
    objects_in,
    one_line,
    text_in,
)

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

# Commands are wrapped in a shell, which is not worth showing.
_SHELL = re.compile(r"""(?:\S*/)?(?:ba|z)?sh -l?c (['"])(.*)\1""", re.DOTALL)


class CodexReader(ObjectReader):
    """Parses the JSON lines of Codex."""

    def __init__(self) -> None:
        super().__init__()
        self._last_status: dict[str, str] = {}

    def read(self, kind: str, record: JsonObject) -> list[Event]:
        if kind == "thread.started":
            self.draft.set_conversation(record.get("thread_id"))
        elif kind in ("item.started", "item.updated", "item.completed"):
            return self._item(object_in(record, "item"), is_done=kind == "item.completed")
        elif kind == "turn.completed":
            return self.draft.finish(self.draft.text)
        elif kind == "turn.failed":
            return self.draft.fail(message_in(record, "error"), kind)
        elif kind == "error":
            self.draft.note_problem(text_in(record, "message"))
            status = one_line(self.draft.problem)
            return [events.tool_status(status)] if status else []
        return []

    def _item(self, item: JsonObject, *, is_done: bool) -> list[Event]:
        kind = text_in(item, "type", "item_type")
        text = text_in(item, "text")
        if kind in ("agent_message", "assistant_message", "plan"):
            if not is_done or not text:
                return []
            aside = self.draft.set_aside()
            self.draft.add(text)
            return aside
        if kind == "reasoning":
            return [events.thinking(text)] if is_done and text else []
        # The todo list is repeated at the end of the turn, so it does not mean that work follows a message.
        aside = [] if kind in ("todo_list", "error") else self.draft.set_aside()
        status = _status_line(kind, item)
        name = text_in(item, "id")
        if not status or self._last_status.get(name) == status:
            return aside
        self._last_status[name] = status
        return [*aside, events.tool_status(status)]


def _status_line(kind: str, item: JsonObject) -> str:
    """Describe an item in one line; empty if there is nothing to report."""
    if kind == "command_execution":
        command = text_in(item, "command")
        inner = _SHELL.fullmatch(command)
        before = "Refused" if text_in(item, "status") == "declined" else ""
        return call_line("Command", inner[2] if inner else command, before)
    if kind == "file_change":
        return call_line("Edit", ", ".join(text_in(change, "path") for change in objects_in(item, "changes")))
    if kind == "mcp_tool_call":
        tool = ".".join(filter(None, (text_in(item, "server"), text_in(item, "tool"))))
        return call_line(tool, item.get("arguments"))
    if kind == "web_search":
        return call_line("Web search", text_in(item, "query"))
    if kind == "collab_tool_call":
        return call_line(text_in(item, "tool"), text_in(item, "prompt"))
    if kind == "todo_list":
        todo = objects_in(item, "items")
        rest = [text_in(one, "text") for one in todo if one.get("completed") is not True]
        return call_line(
            "Plan", f"{len(todo) - len(rest)} of {len(todo)} done" + (f", next: {rest[0]}" if rest else "")
        )
    return one_line(text_in(item, "message")) if kind == "error" else ""


CODEX = Profile(
    name="codex",
    title="Codex",
    command=("codex", "exec", "--json", "--skip-git-repo-check", "-"),
    resume=("resume", "{session}"),
    place="prompt",
    env=("CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    reader=CodexReader,
)
