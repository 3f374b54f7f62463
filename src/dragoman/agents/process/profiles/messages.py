"""Profiles of Claude Code and the programs that share its line format: messages with blocks, and a result."""

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
    messages_in,
    object_in,
    objects_in,
    text_in,
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
# At most this many refused tool calls are reported.
_REFUSALS = 10


class MessageReader(ObjectReader):
    """Parses the JSON lines of Claude Code.

    `assistant` lines carry the blocks of a message: text, thoughts and tool calls. The `result` line repeats the last
    text, which is the answer, or reports the error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._error_kind = ""

    def read(self, kind: str, record: JsonObject) -> list[Event]:
        self.draft.set_conversation(record.get("session_id"))
        if kind == "assistant":
            return self.message(record)
        return self.result(record) if kind == "result" else []

    def message(self, record: JsonObject) -> list[Event]:
        """Return the events of a message."""
        self._error_kind = text_in(record, "error")
        message = object_in(record, "message")
        # The text of a subagent is never the answer.
        is_inner = bool(text_in(record, "parent_tool_use_id"))
        whole = text_in(message, "content")
        blocks = [{"type": "text", "text": whole}] if whole else objects_in(message, "content")
        return [event for block in blocks for event in self._block(block, is_inner=is_inner)]

    def _block(self, block: JsonObject, *, is_inner: bool) -> list[Event]:
        kind = text_in(block, "type")
        if kind == "text":
            return self.add_text(text_in(block, "text"), is_inner=is_inner)
        if kind == "thinking":
            thought = text_in(block, "thinking")
            return [events.thinking(thought)] if thought else []
        if kind in _CALLS:
            call = events.tool_status(call_line(text_in(block, "name"), block.get("input")))
            return [*self.draft.set_aside(), call]
        return []

    def add_text(self, text: str, *, is_inner: bool) -> list[Event]:
        """Return the events of a text block."""
        if not text:
            return []
        if is_inner:
            return [events.thinking(text)]
        aside = self.draft.set_aside()
        self.draft.add(text)
        return aside

    def result(self, record: JsonObject) -> list[Event]:
        """Return the events of the `result` line."""
        subtype = text_in(record, "subtype")
        if record.get("is_error") is True or subtype.startswith("error"):
            kind = self._error_kind or ("" if subtype == "success" else subtype)
            return self.draft.fail(self._problem(record, subtype), kind)
        refused = [
            events.tool_status(call_line(text_in(one, "tool_name"), one.get("tool_input"), "Refused"))
            for one in objects_in(record, "permission_denials")[:_REFUSALS]
        ]
        structured = record.get("structured_output")
        return [*refused, *self.draft.finish(self.answer(record) if structured is None else structured)]

    def answer(self, record: JsonObject) -> str:
        """Return the text of the answer."""
        return text_in(record, "result") or self.draft.text

    def _problem(self, record: JsonObject, subtype: str) -> str:
        text = "; ".join(messages_in(record, "errors")) or message_in(record, "error") or text_in(record, "result")
        return text or _REASONS.get(subtype, self.draft.text)


# Claude Code: `claude -p` answers a prompt from standard input and exits. With `--output-format stream-json` (1.0 and
# later, which require `--verbose` with it) it writes a JSON object per line: `system` lines about the session,
# `assistant` and `user` lines with the messages of the conversation, and one `result` at the end with `subtype`,
# `is_error`, `result` and `session_id`. With `--json-schema` (in the course of 2.0) the answer is in
# `structured_output`. Partial messages (`stream_event`, only with `--include-partial-messages`) are ignored, because it
# is not known yet whether they belong to the answer. `--resume` finds a conversation in the folder it was started in.
CLAUDE = Profile(
    name="claude",
    title="Claude Code",
    command=("claude", "-p", "--output-format", "stream-json", "--verbose"),
    resume=("--resume", "{session}"),
    env=(
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
        *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
    ),
    reader=MessageReader,
)


# Amp: `amp --execute` answers a prompt from standard input and exits. With `--stream-json` (since September 2025) it
# writes the lines of Claude Code: a `system` line, messages, and a `result` whose `error` is text if it failed. The
# subcommand `threads continue` resumes a thread, whose id is T-….
AMP = Profile(
    name="amp",
    title="Amp",
    command=("amp", "--execute", "--stream-json"),
    resume=("threads", "continue", "{session}"),
    place="program",
    env=("AMP_API_KEY", "AMP_URL"),
    reader=MessageReader,
)


_API_ERROR = re.compile(r"\s*\[API Error: (.*)\]\s*", re.DOTALL)


class QwenReader(MessageReader):
    """Parses the JSON lines of Qwen Code."""

    def result(self, record: JsonObject) -> list[Event]:
        """Report a refused call of the model's API as a failure."""
        refused = _API_ERROR.fullmatch(text_in(record, "result"))
        if refused is not None and record.get("is_error") is not True:
            return self.draft.fail(refused[1], "api_error")
        return super().result(record)


# Qwen Code: `qwen` answers a prompt from standard input if that is no terminal. With `--output-format stream-json`
# (since the end of 2025) it writes the lines of Claude Code: `system`, messages, and a `result` with an `error` if it
# failed. Releases up to 0.21 report a refused call of the model's API as a success whose whole text is `[API Error:
# …]`; here that is a failure. `--resume` finds a conversation in the folder it was started in.
QWEN = Profile(
    name="qwen",
    title="Qwen Code",
    command=("qwen", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=("DASHSCOPE_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    reader=QwenReader,
)


class CursorReader(MessageReader):
    """Parses the JSON lines of Cursor's agent."""

    def read(self, kind: str, record: JsonObject) -> list[Event]:
        if kind == "tool_call":
            return self._call(record) if text_in(record, "subtype") == "started" else []
        return super().read(kind, record)

    def add_text(self, text: str, *, is_inner: bool) -> list[Event]:
        """Append the text: messages without a tool call between them are chunks of one."""
        self.draft.add(text)
        return []

    def answer(self, record: JsonObject) -> str:
        """Return the last message: the `result` line holds the text of all messages."""
        everything, last = text_in(record, "result"), self.draft.text
        return last if last.strip() and everything.endswith(last) else everything or last

    def _call(self, record: JsonObject) -> list[Event]:
        calls = object_in(record, "tool_call")
        key = next((name for name in calls if name.endswith("ToolCall")), "function")
        call = object_in(calls, key)
        name = text_in(call, "name") if key == "function" else key.removesuffix("ToolCall").capitalize()
        arguments = call.get("arguments") if key == "function" else call.get("args")
        return [*self.draft.set_aside(), events.tool_status(call_line(name, arguments))]


# Cursor's command-line agent: `cursor-agent -p` (newer releases are also called `agent`) answers a prompt from standard
# input and exits. With `--output-format stream-json` (the betas of autumn 2025 and later) it writes `system`, `user`
# and `assistant` lines, `tool_call` lines with the subtypes `started` and `completed`, whose call is under a key such
# as `readToolCall`, and at the end a `result`. That result is the concatenated text of all messages, so the last
# message is extracted from it. A run that fails exits with a code and plain text instead of a line. `--resume`
# continues a chat.
CURSOR = Profile(
    name="cursor",
    title="Cursor",
    command=("cursor-agent", "-p", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=("CURSOR_API_KEY", "CURSOR_CONFIG_DIR"),
    reader=CursorReader,
)
