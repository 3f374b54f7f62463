"""Sends the artifacts that an agent manages itself, and ends their streamed texts as the caller reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.model.event import ArtifactUpdate
from dragoman.model.part import Part, is_plain_text

if TYPE_CHECKING:
    from dragoman.engine.journal.live import LiveTask
    from dragoman.model.task import Artifact


class ArtifactStream:
    """Sends the updates of artifacts that come from elsewhere, such as from a remote agent or an executor.

    They end a streamed text in their own way: with its last chunk, with the whole text once more, or not at all. The
    caller gets the form of the task's `closing` in each case. Other updates are sent as they are.
    """

    def __init__(self, live: LiveTask, open_ids: tuple[str, ...] = ()) -> None:
        self._live = live
        # For each artifact of this run, and those that were open at the last pause, whether its last chunk was sent.
        self._closed: dict[str, bool] = dict.fromkeys(open_ids, False)

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The ids of the artifacts whose last chunk did not come."""
        return tuple([key for key, closed in self._closed.items() if not closed])

    def write(self, artifact: Artifact, *, append: bool, last_chunk: bool, metadata: dict[str, Any] | None) -> None:
        """Send an artifact, or a chunk of one. Raises as `LiveTask.emit`."""
        key, whole = artifact.artifact_id, self._live.form.closing == "whole"
        if not append and (rest := self._continuation(artifact)) is not None:
            if not rest and (not last_chunk or self._closed.get(key)):
                return  # nothing is new
            if not (whole and last_chunk):
                artifact, append = replace(artifact, parts=(Part(text=rest),)), True
        if whole and append and last_chunk and self._text_before(artifact) is not None:
            if artifact.text:
                self._send(artifact, append=True, last_chunk=False, metadata=metadata, more=True)
            artifact, append = self._live.folding.artifact(key) or artifact, False
        elif whole and not last_chunk and not self._live.folding.has_artifact(key):
            append = all(map(is_plain_text, artifact.parts))
            if append:  # as `ResultWriter` begins a text
                empty = replace(artifact, parts=(Part(text=""),))
                self._send(empty, append=False, last_chunk=False, metadata=metadata, more=True)
        self._closed[key] = last_chunk
        self._send(artifact, append=append, last_chunk=last_chunk, metadata=metadata)

    def close(self) -> None:
        """Close the texts whose last chunk did not come. Another event must follow at once."""
        for key in self.open_ids:
            artifact = self._live.folding.artifact(key)
            if artifact is None or self._text_before(artifact) is None:
                continue
            append = self._live.form.closing == "last"
            if append:
                artifact = replace(artifact, parts=(Part(text=""),))
            self._send(artifact, append=append, last_chunk=True, metadata=None, more=True)

    def _continuation(self, artifact: Artifact) -> str | None:
        """Return what an artifact adds to the text that was sent; None when it is new or something else."""
        before = self._text_before(artifact)
        if before is None:
            return None
        text = artifact.text
        return text[len(before) :] if text.startswith(before) else None

    def _text_before(self, artifact: Artifact) -> str | None:
        """Return the text that was sent of the same artifact; None without one, or when the two are not one text."""
        before = self._live.folding.artifact(artifact.artifact_id)
        if before is None or len(before.parts) != 1 or not all(map(is_plain_text, (*before.parts, *artifact.parts))):
            return None
        same = all(
            new in (old, None, ())
            for new, old in (
                (artifact.name, before.name),
                (artifact.description, before.description),
                (artifact.metadata, before.metadata),
                (artifact.extensions, before.extensions),
            )
        )
        return before.parts[0].text if same else None

    def _send(
        self,
        artifact: Artifact,
        *,
        append: bool,
        last_chunk: bool,
        metadata: dict[str, Any] | None,
        more: bool = False,
    ) -> None:
        live = self._live
        live.emit(ArtifactUpdate(live.row.id, live.row.context_id, artifact, append, last_chunk, metadata), more=more)
