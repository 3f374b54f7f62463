"""How deeply JSON is nested, told before it is decoded."""

from __future__ import annotations

from array import array
from itertools import accumulate

from dragoman.model.error import InvalidParams

_OPENING, _CLOSING = b"[{", b"]}"
_STEPS = bytes.maketrans(_OPENING + _CLOSING, bytes((1, 1, 255, 255)))  # as signed bytes: one down, one up
_OTHERS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_PIECE = 65_536


def check_depth(text: bytes, limit: int, field: str = "") -> None:
    """Refuse JSON whose arrays and objects are nested deeper than that. What is no JSON is left to its reader.

    Raises:
        InvalidParams: it is too deep.
    """
    # Most requests have fewer brackets than may be nested, and are done here.
    if text.count(b"{") + text.count(b"[") > limit and _is_deeper(text, limit):
        raise InvalidParams(f"{field or 'the body'} is nested deeper than {limit}", field=field, limit="nesting")


def _is_deeper(text: bytes, limit: int) -> bool:
    # Without escapes every quote begins or ends a string: what stands outside is every other piece.
    outside = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    steps = b"".join(outside).translate(_STEPS, _OTHERS)
    depth = 0
    for start in range(0, len(steps), _PIECE):
        depths = array("b", steps[start : start + _PIECE])
        reached = list(accumulate(depths, initial=depth))
        if max(reached) > limit:
            return True
        depth = reached[-1]
    return False
