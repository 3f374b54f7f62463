"""Messages, the accessors they share with tasks, and the depth of agent-to-agent calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec import UNSET, Struct, structs

from dragoman.model.part import Part
from dragoman.model.state import Role, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

JSON_TYPE = "application/json"

PROGRESS_KEY = "dragoman/progress"
"""Metadata key of an agent's message: it is progress, `true` or an object with `done` and `total`."""

ANSWER_KEY = "dragoman/answer"
"""Metadata key of an agent's question: the JSON Schema of the answer, where it is not just text."""


class Progress(NamedTuple):
    """How far an agent is: a text, and where it says so, how much is `done` of how much in `total`."""

    text: str
    done: float | None = None
    total: float | None = None


ERROR_KEY = "dragoman/error"
"""Metadata key of the message with the reason of a failed task: the protocol error that failed it, as an object."""


def text_only(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """Return parts with JSON text for data, which our own client reads back as data; None when there is no data."""
    if all(part.kind != "data" for part in parts):
        return None
    return tuple(
        structs.replace(part, data=UNSET, text=msgspec.json.encode(part.data).decode(), media_type=JSON_TYPE)
        if part.kind == "data"
        else part
        for part in parts
    )


class ResultContent:
    """Mixin with the accessors of a result: `.text`, `.data`, `.files` and `.value`, computed from `.parts`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def parts(self) -> Sequence[Part]:
            """The parts, in order."""
            ...

    @property
    def text(self) -> str:
        """The text parts, joined with a blank line between them."""
        parts = self.parts
        if len(parts) == 1:  # the common case
            return parts[0].text or ""
        return join_paragraphs([part.text for part in parts if part.text is not None])

    @property
    def data(self) -> Any:
        """The value of the first data part or of the first text part with the media type JSON; None without either."""
        for part in self.parts:
            if part.kind == "data":
                return part.data
            if part.text is not None and part.media_type == JSON_TYPE:
                try:
                    return msgspec.json.decode(part.text)
                except msgspec.DecodeError:  # the media type is wrong
                    continue
        return None

    @property
    def files(self) -> list[Part]:
        """The parts that are files: bytes or URLs."""
        return [part for part in self.parts if part.kind in ("raw", "url")]

    @property
    def value(self) -> Any:
        """The content as one Python value: the first part that is data, bytes or a URL, else the text.

        None when there are no parts. Text with the media type JSON counts as data.
        """
        for part in self.parts:
            if part.kind == "data" or (part.media_type == JSON_TYPE and _is_json(part.text)):
                return self.data
            if part.kind == "raw":
                return part.raw
            if part.kind == "url":
                return part.url
        return self.text if self.parts else None


def join_paragraphs(texts: Iterable[str]) -> str:
    """Join texts with a blank line between them. Empty texts are left out, and line breaks at their ends count."""
    pieces: list[str] = []
    for text in texts:
        if not text:
            continue
        if pieces:
            before = pieces[-1]
            breaks = len(before) - len(before.rstrip("\n")) + len(text) - len(text.lstrip("\n"))
            pieces.append("\n" * (2 - breaks))
        pieces.append(text)
    return "".join(pieces)


def _is_json(text: str | None) -> bool:
    try:
        msgspec.json.decode(text or "")
    except msgspec.DecodeError:
        return False
    return True


class Message(ResultContent, Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message between user and agent. As the response to a request it is a complete result without a task."""

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
        """Always COMPLETED: a bare message is a complete result."""
        return State.COMPLETED

    @property
    def is_progress(self) -> bool:
        """Whether the agent marked it as progress: it tells how far the work is, and is never part of the answer."""
        return self.metadata is not None and self.role is Role.AGENT and bool(self.metadata.get(PROGRESS_KEY))

    @property
    def question(self) -> None:
        """Always None: there is no task in which a question could be answered."""

    @property
    def error(self) -> None:
        """Always None: only tasks fail."""

    def raise_for_state(self) -> None:
        """Do nothing; it exists so that callers can treat a Task and a Message alike."""


def progress_of(message: Message) -> Progress:
    """Return a message as progress, with the numbers that the agent marked it with."""
    mark: Any = (message.metadata or {}).get(PROGRESS_KEY)
    numbers = cast("dict[str, Any]", mark) if isinstance(mark, dict) else {}
    return Progress(message.text, _number(numbers.get("done")), _number(numbers.get("total")))


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer that no float can hold
        return None


DEPTH_KEY = "dragoman/depth"
"""Metadata key of a message or a request: how many agents it has passed through."""

DEPTH_VARIABLE = "DRAGOMAN_DEPTH"
"""Environment variable of a program that runs as an agent: the depth for the messages it sends."""


# Larger depths are capped to this.
_MAX_DEPTH = 10**18


def depth_of(*metadata: Mapping[str, Any] | None) -> int:
    """The largest depth in the metadata of a message or its request; 0 when there is no valid one."""
    return max((_parse_depth(each.get(DEPTH_KEY)) for each in metadata if each), default=0)


def _parse_depth(value: Any) -> int:
    if isinstance(value, str):
        return _parse_digits(value.strip()) or 0
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        return 0
    # Some JSON libraries write integers as 4.0.
    return math.ceil(min(value, _MAX_DEPTH))


def _parse_digits(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal():
        return None
    digits = text.lstrip("0")
    return _MAX_DEPTH if len(digits) > len(str(_MAX_DEPTH)) else min(int(digits or "0"), _MAX_DEPTH)


def depth_from_environ(environ: Mapping[str, str]) -> int | None:
    """The depth for messages of a program that runs as an agent; None when the program is not one."""
    return _parse_digits(environ.get(DEPTH_VARIABLE, ""))


def with_depth(metadata: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return a message's metadata, with the depth from the environment added when this program runs as an agent."""
    result = dict(metadata) if metadata else {}
    depth = depth_from_environ(environ)
    if depth is not None and DEPTH_KEY not in result:
        result[DEPTH_KEY] = depth
    return result or None
