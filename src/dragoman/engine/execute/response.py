"""An agent's outputs as artifacts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from dragoman.model.event import ArtifactUpdate
from dragoman.model.part import Part
from dragoman.model.task import Artifact

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask


class Response:
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
        before = next((artifact for artifact in live.standing if _is_text(artifact, name)), None)
        self._id = before.artifact_id if before is not None else None
        self._begun = before is not None and not afresh
        self._lead = before.text if before is not None and afresh else ""

    @property
    def holds(self) -> bool:
        """True when there is text that has not been sent yet."""
        return self._held is not None

    def chunk(self, text: str) -> None:
        """Take the next piece of text. Raises UnicodeEncodeError when it is half of a character."""
        if not text:
            return
        text.encode()  # here and not when it is sent, which may be when nobody listens to errors
        if self._held is not None:
            self._flush()
        self._held = text
        self._live.held = self._flush
        asyncio.get_running_loop().call_soon(self._flush)

    def whole(self, parts: tuple[Part, ...]) -> None:
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
        """The run is over: close the text."""
        last, self._held = self._held, None
        self._live.held = None
        if not self._begun:
            if last is not None or self._lead:
                self._text(self._lead + (last or ""), append=False, last=True)
            return
        if self._replaced and last is None:
            return
        if self._closing == "last" or not self._only_text:
            self._text(last or "", append=True, last=True)
            return
        if last is not None:
            self._text(last, append=True, last=False)
        self._text(self._live.folding.artifact_text(self._text_id()) or "", append=False, last=True)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is None or self._live.over:
            return
        self._live.held = None
        self._text(self._lead + held, append=self._begun, last=False)
        self._lead = ""
        self._begun = True
        self._replaced = False

    def _text(self, text: str, *, append: bool, last: bool) -> None:
        self._send(Artifact(self._text_id(), (Part(text=text),), self.name), append=append, last=last)

    def _text_id(self) -> str:
        if self._id is None:
            taken = self._live.has_artifact(self.name)
            self._id = f"{self.name}-{self._live.artifact_number()}" if taken else self.name
        return self._id

    def _send(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        live = self._live
        live.emit(ArtifactUpdate(live.id, live.folding.context_id, artifact, append, last))


def _is_text(artifact: Artifact, name: str) -> bool:
    return artifact.name == name and all(_is_plain(part) for part in artifact.parts)


def _is_plain(part: Part) -> bool:
    return part.kind == "text" and part.media_type is None
