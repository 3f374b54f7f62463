"""An agent's outputs as artifacts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from dragoman.model.artifact import Artifact
from dragoman.model.event import ArtifactUpdate
from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.engine.live import LiveTask


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
        # After a pause the text goes on where it was; after a restart it begins again, over what was streamed.
        self._begun = not afresh and live.folding.artifact_text(name) is not None

    def chunk(self, text: str) -> None:
        """Take the next piece of text."""
        if not text:
            return
        if self._held is not None:
            self._flush()
        self._held = text
        self._live.held = self._flush
        asyncio.get_running_loop().call_soon(self._flush)

    def whole(self, parts: tuple[Part, ...]) -> None:
        """Take a value that is not text: an artifact of its own, complete at once."""
        self._flush()
        number = self._live.folding.artifact_count() + 1
        self.artifact(parts, artifact_id=self.name if number == 1 else f"{self.name}-{number}", name=self.name)

    def artifact(
        self, parts: tuple[Part, ...], *, artifact_id: str, name: str | None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Send a complete artifact."""
        self._send(Artifact(artifact_id, parts, name, metadata=metadata), append=False, last=True)

    def replace(self, parts: tuple[Part, ...]) -> None:
        """Let the finished answer supersede the chunks."""
        self._held = None
        self._replaced = True
        self.artifact(parts, artifact_id=self.name, name=self.name)

    def pause(self) -> None:
        """Send what is held; the text may go on after the pause."""
        self._flush()

    def close(self) -> None:
        """The run is over: close the text."""
        last, self._held = self._held, None
        self._live.held = None
        if not self._begun:
            if last is not None:
                self._text(last, append=False, last=True)
            return
        if self._replaced:
            return
        if self._closing == "last":
            self._text(last or "", append=True, last=True)
            return
        if last is not None:
            self._text(last, append=True, last=False)
        self._text(self._live.folding.artifact_text(self.name) or "", append=False, last=True)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is None or self._live.ended:
            return
        self._live.held = None
        self._text(held, append=self._begun, last=False)
        self._begun = True
        self._replaced = False

    def _text(self, text: str, *, append: bool, last: bool) -> None:
        self._send(Artifact(self.name, (Part(text=text),), self.name), append=append, last=last)

    def _send(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        live = self._live
        live.emit(ArtifactUpdate(live.id, live.folding.context_id, artifact, append, last))
