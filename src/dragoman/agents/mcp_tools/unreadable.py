"""Messages of an MCP server that cannot be read: whom they concern, and what of them can be saved.

JSON that is nested too deeply, halves of characters, numbers beyond all measure, a result that is no object: such a
message must not be dropped, for whoever waits for it would wait for ever.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

# How much is looked through, at either end: what names a message stands before or after what it carries.
_ENDS = 1_000
# How deeply what is saved may be nested, and how long a message may be that is saved.
DEEPEST = 100
_LONGEST = 4_000_000

_SCALAR = rb'"(?:[^"\\]|\\.)*+"|-?\d{1,18}+(?![.eE\d])|null'
_MEMBER = rb'\s*+"(jsonrpc|id|method)"\s*+:\s*+(' + _SCALAR + rb")\s*+"
_FIRST = re.compile(rb"\s*+[{,]" + _MEMBER)
_LAST = re.compile(rb"(?:," + _MEMBER + rb")++\}\s*+\Z")
_EACH = re.compile(rb"," + _MEMBER)
_INVALID = re.compile(r"Invalid JSON: [^\n\[]*[^\n\[ ]")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')


class NotJson(ValueError):
    """The line holds numbers that JSON does not have."""


def check_numbers(line: bytes) -> None:
    """Raises NotJson for NaN and Infinity, which the SDK's parser lets through and nobody after it can write."""
    if b"NaN" in line or b"Infinity" in line:
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except msgspec.MsgspecError:
            raise NotJson("NaN and Infinity are no JSON") from None
        except RecursionError:
            return


def reason_of(error: ValueError) -> str:
    """Why a line could not be read, where that can be said in a few words."""
    if isinstance(error, NotJson):
        return str(error)
    found = _INVALID.search(str(error))
    return found[0] if found is not None else ""


class Envelope(Struct, frozen=True):
    """What a message says of itself. It is a request with a method and an id, a response with an id alone."""

    is_message: bool
    id: int | str | None = None
    method: str | None = None


def envelope_of(line: bytes) -> Envelope:
    """What can be told from both ends of a line."""
    members: dict[bytes, bytes] = {}
    head, place = line[:_ENDS], 0
    while (found := _FIRST.match(head, place)) is not None:
        members[found[1]] = found[2]
        place = found.end()
    last = _LAST.search(line[-_ENDS:])
    if last is not None:
        members |= dict(_EACH.findall(last[0]))
    number, method = _decoded(members.get(b"id")), _decoded(members.get(b"method"))
    return Envelope(b"jsonrpc" in members, number, method if isinstance(method, str) else None)


def _decoded(value: bytes | None) -> int | str | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=int | str | None)
    except (msgspec.MsgspecError, ValueError):
        return None


def flattened(line: bytes) -> bytes | None:
    """The line without what is nested too deeply; None when nothing is, or when it is too long to be looked through."""
    if len(line) > _LONGEST:
        return None
    pieces: list[bytes] = []
    depth = kept = 0
    for bracket in _BRACKET.finditer(line):
        if bracket[0] in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                pieces.append(line[kept : bracket.end()])
        elif bracket[0] in (b"]", b"}"):
            if depth == DEEPEST + 1:
                kept = bracket.start()
            depth -= 1
    return b"".join((*pieces, line[kept:])) if pieces and depth == 0 else None
