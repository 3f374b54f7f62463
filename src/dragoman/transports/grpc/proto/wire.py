"""The wire format of protobuf: varints, tags, sizes, and the skipping of fields that are unknown."""

from __future__ import annotations

from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Wire types, the last three bits of a tag.
VARINT: Final = 0
FIXED64: Final = 1
SIZED: Final = 2
GROUP: Final = 3
FIXED32: Final = 5

_MAX_TAG: Final = 2**32
_MASK: Final = 2**64 - 1
# Where the bits of the second to the tenth byte of a number belong.
_SHIFTS: Final = tuple(range(7, 64, 7))
_MAX_GROUPS: Final = 100


class MalformedMessage(ValueError):
    """Bytes that are no message of the expected type, or one that is nested too deeply or holds too much."""


# To the type checker it is generic, to Python it is not.
_Values = repeat[None] if TYPE_CHECKING else repeat


class Budget(_Values):
    """What one message may hold, however it is built: levels of JSON, and values, over which this iterates.

    A value is a field, an entry of a list or a map, or a message. To loop over the budget is the cheapest way to count
    them: it ends when they are used up.
    """

    __slots__ = ("levels",)
    levels: int

    def enter(self) -> None:
        """Begin another level. Raises MalformedMessage when there are too many."""
        self.levels -= 1
        if self.levels < 0:
            raise MalformedMessage("the message is nested too deeply")


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends.

    Raises:
        MalformedMessage: it has more than 64 bits.
        IndexError: the data ends before it does.
    """
    number = data[pos]
    pos += 1
    if number < 128:
        return number, pos
    number -= 128
    for shift in _SHIFTS:
        byte = data[pos]
        pos += 1
        if byte < 128:
            number |= byte << shift
            if number <= _MASK:
                return number, pos
            break
        number |= (byte - 128) << shift
    raise MalformedMessage("a number has more than 64 bits")


def read_end(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return where the content of a field begins and ends, whose size is at a position.

    Raises:
        MalformedMessage: it does not end within the message.
        IndexError: the data ends before it does.
    """
    stop = data[pos]
    pos += 1
    if stop > 127:
        stop, pos = read_varint(data, pos - 1)
    stop += pos
    if stop > end:
        raise too_long()
    return pos, stop


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


def skip(data: bytes, pos: int, end: int, tag: int, budget: Budget, groups: int = _MAX_GROUPS) -> int:
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
    elif wire_type == SIZED:
        _, pos = read_end(data, pos, end)
    elif wire_type == FIXED64:
        pos += 8
    elif wire_type == FIXED32:
        pos += 4
    elif wire_type == GROUP and groups:
        pos = _skip_group(data, pos, end, tag + 1, budget, groups - 1)
    else:
        raise MalformedMessage("a field has no type, or groups are nested too deeply")
    if pos > end:
        raise too_long()
    return pos


def refuse(_: bytes, __: int, ___: int, tag: int, ____: Budget) -> int:
    """Refuse an unknown field where no version can add one: in an entry of a map. Implementations disagree about it.

    Raises:
        MalformedMessage: always.
    """
    raise MalformedMessage(f"an entry of a map has a field {tag >> 3}")


def _skip_group(data: bytes, pos: int, end: int, end_tag: int, budget: Budget, groups: int) -> int:
    for _ in budget:
        tag, pos = read_varint(data, pos)
        if tag == end_tag:
            return pos
        if tag >= _MAX_TAG:
            raise MalformedMessage("a field has an invalid number")
        pos = skip(data, pos, end, tag, budget, groups)
    raise too_many()


def too_long() -> MalformedMessage:
    """Return the error of a field that does not end within its message."""
    return MalformedMessage("a field is longer than its message")


def too_many() -> MalformedMessage:
    """Return the error of a message that uses up its budget of values."""
    return MalformedMessage("the message holds too many values")


def varint(number: int) -> bytes:
    """Encode a number of at most 64 bits; a negative one has all of them. Raises ValueError when it is larger."""
    if 0 <= number < 2**14:
        return _SHORT_SIZES[number] if number < 128 else bytes((number & 127 | 128, number >> 7))
    if not -(2**63) <= number <= _MASK:
        raise ValueError("a number has more than 64 bits")
    number &= _MASK
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@cache
def short_heads(tag: bytes) -> tuple[bytes, ...]:
    """Return what begins a field of 0 to 127 bytes, nearly all: its tag and its size."""
    return tuple(tag + bytes((size,)) for size in range(128))


_SHORT_SIZES = short_heads(b"")


def sized_field(tag: int) -> Callable[[bytes], bytes]:
    """Return what puts the tag of a field and its size before its content."""
    encoded = varint(tag)
    heads = short_heads(encoded)

    def write(content: bytes) -> bytes:
        size = len(content)
        return heads[size] + content if size < 128 else encoded + varint(size) + content

    return write
