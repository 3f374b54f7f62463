"""Claude Code.

`claude -p` answers a prompt from standard input and ends. With `--output-format stream-json` (releases from 1.0 on,
which want `--verbose` with it) it writes a JSON object per line: `system` lines about the session, `assistant` and
`user` lines with the messages of the conversation, and one `result` at the end with `subtype`, `is_error`, `result`
and `session_id`. With `--json-schema` (in the course of 2.0) the answer is in `structured_output`. Pieces of messages
(`stream_event`, only with `--include-partial-messages`) are passed over: whether they belong to the answer shows later.

A conversation is found again by `--resume` in the folder it was begun in.
"""

from __future__ import annotations

from dragoman.agents.process.profiles.messages import MessageReader
from dragoman.agents.process.profiles.profile import Profile

CLAUDE = Profile(
    name="claude",
    title="Claude Code",
    command=("claude", "-p", "--output-format", "stream-json", "--verbose"),
    resume=("--resume", "{session}"),
    env=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CONFIG_DIR",
    ),
    reader=MessageReader,
)
