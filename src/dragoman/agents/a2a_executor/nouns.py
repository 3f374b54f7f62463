"""In whose types an executor is spoken to."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.agents.a2a_executor.plain_nouns import PlainNouns
from dragoman.agents.a2a_executor.proto_nouns import ProtoNouns
from dragoman.agents.a2a_executor.pydantic_nouns import PydanticNouns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.agents.a2a_executor.situation import Situation


class Nouns(Protocol):
    """The request context and the event queue of one version of a2a-sdk."""

    def context(self, situation: Situation) -> Any:
        """The request context of this situation."""
        ...

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> Any:
        """An event queue that hands over every event at once."""
        ...

    def public_text(self, error: BaseException) -> str | None:
        """What callers may read of an exception; None when it was not meant for them."""
        ...


def installed_nouns() -> Nouns:
    """Those of the a2a-sdk that is installed; plain ones where none is."""
    try:
        import_module("a2a.server.agent_execution")
        import_module("a2a.server.events")
        types: Any = import_module("a2a.types")
    except ImportError:
        return PlainNouns()
    if hasattr(types, "SendMessageRequest") and hasattr(types.Message, "DESCRIPTOR"):
        return ProtoNouns()
    return PydanticNouns() if hasattr(types, "MessageSendParams") else PlainNouns()
