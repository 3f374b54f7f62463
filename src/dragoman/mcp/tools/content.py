"""Converts cards, tasks and parts to tool results: plain JSON, and MCP content that hosts can display."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote, urlsplit

import mcp_types as types
import msgspec

from dragoman.client.card_recorder import TappedResponse
from dragoman.dialects.cards.card import card_json
from dragoman.dialects.table import V0_3
from dragoman.dialects.v03.codec import message_to_03, task_to_03
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message, join_paragraphs
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, answer_messages
from dragoman.telemetry.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.model.card import AgentCard
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse

SCHEME = "a2a://"
# Larger texts and files are not embedded in the result but linked as resources.
MAX_INLINE = 256 * 1024
# How many characters are shown of a text that is too long.
PREVIEW_CHARS = 4000
# How many characters are shown of the name of a file.
_MAX_FILE_NAME = 200
# What is between two paragraphs of a message.
_PARAGRAPH = "\n\n"
_BINARY_TYPE = "application/octet-stream"
_TEXT_TYPES = ("application/json", "application/xml", "application/yaml", "application/javascript")


def content_blocks(answer: Task | Message, base_uri: str) -> list[types.ContentBlock]:
    """Return the texts and files of an answer as content blocks. Data is in the structured result.

    Small images, audio and other files are embedded, large ones linked. `base_uri` is where their resources are:
    `a2a://`, the agent's id, `/`, the task's id, unescaped.
    """
    # Not every bare message is stored: links into it could not be resolved.
    max_inline = MAX_INLINE if isinstance(answer, Task) else None
    max_chars = None if max_inline is None else text_limit(answer)
    joined = _join_texts(answer, max_chars or MAX_INLINE)
    parts = ((part, part_uri(base_uri, holder, number)) for holder, number, part in joined)
    return [block for part, uri in parts if (block := _block(part, uri, max_inline, max_chars)) is not None]


def _join_texts(answer: Task | Message, max_chars: int) -> Iterator[tuple[str, int, Part]]:
    """Yield what `parts_of` yields, with adjacent plain texts of one artifact or message as one, if it is not too long.

    Those of an artifact are chunks of one text, those of a message are paragraphs.
    """
    name, first, pieces, size = "", 0, list[str](), 0

    def joined() -> tuple[str, int, Part]:
        # At the end, once: joining piece by piece would take quadratic time.
        return name, first, Part(text="".join(pieces) if isinstance(answer, Task) else join_paragraphs(pieces))

    for holder, number, part in parts_of(answer):
        text = part.text if _is_plain(part) else None
        if pieces and (text is None or holder != name or size + len(text) > max_chars):
            yield joined()
            pieces, size = [], 0
        if text is None:
            yield holder, number, part
            continue
        if not pieces:
            name, first = holder, number
        pieces.append(text)
        size += len(text) + (0 if isinstance(answer, Task) else len(_PARAGRAPH))
    if pieces:
        yield joined()


def _is_plain(part: Part) -> bool:
    return part == Part(text=part.text) if part.text is not None else False


def text_limit(answer: Task | Message) -> int:
    """Return the length up to which a text is shown in full: shorter when all texts together are too long."""
    part_lists: tuple[tuple[Part, ...], ...] = (answer.parts,)
    if isinstance(answer, Task):
        messages = (*answer.history, *((answer.status.message,) if answer.status.message is not None else ()))
        part_lists = (*(each.parts for each in answer.artifacts), *(each.parts for each in messages))
    size = sum(len(part.text) for parts in part_lists for part in parts if part.text is not None)
    return MAX_INLINE if size <= MAX_INLINE else PREVIEW_CHARS


def parts_of(answer: Task | Message) -> Iterator[tuple[str, int, Part]]:
    """Yield the parts of an answer, each with the id of its artifact or message and its index there.

    Of the messages of a task only the files are included: their texts are in the structured result.
    """
    if not isinstance(answer, Task):
        yield from ((answer.message_id, number, part) for number, part in enumerate(answer.parts))
        return
    answers = {id(each) for each in answer_messages(answer.status, () if answer.artifacts else answer.history)}
    for name, holder in holders_of(answer):
        for number, part in enumerate(holder.parts):
            if isinstance(holder, Artifact) or (id(holder) in answers and part.kind in ("raw", "url")):
                yield name, number, part


def holders_of(task: Task) -> Iterator[tuple[str, Artifact | Message]]:
    """Yield artifacts and messages with the names that URIs have for them: the id, else one from the position."""
    for number, artifact in enumerate(task.artifacts):
        yield artifact.artifact_id or _artifact_name(number), artifact
    for number, message in enumerate(task.history):
        yield message.message_id or f"message-{number}", message
    if task.status.message is not None:
        yield task.status.message.message_id or "status", task.status.message


def _artifact_name(number: int) -> str:
    return f"artifact-{number}"


# -- URIs --------------------------------------------------------------------------------------------------------------


def part_uri(base_uri: str, holder: str, number: int) -> str:
    """Return the resource URI of a part. Ids may contain anything, so each is escaped to one path segment."""
    agent_id, _, task_id = base_uri.removeprefix(SCHEME).partition("/")
    return SCHEME + "/".join((_quote_segment(agent_id), _quote_segment(task_id), _quote_segment(holder), str(number)))


def parse_uri(uri: str) -> tuple[str, str, str, int] | None:
    """Return agent, task, holder and index of a resource URI; None when it is not one of ours."""
    segments = uri.removeprefix(SCHEME).split("/")
    # isdecimal alone accepts the digits of every script, and more of them than int does.
    if not uri.startswith(SCHEME) or len(segments) != 4 or not (segments[3].isascii() and segments[3].isdecimal()):
        return None
    if len(segments[3]) > 9 or not all(segments):
        return None
    return unquote(segments[0]), unquote(segments[1]), unquote(segments[2]), int(segments[3])


def _quote_segment(name: str) -> str:
    # A segment of dots only would be read as a relative path.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


# -- one part ----------------------------------------------------------------------------------------------------------


def resource_contents(part: Part, uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    """Return a text or a file as resource contents; None for data, which is not content.

    A part that is a URL of the web becomes a URI list: the host decides whether to fetch it. Any other URL is text.
    """
    if part.text is not None:
        return types.TextResourceContents(uri=uri, mime_type=part.media_type or "text/plain", text=part.text)
    if part.url is not None:
        if not is_web_url(part.url):
            return types.TextResourceContents(uri=uri, mime_type="text/plain", text=_visible_url(part.url))
        return types.TextResourceContents(uri=uri, mime_type="text/uri-list", text=f"{part.url}\r\n")
    if part.raw is None:
        return None
    text = _decode_text(part.raw, part.media_type or "")
    if text is not None:
        return types.TextResourceContents(uri=uri, mime_type=part.media_type, text=text)
    data = base64.b64encode(part.raw).decode()
    return types.BlobResourceContents(uri=uri, mime_type=part.media_type or _BINARY_TYPE, blob=data)


def resource_link(part: Part, uri: str) -> types.ResourceLink:
    """Return a link to a part's resource, or to its own URL if it has one.

    Raises:
        ValueError: its URL is none of the web: a host that follows links must not be led to its own files or programs.
    """
    if part.url is not None:
        if not is_web_url(part.url):
            raise ValueError("not a URL of the web")
        name = _file_name(part.filename) or _file_name(urlsplit(part.url).path.rstrip("/")) or part.url
        return types.ResourceLink(type="resource_link", uri=part.url, name=name, mime_type=part.media_type)
    size = len(part.raw if part.raw is not None else (part.text or "").encode(errors="surrogatepass"))
    kind = part.media_type or (_BINARY_TYPE if part.raw is not None else "text/plain")
    name = _file_name(part.filename) or ("file" if part.text is None else "text")
    return types.ResourceLink(type="resource_link", uri=uri, name=name, mime_type=kind, size=size)


def is_web_url(url: str) -> bool:
    """True for a URL that is safe to open in a browser: http or https, no scripts and no local files."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url


