"""Recognizes messages of Google's ADK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.dialects.table import EXTENSIONS_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model.message import Message

ADK_EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"
_USER_INPUT, _PREFIX = "is_user_input", "adk_"


def is_from_adk(message: Message, headers: Mapping[str, str]) -> bool:
    """True for a message of ADK's client, which takes the update that closes a streamed text for the whole of it.

    It marks the parts of its messages. Only some of its versions request an extension, and none does by default.
    `headers` are those of the request, in lower case.
    """
    for part in message.parts:
        if part.metadata and any(key == _USER_INPUT or key.startswith(_PREFIX) for key in part.metadata):
            return True
    for name in EXTENSIONS_HEADERS:
        requested = headers.get(name)
        if requested and ADK_EXTENSION in (uri.strip() for uri in requested.split(",")):
            return True
    return False
