"""What is new in an artifact, and a file of it for ADK's artifact service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.model.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_NAME = 200
# A colon would put the file among those of the user instead of those of the session.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f:/\\]+")


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with texts that follow each other as one: a stream of a thousand chunks is one text."""
    made: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if _is_plain(part):
            texts.append(part.text or "")
            continue
        if texts:
            made.append(Part(text="".join(texts)))
            texts = []
        made.append(part)
    if texts:
        made.append(Part(text="".join(texts)))
    return tuple(part for part in made if part.text != "")


def news(before: Sequence[Part], now: Sequence[Part]) -> tuple[Part, ...]:
    """What `now` says that `before` did not; all of it when it says something else. Both are joined."""
    for at, known in enumerate(before):
        if at >= len(now):
            return tuple(now)
        if now[at] == known:
            continue
        grown = at == len(before) - 1 and _is_plain(known) and _is_plain(now[at])
        if grown and (now[at].text or "").startswith(known.text or ""):
            return (Part(text=(now[at].text or "")[len(known.text or "") :]), *now[at + 1 :])
        return tuple(now)
    return tuple(now[len(before) :])


def file_name(part: Part, otherwise: str) -> str:
    """A name for a file that stays what it is: a name, and of this session."""
    name = _NOT_IN_NAMES.sub("_", (part.filename or otherwise).rsplit("/", 1)[-1]).strip(" ._")
    return name[:_LONGEST_NAME] or "file"


def _is_plain(part: Part) -> bool:
    return part.text is not None and part.metadata is None and part.media_type is None and part.filename is None
