"""The wire format of protobuf: varints, tags, and the skipping of fields that nobody knows."""

from __future__ import annotations

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5

_MAX_TAG: Final = 2**32
_MASK: Final = 2**64 - 1
_MAX_GROUPS: Final = 100


class MalformedMessage(ValueError):
    """Bytes that are no message of the expected type, or one that is nested too deeply or holds too much."""


class Budget:
    """What one message may still hold: levels of JSON, and entries of lists and maps, which are all that can grow."""

    __slots__ = ("entries", "levels")

    def __init__(self, levels: int, entries: int) -> None:
        self.levels = levels
        self.entries = entries

    def enter(self) -> None:
        """Begin another level. Raises MalformedMessage when there are too many."""
        self.levels -= 1
        if self.levels < 0:
            raise MalformedMessage("the message is nested too deeply")

    def add(self) -> None:
        """Count another entry. Raises MalformedMessage when there are too many."""
        self.entries -= 1
        if self.entries < 0:
            raise MalformedMessage("the message holds too many values")


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends.

    Raises:
        MalformedMessage: it has more than 64 bits.
        IndexError: the data ends before it does.
    """
    byte = data[pos]
    pos += 1
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise MalformedMessage("a number has more than 64 bits")
    if value > _MASK:
        raise MalformedMessage("a number has more than 64 bits")
    return value, pos


def read_long_tag(data: bytes, pos: int) -> tuple[int, int]:
    """Return the tag of several bytes at a position, and where it ends.

    Raises:
        MalformedMessage: it is no tag, or could have been shorter.
        IndexError: the data ends before it does.
    """
    tag, pos = read_varint(data, pos)
    if not 128 <= tag < _MAX_TAG:
        raise MalformedMessage("a field has an invalid number")
    return tag, pos


def skip(data: bytes, pos: int, end: int, tag: int, groups: int = _MAX_GROUPS) -> int:
    """Return where an unknown field ends, whose tag was read already.

    Raises:
        MalformedMessage: it is no field, or does not end within the message.
        IndexError: the data ends before it does.
    """
    wire_type = tag & 7
    if tag < 8:
        raise MalformedMessage("a field has the number 0")
    if wire_type == VARINT:
        _, pos = read_varint(data, pos)
    elif wire_type == BYTES:
        size, pos = read_varint(data, pos)
        pos += size
    elif wire_type == FIXED64:
        pos += 8
    elif wire_type == FIXED32:
        pos += 4
    elif wire_type == GROUP and groups:
        inner = 0
        while inner != tag + 1:
            inner, pos = read_varint(data, pos)
            if inner >= _MAX_TAG:
                raise MalformedMessage("a field has an invalid number")
            if inner != tag + 1:
                pos = skip(data, pos, end, inner, groups - 1)
    else:
        raise MalformedMessage(f"a field has the wire type {wire_type}, which ends nowhere")
    return checked(pos, end)


def read_end(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return where the content of a field with a length begins and ends.

    Raises:
        MalformedMessage: it does not end within the message.
        IndexError: the data ends before it does.
    """
    size, pos = read_varint(data, pos)
    return pos, checked(pos + size, end)


def too_long() -> MalformedMessage:
    """Return the error of a field that does not end within its message."""
    return MalformedMessage("a field is longer than its message")


def checked(pos: int, end: int) -> int:
    """Return the position. Raises MalformedMessage when it is beyond the end of its message."""
    if pos > end:
        raise too_long()
    return pos


def varint(number: int) -> bytes:
    """Encode a number of at most 64 bits; a negative one has all of them."""
    number &= _MASK
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# The sizes that fit into one byte: nearly all.
SHORT_SIZES = tuple(bytes((size,)) for size in range(128))


def size_of(content: bytes) -> bytes:
    """Encode the size of a field's content."""
    size = len(content)
    return SHORT_SIZES[size] if size < 128 else varint(size)
