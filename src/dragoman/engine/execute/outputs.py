"""What an agent may yield, and the parts that callers get for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from dragoman.model.event import ArtifactUpdate
from dragoman.model.message import JSON_TYPE
from dragoman.model.part import File, Part
from dragoman.model.task import Artifact

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask


class Reply(Struct, frozen=True):
    """Answer with a bare Message and no task. Only as the first and only output.

    A skill says that it may: with `replies=True` or in its return type. One that does not, and one that took longer
    than a second, completes its task with it.
    """

    value: Any


class Conclude(Reply, frozen=True):
    """Complete the task with this as the message of its status. Only as the only output; for bridges."""


class Replace(Struct, frozen=True):
    """The finished answer: it supersedes the chunks streamed so far."""

    value: Any


class Ask(Struct, frozen=True):
    """Pause the task until the caller answers; the run ends here.

    `ref` is JSON the agent wants back: the next run finds it in `ctx.resume.ref`. With `auth` the task waits in
    auth-required instead of input-required. `details` are further values to show beside the question.
    """

    question: str
    ref: Any = None
    auth: bool = False
    details: tuple[Any, ...] = ()


class AnsweredQuestion(Struct, frozen=True):
    """A question of an earlier run and what the caller said to it."""

    question: str
    ref: Any
    text: str
    data: Any


def parts_of(value: Any) -> tuple[Part, ...]:
    """Turn a value into parts.

    Text becomes text; numbers become text marked as JSON, so that every client can show them and ours gives the
    number back; bytes and files become files; everything else becomes data.

    Raises:
        TypeError: the value has no JSON form.
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


def plain_text(value: str) -> str:
    """A text as nothing but a text: some frameworks have kinds of their own, which no codec knows."""
    return value if type(value) is str else str.__str__(value)


def json_of(value: Any) -> Any:
    """Turn a dict, list, dataclass, Struct or pydantic model into plain JSON values.

    Raises:
        TypeError: some part of it has no JSON form.
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_unusual)


def _unusual(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form: return text, numbers, dicts, lists, bytes or a File")


class OutputMetadata(Struct, frozen=True):
    """Metadata of an agent's own: `task` is on its tasks and their statuses, `note` on the words of its progress."""

    task: dict[str, Any] = {}
    progress: dict[str, Any] = {}


class ResultWriter:
    """Streams text into one artifact and gives every other value an artifact of its own.

    A chunk is held for one turn of the event loop: when the run ends before that, it was the whole answer and is
    sent once. Otherwise the text is closed by one update that repeats it whole (`closing="whole"`, the only form
    that every ADK client reads right) or by the last chunk alone (`closing="last"`).
    """

    def __init__(self, live: LiveTask, name: str, closing: Literal["whole", "last"], *, afresh: bool) -> None:
        self._live = live
        self._closing = closing
        self.name = name
        self._held: str | None = None
        self._replaced = False
        self._only_text = True
        # After a pause the text goes on where it was; after a restart it begins again there, over what was streamed.
        before = None
        if live.base_artifacts:
            before = next((artifact for artifact in live.base_artifacts if _is_text(artifact, name)), None)
        self._id = before.artifact_id if before is not None else None
        self._begun = before is not None and not afresh
        self._lead = before.text if before is not None and afresh else ""

    @property
    def has_pending_text(self) -> bool:
        """True when there is text that has not been sent yet."""
        return self._held is not None

    def write(self, value: Any) -> None:
        """Take what the agent has yielded: text, a finished answer, or a value of its own."""
        if isinstance(value, str):
            self.write_text(value if type(value) is str else str.__str__(value))
        elif isinstance(value, Replace):
            self.replace(parts_of(value.value))
        elif value is not None:
            self.write_value(parts_of(value))

    def write_text(self, text: str) -> None:
        """Take the next piece of text. Raises UnicodeEncodeError when it is half of a character."""
        if not text:
            return
        text.encode()  # here and not when it is sent, which may be when nobody listens to errors
        if self._held is not None:
            self._flush()
        self._held = text
        self._live.hold(self._flush)
        asyncio.get_running_loop().call_soon(self._flush)

    def write_value(self, parts: tuple[Part, ...]) -> None:
        """Take a value that is not text: an artifact of its own, complete at once."""
        self._flush()
        number = self._live.artifact_number()
        artifact_id = self.name if number == 1 else f"{self.name}-{number}"
        self._send(Artifact(artifact_id, parts, self.name), append=False, last=True)

    def replace(self, parts: tuple[Part, ...]) -> None:
        """Let the finished answer supersede the chunks."""
        self._held, self._lead = None, ""
        self._begun = self._replaced = True
        self._only_text = all(_is_plain(part) for part in parts)
        self._send(Artifact(self._text_id(), parts, self.name), append=False, last=True)

    def pause(self) -> None:
        """Send what is held; the text may go on after the pause."""
        self._flush()

    def close(self) -> None:
        """The run is over: close the text. The status that ends the task follows, in the same change of the store."""
        last, self._held = self._held, None
        self._live.hold(None)
        if not self._begun:
            if last is not None or self._lead:
                self._text(self._lead + (last or ""), append=False, last=True, more=True)
            return
        if self._replaced and last is None:
            return
        if self._closing == "last" or not self._only_text:
            self._text(last or "", append=True, last=True, more=True)
            return
        if last is not None:
            self._text(last, append=True, last=False, more=True)
        self._text(self._live.folding.artifact_text(self._text_id()) or "", append=False, last=True, more=True)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is None or self._live.over:
            return
        self._live.hold(None)
        self._text(self._lead + held, append=self._begun, last=False)
        self._lead = ""
        self._begun = True
        self._replaced = False

    def _text(self, text: str, *, append: bool, last: bool, more: bool = False) -> None:
        live, artifact_id = self._live, self._id or self._text_id()
        artifact = Artifact(artifact_id, (Part(text=text),), self.name)
        live.emit(ArtifactUpdate(live.id, live.context_id, artifact, append, last), more=more)

    def _text_id(self) -> str:
        if self._id is None:
            taken = self._live.has_artifact(self.name)
            self._id = f"{self.name}-{self._live.artifact_number()}" if taken else self.name
        return self._id

    def _send(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        live = self._live
        live.emit(ArtifactUpdate(live.id, live.context_id, artifact, append, last))


def _is_text(artifact: Artifact, name: str) -> bool:
    return artifact.name == name and all(_is_plain(part) for part in artifact.parts)


def _is_plain(part: Part) -> bool:
    return part.kind == "text" and part.media_type is None
