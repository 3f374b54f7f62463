"""Outputs of agents, and their conversion to parts and artifacts."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.model.error import ConfigError
from dragoman.model.event import ArtifactUpdate
from dragoman.model.message import JSON_TYPE
from dragoman.model.part import File, Part
from dragoman.model.task import Artifact

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask


class Reply(Struct, frozen=True):
    """Answers with a bare Message and no task. It must be the only output.

    A skill declares that it may do so, with `replies=True` or in its return type. Without that, for a caller that does
    not wait, or when it takes longer than `reply_within` (a second), the message completes a task instead.
    """

    value: Any


class Done:
    """Completes the task with these values as the closing message of its status, beside whatever artifacts there are.

    It is the last output of a run: nothing may follow it.
    """

    __slots__ = ("values",)

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"Done({', '.join(map(repr, self.values))})"


class Replace(Struct, frozen=True):
    """The finished answer, which replaces the chunks streamed so far."""

    value: Any


LoginUrl = str | Callable[[str], str | None] | None
"""The link of a login, or a function that makes it of the handle of the pause; None where there is no link."""


class Ask(Struct, frozen=True):
    """Pauses the task until the caller answers; the run ends here.

    `ref` is JSON that the next run gets back in `ctx.resume.ref`. `details` are further values to send with the
    question. `schema` is the JSON Schema of the answer, for callers who show what is expected; nothing is validated by
    it.

    With `auth` the task waits in auth-required for a login. `url` is its link, or a function that makes the link of the
    handle of this pause. Only `app.resume` with that handle continues the task: messages of callers are kept, and
    answer nothing. `forwards` is for bridges to foreign agents that decide themselves what a message means: there a
    message continues the task in auth-required too, and there is no handle.

    Raises:
        ConfigError: there is a `url`, and nothing to log in to.
    """

    question: str
    ref: Any = None
    auth: bool = False
    details: tuple[Any, ...] = ()
    schema: dict[str, Any] | None = None
    url: LoginUrl = None
    forwards: bool = False

    def __post_init__(self) -> None:
        if self.url is not None and not self.auth:
            raise ConfigError("Ask(url=...) is for logins: add auth=True, or show the address with details=(...,)")


def parts_of(value: Any) -> tuple[Part, ...]:
    """Convert a value to parts.

    Strings become text; numbers and booleans become text with the media type JSON, so that every client can display
    them and ours returns the value; bytes and files become files; parts, and lists of parts and files, stay as they
    are; everything else becomes data.

    Raises:
        TypeError: the value has no JSON form.
        OSError: a file cannot be read.
    """
    if isinstance(value, Part):
        return (value,)
    if isinstance(value, str):
        return (Part(text=plain_text(value)),)
    if isinstance(value, (bool, int, float)):
        return (Part(text=msgspec.json.encode(value).decode(), media_type=JSON_TYPE),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (Part(raw=bytes(cast("bytes", value)), media_type="application/octet-stream"),)
    if isinstance(value, File):
        return (value.part(),)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        if items and all(isinstance(item, (Part, File)) for item in items):
            return tuple(part for item in items for part in parts_of(item))
    return (Part(data=json_of(value)),)


def parts_of_all(values: tuple[Any, ...]) -> tuple[Part, ...]:
    """Convert several values to parts, in order. Raises as `parts_of`."""
    return tuple(part for value in values for part in parts_of(value))


def plain_text(value: str) -> str:
    """Convert a subclass of str to str: some frameworks have their own, which msgspec cannot encode."""
    return value if type(value) is str else str.__str__(value)


def json_of(value: Any) -> Any:
    """Convert a dict, list, dataclass, Struct or pydantic model to plain JSON values.

    Raises:
        TypeError: a value in it has no JSON form.
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_unknown)