def _visible_url(url: str) -> str:
    return one_line(url[:PREVIEW_CHARS])


def _file_name(name: str | None) -> str:
    """Return the name of a file without the folders that the agent put before it; empty if nothing is left."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    plain = "".join(char for char in last if char.isprintable())[:_MAX_FILE_NAME]
    return plain if plain.strip(". ") else ""


def _block(part: Part, uri: str, max_inline: int | None, max_chars: int | None) -> types.ContentBlock | None:
    kind = part.media_type or ""
    if part.text is not None and part.filename is None:
        if max_chars is not None and len(part.text) > max_chars:
            return resource_link(part, uri)
        return types.TextContent(type="text", text=part.text, annotations=_annotations(part))
    if part.kind == "data":
        return None
    size = len(part.raw or part.text or "")
    if part.url is not None or (max_inline is not None and size > max_inline):
        try:
            return resource_link(part, uri)
        except ValueError:  # `http://[`, or `file:///etc/passwd`
            return types.TextContent(type="text", text=_visible_url(part.url or ""))
    if part.raw is not None and kind.startswith(("image/", "audio/")):
        data = base64.b64encode(part.raw).decode()
        if kind.startswith("image/"):
            return types.ImageContent(type="image", data=data, mime_type=kind, annotations=_annotations(part))
        return types.AudioContent(type="audio", data=data, mime_type=kind, annotations=_annotations(part))
    resource = resource_contents(part, uri)
    if resource is None:
        return None
    return types.EmbeddedResource(type="resource", resource=resource, annotations=_annotations(part))


def _annotations(part: Part) -> types.Annotations | None:
    """Return the MCP annotations of a part (audience, priority), if it came from an MCP server."""
    annotations = (part.metadata or {}).get("annotations")
    try:
        return None if annotations is None else types.Annotations.model_validate(annotations)
    except ValueError:  # the metadata is the agent's, and may be anything
        return None


def _decode_text(raw: bytes, media_type: str) -> str | None:
    """Return the text of a UTF-8 text file; None for any other file."""
    kind, _, parameters = media_type.lower().partition(";")
    kind = kind.strip()
    if not (kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))):
        return None
    if "charset" in parameters and "utf-8" not in parameters:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


Json = dict[str, Any]
# The nesting depth that all hosts can parse.
MAX_DEPTH = 64
# How many characters of each text a list of tasks shows, and how many texts; get_task returns the rest.
_PREVIEW_LISTED = 200
_MAX_LISTED = 5
_CAPABILITIES = ("streaming", "pushNotifications", "stateTransitionHistory")


def state_name(state: State) -> str:
    """Return the name of a state as the tools spell it: `input_required`."""
    return "unknown" if state is State.UNSPECIFIED else state.value.removeprefix("TASK_STATE_").lower()


def card_to_json(card: AgentCard, raw: Json) -> Json:
    """Return a card of any version as JSON with the same few keys. `raw` is the card as received."""
    card_03 = card_json(card, {}, V0_3)
    versions = [each.protocol_version for each in card.supported_interfaces]
    protocol_version = raw.get("protocolVersion")
    capabilities: Json = raw["capabilities"] if isinstance(raw.get("capabilities"), dict) else {}
    return {
        "name": card.name,
        "description": card.description,
        "url": card_03.get("url", ""),
        "version": card.version,
        "protocolVersion": protocol_version
        if isinstance(protocol_version, str) and protocol_version
        else next(iter(versions), ""),
        "capabilities": {name: capabilities.get(name) is True for name in _CAPABILITIES},
        "skills": [
            {"id": each.id, "name": each.name, "description": each.description, "tags": list(each.tags)}
            for each in card.skills
        ],
    }


def task_to_json(task: Task, history_length: int | None = None, *, base_uri: str) -> Json:
    """Return a task as JSON: id, status, artifacts and history, as the tools' documentation shows them.

    Parts of artifacts name their `kind`, those of messages do not. Ids that the agent left out are left out here.
    Long texts are truncated, with the URI of the resource that has the rest, under `base_uri`.
    """
    max_chars = text_limit(task)
    names = [name for name, _ in holders_of(task)]
    wire_task: Json = decode_any(encode(task_to_03(task)))
    status: Json = wire_task["status"]
    result: Json = {"id": task.id}
    if task.context_id:
        result["context_id"] = task.context_id
    result["status"] = {**status, "state": state_name(task.state)}
    if isinstance(status.get("message"), dict):
        result["status"]["message"] = _message_json(cast("Json", status["message"]), max_chars, base_uri, names[-1])
    wire_artifacts = cast("list[Json]", wire_task.get("artifacts") or [])
    artifacts = [
        _limit_parts(_without_extras(each), max_chars, base_uri, name)
        for each, name in zip(wire_artifacts, names, strict=False)
    ]
    if artifacts:
        result["artifacts"] = artifacts
    wire_history = cast("list[Json]", wire_task.get("history") or [])
    history = [
        _message_json(each, max_chars, base_uri, name)
        for each, name in zip(wire_history, names[len(artifacts) :], strict=False)
    ]
    if history_length is not None:
        history = history[len(history) - history_length :] if history_length else []
    if history:
        result["history"] = history
    return _limit_depth(result)


def task_summary_to_json(task: Task) -> Json:
    """Return a task as JSON for a list: its state, and the beginning of its texts."""
    result: Json = {"id": task.id}
    if task.context_id:
        result["context_id"] = task.context_id
    status: Json = {"state": state_name(task.state)}
    if task.status.timestamp:
        status["timestamp"] = task.status.timestamp
    if task.status.message is not None and task.status.message.text:
        status["message"] = _message_preview(task.status.message)
    result["status"] = status
    artifacts: list[Json] = []
    for each in task.artifacts[:_MAX_LISTED]:
        members = {"artifactId": each.artifact_id} if each.artifact_id else {}
        if each.name:
            members["name"] = each.name[:_PREVIEW_LISTED]
        artifacts.append({**members, "parts": [{"kind": "text", "text": _preview(each.text)}] if each.text else []})
    if artifacts:
        result["artifacts"] = artifacts
    elif "message" not in status:
        answers = [each for each in answer_messages(task.status, task.history) if each.text]
        if answers:
            result["history"] = [_message_preview(each) for each in answers[:_MAX_LISTED]]
    return result


def _message_preview(message: Message) -> Json:
    return {"role": "agent", "parts": [{"text": _preview(message.text)}]}


def _preview(text: str) -> str:
    return text if len(text) <= _PREVIEW_LISTED else f"{text[:_PREVIEW_LISTED]}…"


def truncate(text: str, max_chars: int = MAX_INLINE, hint: str = "the parts say how to read the rest") -> str:
    """Return a text, truncated with a hint how to get the rest when it is longer than `max_chars`."""
    return text if len(text) <= max_chars else f"{text[:PREVIEW_CHARS]}… [{len(text)} characters in all: {hint}]"


def message_to_json(message: Message, *, base_uri: str) -> Json:
    """Return a bare message as the JSON of a completed task. `base_uri` is empty if the message is not stored."""
    return {
        "id": message.task_id or "",
        "context_id": message.context_id or "",
        "status": {"state": "completed"},
        "artifacts": [{"parts": _limit_depth(_message_parts(message, base_uri))}],
    }


def _message_parts(message: Message, base_uri: str) -> list[Json]:
    wire_message: Json = decode_any(encode(message_to_03(message)))
    # It is stored as the only artifact of a task.
    holder = message.message_id or _artifact_name(0)
    return _limit_parts(wire_message, text_limit(message), base_uri, holder)["parts"]


def _limit_depth(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Replace what is nested too deeply by its JSON text: hosts fail to parse deeper results."""
    if isinstance(value, (dict, list)) and not depth:
        return encode(value).decode()
    if isinstance(value, dict):
        return {key: _limit_depth(each, depth - 1) for key, each in cast("Json", value).items()}
    return [_limit_depth(each, depth - 1) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _without_extras(value: Json) -> Json:
    """Return an artifact or a message without `kind`, the ids of its task, and an id that is empty."""
    extras = ("kind", "taskId", "contextId")
    return {key: each for key, each in value.items() if key not in extras and (each or not key.endswith("Id"))}


def _message_json(message: Json, max_chars: int, base_uri: str, holder: str) -> Json:
    result = _limit_parts(_without_extras(message), max_chars, base_uri, holder)
    parts = cast("list[Json]", result["parts"])
    return {**result, "parts": [{key: each for key, each in part.items() if key != "kind"} for part in parts]}


def _limit_parts(value: Json, max_chars: int, base_uri: str, holder: str) -> Json:
    parts = value.get("parts")
    if not isinstance(parts, list):
        return value
    numbered = enumerate(cast("list[Json]", parts))
    return {
        **value,
        "parts": [
            _limit_part(each, max_chars, base_uri and part_uri(base_uri, holder, number)) for number, each in numbered
        ],
    }


def _limit_part(part: Json, max_chars: int, uri: str) -> Json:
    """Return a part with a long text truncated, and without bytes, which are in the content blocks."""
    text: Any = part.get("text")
    if isinstance(text, str):
        hint = f"read the resource {uri}" if uri else "the whole is in the content beside this"
        return {**part, "text": truncate(text, max_chars, hint)}
    file: Any = part.get("file")
    if not isinstance(file, dict) or "bytes" not in file:
        return part
    content = cast("Json", file)
    size = len(str(content["bytes"]).rstrip("=")) * 3 // 4
    return {**part, "file": {**{key: each for key, each in content.items() if key != "bytes"}, "size": size}}


_TASK_OPERATIONS = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask")
_HAS_KIND = re.compile(rb'"kind"\s*:\s*"(?:task|message)"')


async def complete_answers(request: HttpRequest, call_next: CallNext) -> HttpResponse:
    """An interceptor that repairs incomplete JSON-RPC results: adds `kind` and the task's id, wraps a bare state.

    Hand-written agents answer `{id, status, artifacts}` or `{id, status, history}`, and a cancel with a bare state.
    """
    response = await call_next(request)
    kind = response.headers.get("Content-Type", "")
    if request.operation not in _TASK_OPERATIONS or "json" not in kind or response.status != 200:
        return response
    return TappedResponse(response, lambda body: _complete_body(body, request.body or b""))


def _complete_body(body: bytes, request_body: bytes) -> bytes:
    if _HAS_KIND.search(body):
        return body
    try:
        response: Any = decode_any(body)
        params = _object(_object(decode_any(request_body)).get("params"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    result = _object(_object(response).get("result"))
    if not result or "jsonrpc" not in response:
        return body
    return encode({**response, "result": complete_result(result, params.get("id"))})


def complete_result(result: Json, task_id: str | None) -> Json:
    """Return a task or message with its `kind`; anything else unchanged. `task_id` is the id in the request."""
    if isinstance(result.get("status"), str):
        result = {**result, "status": {"state": result["status"]}}
    if isinstance(result.get("status"), dict):
        return {"kind": "task", **result, "id": str(result.get("id") or task_id or "")}
    if isinstance(result.get("parts"), list):
        return {"kind": "message", **result}
    return result


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
