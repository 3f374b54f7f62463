"""How a call of a remote agent went."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.json import decode_any, encode


class RemoteInvocationResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The outcome of `invoke_remote_agent`.

    Attributes are in snake_case. As JSON, and in `to_map()`, the names are the source document's: `success`,
    `taskId`, and of `responseText` and `error` the one that is there. `task_id` is empty when nothing was submitted.
    """

    success: bool
    task_id: str
    response_text: str | None = None
    error: str | None = None

    def to_map(self) -> dict[str, Any]:
        """The result as JSON values."""
        return decode_any(encode(self))
