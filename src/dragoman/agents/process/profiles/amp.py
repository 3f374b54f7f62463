"""Amp.

`amp --execute` answers a prompt from standard input and ends. With `--stream-json` (since September 2025) it writes
the lines of Claude Code: a `system` line, messages, and a `result` whose `error` is a text when it failed. A thread,
called T-…, goes on with the subcommand `threads continue`.
"""

from __future__ import annotations

from dragoman.agents.process.profiles.messages import MessageReader
from dragoman.agents.process.profiles.profile import Profile

AMP = Profile(
    name="amp",
    title="Amp",
    command=("amp", "--execute", "--stream-json"),
    resume=("threads", "continue", "{session}"),
    place="program",
    env=("AMP_API_KEY", "AMP_URL"),
    reader=MessageReader,
)
