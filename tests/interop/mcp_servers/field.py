"""All servers."""

from __future__ import annotations

from . import everything, excel, fast, filesystem, git_server, memory, shell_server, time_server, word

SERVERS = (
    everything.SERVER,
    everything.OVER_HTTP,
    filesystem.SERVER,
    memory.SERVER,
    time_server.SERVER,
    git_server.SERVER,
    shell_server.SERVER,
    excel.SERVER,
    word.SERVER,
    fast.SERVER,
    fast.OVER_HTTP,
    fast.ASKING,
    fast.ASKING_OVER_HTTP,
)
