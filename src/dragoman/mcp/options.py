"""How the MCP server is set up."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dragoman.client.received import DEFAULT_LIMIT
from dragoman.server.remotes import Remote

# Hosts kill calls that take about a minute.
WAIT_SECONDS = 45.0
# A remote that has said nothing for so long is not going to.
ANSWER_SECONDS = 60.0
# How long `send_streaming_message` waits for the remote's own id.
ID_SECONDS = 0.5


class McpOptions(Struct, frozen=True, kw_only=True):
    """What may be reached, and how long a tool waits. `remotes` are agents by name, `tokens` their credentials.

    One task of an agent may bring `remote_bytes`, None for any number.
    """

    remotes: Mapping[str, Remote] = {}
    tokens: Mapping[str, str] = {}
    allow: tuple[str, ...] = ()
    wait_seconds: float = WAIT_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    id_seconds: float = ID_SECONDS
    store: str | None = None
    simple_tools: bool = False
    verify: bool = True
    remote_bytes: int | None = DEFAULT_LIMIT