def _encode_unknown(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form: return text, numbers, dicts, lists, bytes or a File")


class ResultWriter:
    """Writes a run's outputs as artifacts: text is streamed into one, every other value gets its own.

    A chunk is held back for one turn of the event loop, or for at most `hold` seconds if outputs come from a thread,
    whose end is known later. When the run ends before that, it is the last one, or the whole answer. What is longer is
    closed by an update that repeats the whole text (`closing="whole"`, the only form that every ADK client reads
    correctly), or by its last chunk (`closing="last"`, for clients that add up what they get). When the last chunk was
    sent before the run ended, an empty one follows it.
    """

    def __init__(self, live: LiveTask, name: str, *, restarted: bool, hold: float = 0.0) -> None:
        self._live = live
        self.name = name
        self._hold = hold
        self._held: asyncio.TimerHandle | None = None
        self._pending: str | None = None
        self._replaced = False
        self._only_text = True
        # After a pause the text continues in the same artifact; after a restart it replaces what was streamed since.
        previous = None
        if live.base_artifacts:
            previous = next((artifact for artifact in live.base_artifacts if _is_text(artifact, name)), None)
        self._id = previous.artifact_id if previous is not None else None
        self._started = previous is not None and not restarted
        self._prefix = previous.text if previous is not None and restarted else ""

    @property
    def has_pending_text(self) -> bool:
        """True when a chunk has not been sent yet."""
        return self._pending is not None

    def write(self, value: Any) -> None:
        """Write an output: text, a `Replace`, or another value. None is ignored."""
        if isinstance(value, str):
            self.write_text(value if type(value) is str else str.__str__(value))
        elif isinstance(value, Replace):
            self.replace(parts_of(value.value))
        elif value is not None:
            self.write_value(parts_of(value))

    def write_text(self, text: str) -> None:
        """Write a chunk of text. Raises UnicodeEncodeError when it contains a lone surrogate."""
        if not text:
            return
        text.encode()  # fail here: the deferred flush has no caller to raise to
        if self._pending is not None:
            self._flush()
        self._pending = text
        self._live.defer_output(self._flush)
        loop = asyncio.get_running_loop()
        if self._hold:
            self._held = loop.call_later(self._hold, self._flush)
        else:
            loop.call_soon(self._flush)

    def write_value(self, parts: tuple[Part, ...]) -> None:
        """Write a value that is not text as a complete artifact of its own."""
        self._flush()
        number = self._live.artifact_number()
        artifact_id = self.name if number == 1 else f"{self.name}-{number}"
        self._send(Artifact(artifact_id, parts, self.name), append=False, last=True)

    def replace(self, parts: tuple[Part, ...]) -> None:
        """Replace the streamed text with the finished answer."""
        self._pending, self._prefix = None, ""
        self._started = self._replaced = True
        self._only_text = all(_is_plain(part) for part in parts)
        self._send(Artifact(self._text_id(), parts, self.name), append=False, last=True)

    def pause(self) -> None:
        """Send the pending chunk; the text may continue after the pause."""
        self._flush()

    def close(self) -> None:
        """Close the text at the end of the run. The final status follows in the same write."""
        last, self._pending = self._pending, None
        self._live.defer_output(None)
        if self._held is not None:
            self._held.cancel()
        if not self._started:
            if last is not None or self._prefix:
                self._send_text(self._prefix + (last or ""), append=False, last=True, more=True)
            return
        if self._replaced and last is None:
            return
        if self._live.form.closing == "last" or not self._only_text:
            self._send_text(last or "", append=True, last=True, more=True)
            return
        if last is not None:
            self._send_text(last, append=True, last=False, more=True)
        self._send_text(self._live.folding.artifact_text(self._text_id()) or "", append=False, last=True, more=True)

    def _flush(self) -> None:
        live, text, self._pending = self._live, self._pending, None
        if self._held is not None:
            self._held.cancel()  # the next chunk has a time of its own
            self._held = None
        if text is None or live.phase.is_over:
            return
        live.defer_output(None)
        if not self._started and live.form.closing == "whole" and not live.folding.has_artifact(self._text_id()):
            # ADK up to 2.5 takes every update that does not append for an answer, unless it is empty.
            self._send_text("", append=False, last=False, more=True)
            self._started = True
        self._send_text(self._prefix + text, append=self._started, last=False)
        self._prefix = ""
        self._started = True
        self._replaced = False

    def _send_text(self, text: str, *, append: bool, last: bool, more: bool = False) -> None:
        live, artifact_id = self._live, self._id or self._text_id()
        artifact = Artifact(artifact_id, (Part(text=text),), self.name)
        live.emit(ArtifactUpdate(live.row.id, live.row.context_id, artifact, append, last), more=more)

    def _text_id(self) -> str:
        if self._id is None:
            exists = self._live.has_artifact(self.name)
            self._id = f"{self.name}-{self._live.artifact_number()}" if exists else self.name
        return self._id

    def _send(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        live = self._live
        live.emit(ArtifactUpdate(live.row.id, live.row.context_id, artifact, append, last))


def _is_text(artifact: Artifact, name: str) -> bool:
    return artifact.name == name and all(_is_plain(part) for part in artifact.parts)


def _is_plain(part: Part) -> bool:
    return part.kind == "text" and part.media_type is None
