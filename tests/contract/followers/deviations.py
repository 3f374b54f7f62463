"""What followers cannot do or do otherwise, and why."""

from __future__ import annotations

from typing import NamedTuple


class Lacks(NamedTuple):
    """Which followers lack something, and why."""

    followers: tuple[str, ...]
    reason: str


LACKS = {
    "json-rpc": Lacks(("client 1.0 rest", "client 0.3 rest"), "the server that is not like ours speaks JSON-RPC"),
    "streamed message": Lacks(("subscription", "mcp"), "it sends without a stream, and only a stream is cut"),
    "a second subscription": Lacks(
        ("client 0.3 rpc", "client 0.3 rest", "front 0.3"),
        "servers on a2a-sdk 0.3 store every event once per stream, so they are read instead",
    ),
    "end of a canceled task": Lacks((), "a run of ADK that is canceled tells nobody its end"),
    "leaving": Lacks(
        ("blocking client", "front", "front 1.1", "front 0.3", "adk", "mcp"),
        "a thread is not interrupted, a front and a host go on by themselves, and a turn of ADK cancels its task",
    ),
}
