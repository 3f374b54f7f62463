"""One turn of a conversation, what is read from it, and through how many agents it has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dragoman.model.part import Part
from dragoman.model.state import Role, State

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON_TYPE = "application/json"


class ResultContent:
    """Shared reading of results: `.text`, `.data`, `.files` over `.parts`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def parts(self) -> Sequence[Part]:
            """The parts of the answer, in order."""
            ...

    @property
    def text(self) -> str:
        """All text of the answer, joined."""
        parts = self.parts
        if len(parts) == 1:  # as nearly all have
            return parts[0].text or ""
        return "".join([part.text for part in parts if part.text is not None])

    @property
    def data(self) -> Any:
        """The first data part's value, or a value sent as JSON text; None when there is none."""
        for part in self.parts:
            if part.kind == "data":
                return part.data
            if part.text is not None and part.media_type == JSON_TYPE:
                try:
                    return msgspec.json.decode(part.text)
                except msgspec.DecodeError:  # it says that it is JSON, and is not
                    continue
        return None

    @property
    def files(self) -> list[Part]:
        """The parts that are files: bytes or links."""
        return [part for part in self.parts if part.kind in ("raw", "url")]

    @property
    def value(self) -> Any:
        """The answer as one Python value: data, else the bytes of a file, else the text, else None."""
        for part in self.parts:
            if part.kind == "data" or (part.media_type == JSON_TYPE and _is_json(part.text)):
                return self.data
            if part.kind == "raw":
                return part.raw
            if part.kind == "url":
                return part.url
        return self.text if self.parts else None


def _is_json(text: str | None) -> bool:
    try:
        msgspec.json.decode(text or "")
    except msgspec.DecodeError:
        return False
    return True


class Message(ResultContent, Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message from a user to an agent or back. As an answer it stands for a finished exchange."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]  # pyright: ignore[reportIncompatibleMethodOverride] - a field reads like the property
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """Always completed: a bare message is a whole answer."""
        return State.COMPLETED

    @property
    def question(self) -> None:
        """None: a bare message asks nothing that could be answered within a task."""

    @property
    def error(self) -> None:
        """None: a failed exchange is a task."""

    def raise_for_state(self) -> None:
        """Does nothing; it is here so that a Task and a Message are read alike."""


DEPTH_KEY = "dragoman/depth"
"""The key in the metadata of a message or a request."""

DEPTH_VARIABLE = "DRAGOMAN_DEPTH"
"""What a program that runs as an agent is told: the depth of what it sends itself."""


# More than this is as deep as this.
_DEEPEST = 10**18


def depth_of(*metadata: Mapping[str, Any] | None) -> int:
    """The largest depth that a message or its request says it has; 0 when nothing is said that could be one."""
    return max((_depth(each.get(DEPTH_KEY)) for each in metadata if each), default=0)


def _depth(value: Any) -> int:
    if isinstance(value, str):
        return _digits(value.strip()) or 0
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        return 0
    # Some callers' JSON has no whole numbers, only 4.0.
    return math.ceil(min(value, _DEEPEST))


def _digits(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal():
        return None
    digits = text.lstrip("0")
    return _DEEPEST if len(digits) > len(str(_DEEPEST)) else min(int(digits or "0"), _DEEPEST)


def depth_from_environ(environ: Mapping[str, str]) -> int | None:
    """The depth of what a program sends that runs as an agent; None when it does not."""
    return _digits(environ.get(DEPTH_VARIABLE, ""))


def with_depth(metadata: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The metadata of a message; from a program that is an agent itself, with the depth it was told."""
    result = dict(metadata) if metadata else {}
    depth = depth_from_environ(environ)
    if depth is not None and DEPTH_KEY not in result:
        result[DEPTH_KEY] = depth
    return result or None
