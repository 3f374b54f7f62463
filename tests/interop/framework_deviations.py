"""Where a framework does something else than the others: what it does, as a check, and who is at fault.

`PEER`: it breaks the protocol, or loses what it was given. `ABSENT`: it has no such thing, which the protocol allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from interop_table import ABSENT, PEER

ServerCheck = Callable[[str], Awaitable[None]]
"""Is given the URL of the framework's server."""
ClientCheck = Callable[[dict[str, Any]], None]
"""Is given the line that the framework's client reported."""

IN_SERVERS: dict[tuple[str, str], tuple[str, str, ServerCheck]] = {}
"""By framework and operation."""

IN_CLIENTS: dict[tuple[str, str], tuple[str, str, ClientCheck]] = {}

__all__ = ["ABSENT", "IN_CLIENTS", "IN_SERVERS", "PEER"]
