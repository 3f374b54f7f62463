"""Parts of A2A as content of MCP, in a form that hosts can show."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import mcp_types as types

from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.model.message import Message
    from dragoman.model.part import Part

SCHEME = "a2a://"
# What is larger is not put into the result, but can be read.
INLINE = 256 * 1024
# So much is shown of a text that is too large.
SHOWN = 4000
_BYTES = "application/octet-stream"
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/javascript")


def blocks_of(answer: Task | Message, place: str) -> list[types.ContentBlock]:
    """The texts and files of an answer. Data is in the structured result.

    Images and audio are shown, other files are embedded while they are small, and linked when they are not. `place`
    is where they can be read: `a2a://`, the agent's id, `/`, the task's id as it is.
    """
    # Not every bare message is kept: what is only linked could not be read.
    inline = INLINE if isinstance(answer, Task) else None
    room = None if inline is None else room_for(answer)
    found = ((part, uri_of(place, holder, number)) for holder, number, part in parts_of(answer))
    return [block for part, uri in found if (block := _block(part, uri, inline, room)) is not None]


def room_for(answer: Task | Message) -> int:
    """How long a text may be to be shown whole: less, when all of them together are too large."""
    held: tuple[tuple[Part, ...], ...] = (answer.parts,)
    if isinstance(answer, Task):
        said = (*answer.history, *((answer.status.message,) if answer.status.message is not None else ()))
        held = (*(each.parts for each in answer.artifacts), *(each.parts for each in said))
    size = sum(len(part.text) for parts in held for part in parts if part.text is not None)
    return INLINE if size <= INLINE else SHOWN


def parts_of(answer: Task | Message) -> Iterator[tuple[str, int, Part]]:
    """The parts of an answer, each with the id of what holds it and its number in there.

    Of what a task says beside its artifacts, these are the files: the texts are in the structured result.
    """
    if not isinstance(answer, Task):
        yield from ((answer.message_id, number, part) for number, part in enumerate(answer.parts))
        return
    for artifact in answer.artifacts:
        yield from ((artifact.artifact_id, number, part) for number, part in enumerate(artifact.parts))
    message = answer.status.message
    for number, part in enumerate(message.parts if message is not None else ()):
        if message is not None and part.kind in ("raw", "url"):
            yield message.message_id, number, part


# -- addresses ---------------------------------------------------------------------------------------------------------


def uri_of(place: str, holder: str, number: int) -> str:
    """The address of a part. Ids may hold anything, so each is encoded to be one step of the path."""
    agent_id, _, task_id = place.removeprefix(SCHEME).partition("/")
    return SCHEME + "/".join((_step(agent_id), _step(task_id), _step(holder), str(number)))


def place_in(uri: str) -> tuple[str, str, str, int] | None:
    """Agent, task, holder and number of an address; None when it is not one of ours."""
    steps = uri.removeprefix(SCHEME).split("/")
    # isdecimal alone takes the digits of every script, and more of them than int does.
    if not uri.startswith(SCHEME) or len(steps) != 4 or not (steps[3].isascii() and steps[3].isdecimal()):
        return None
    if len(steps[3]) > 9 or not all(steps):
        return None
    return unquote(steps[0]), unquote(steps[1]), unquote(steps[2]), int(steps[3])


def _step(name: str) -> str:
    # A step of dots only would be taken for a way up.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


# -- one part ----------------------------------------------------------------------------------------------------------


def contents_of(part: Part, uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    """A text or a file as the contents of a resource; None for data, which is no content.

    A link is given as what it is: it is for the host to decide whether to follow it.
    """
    if part.text is not None:
        return types.TextResourceContents(uri=uri, mime_type=part.media_type or "text/plain", text=part.text)
    if part.url is not None:
        return types.TextResourceContents(uri=uri, mime_type="text/uri-list", text=f"{part.url}\r\n")
    if part.raw is None:
        return None
    text = _as_text(part.raw, part.media_type or "")
    if text is not None:
        return types.TextResourceContents(uri=uri, mime_type=part.media_type, text=text)
    data = base64.b64encode(part.raw).decode()
    return types.BlobResourceContents(uri=uri, mime_type=part.media_type or _BYTES, blob=data)


def link_of(part: Part, uri: str) -> types.ResourceLink:
    """A link to where a part can be read: to itself, where it is one. Raises ValueError when that is no address."""
    if part.url is not None:
        name = part.filename or urlsplit(part.url).path.rstrip("/").rpartition("/")[2] or part.url
        return types.ResourceLink(type="resource_link", uri=part.url, name=name, mime_type=part.media_type)
    size = len(part.raw if part.raw is not None else (part.text or "").encode(errors="surrogatepass"))
    kind = part.media_type or (_BYTES if part.raw is not None else "text/plain")
    name = part.filename or ("file" if part.text is None else "text")
    return types.ResourceLink(type="resource_link", uri=uri, name=name, mime_type=kind, size=size)


def _block(part: Part, uri: str, inline: int | None, room: int | None) -> types.ContentBlock | None:
    kind = part.media_type or ""
    if part.text is not None and part.filename is None:
        if room is not None and len(part.text) > room:
            return link_of(part, uri)
        return types.TextContent(type="text", text=part.text, annotations=_annotations(part))
    if part.kind == "data":
        return None
    size = len(part.raw or part.text or "")
    if part.url is not None or (inline is not None and size > inline):
        try:
            return link_of(part, uri)
        except ValueError:  # no address at all, such as `http://[`
            return types.TextContent(type="text", text=part.url or "")
    if part.raw is not None and kind.startswith(("image/", "audio/")):
        data = base64.b64encode(part.raw).decode()
        if kind.startswith("image/"):
            return types.ImageContent(type="image", data=data, mime_type=kind, annotations=_annotations(part))
        return types.AudioContent(type="audio", data=data, mime_type=kind, annotations=_annotations(part))
    held = contents_of(part, uri)
    if held is None:
        return None
    return types.EmbeddedResource(type="resource", resource=held, annotations=_annotations(part))


def _annotations(part: Part) -> types.Annotations | None:
    """For whom a part is and how much it matters, if it came from an MCP server."""
    told = (part.metadata or {}).get("annotations")
    try:
        return None if told is None else types.Annotations.model_validate(told)
    except ValueError:  # anybody may write there
        return None


def _as_text(raw: bytes, media_type: str) -> str | None:
    """The text of a file that is one; None for any other."""
    kind, _, parameters = media_type.lower().partition(";")
    kind = kind.strip()
    if not (kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))):
        return None
    if "charset" in parameters and "utf-8" not in parameters:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
