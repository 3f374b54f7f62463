"""Qwen Code.

`qwen` answers a prompt from standard input where that is no terminal. With `--output-format stream-json` (since the
end of 2025) it writes the lines of Claude Code: `system`, messages, and a `result` with an `error` when it failed.
Releases up to 0.21 report a refused call of the model's API as a success whose whole text is `[API Error: …]`; here
that is a failure. `--resume` finds a conversation in the folder it was begun in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.agents.process.profiles.messages import MessageReader
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.profiles.reading import Found, text_in

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

_API_ERROR = re.compile(r"\s*\[API Error: (.*)\]\s*", re.DOTALL)


class QwenReader(MessageReader):
    """Reads these lines."""

    def result(self, found: Found) -> list[Event]:
        """See `MessageReader.result`."""
        refused = _API_ERROR.fullmatch(text_in(found, "result"))
        if refused is not None and found.get("is_error") is not True:
            return self.draft.fail(refused[1], "api_error")
        return super().result(found)


QWEN = Profile(
    name="qwen",
    title="Qwen Code",
    command=("qwen", "--output-format", "stream-json"),
    resume=("--resume", "{session}"),
    env=("DASHSCOPE_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    reader=QwenReader,
)
