"""Reading what a caller said as the type the agent wants."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

_YES = {"yes", "y", "true", "on", "1", "ok"}
_NO = {"no", "n", "false", "off", "0"}
_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "yes or no",
    dict: "a JSON object",
    list: "a JSON list",
}
_PATH = re.compile(r" - at `[^`]*`$")


class Unfit(ValueError):
    """The value is not what was asked for; the text says what would be."""


def type_name(wanted: Any) -> str:
    """How to call a type when asking a person for it."""
    known = _NAMES.get(wanted)
    if known is not None:
        return known
    literals = getattr(wanted, "__args__", None)
    if (
        literals
        and getattr(wanted, "__origin__", None) is not None
        and all(isinstance(v, (str, int)) for v in literals)
    ):
        return "one of " + ", ".join(str(value) for value in literals)
    return getattr(wanted, "__name__", None) or str(wanted).replace("typing.", "")


def fit(value: Any, wanted: Any) -> Any:
    """Convert a JSON value to a type.

    Raises:
        Unfit: it does not fit; the text says what would.
    """
    if wanted is Any:
        return value
    if hasattr(wanted, "model_validate"):
        try:
            return wanted.model_validate(value)
        except ValueError as error:
            raise Unfit(str(error)) from None
    try:
        return _complete(msgspec.convert(value, wanted, strict=False))
    except (msgspec.ValidationError, TypeError) as error:
        raise Unfit(_PATH.sub("", str(error))) from None


def _complete(value: Any) -> Any:
    """Put a dataclass's defaults into it: msgspec leaves them on the class, where it does not look when it encodes."""
    found: Any = value
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            inner = _complete(getattr(found, field.name))
            if hasattr(found, "__dict__"):
                object.__setattr__(found, field.name, inner)  # it may be frozen
    elif isinstance(found, msgspec.Struct):
        for name in found.__struct_fields__:
            _complete(getattr(found, name))
    elif isinstance(found, (list, tuple, dict)):
        for item in cast("dict[Any, Any]", found).values() if isinstance(found, dict) else cast("list[Any]", found):
            _complete(item)
    return value


def read_answer(text: str, data: Any, wanted: Any, choices: Sequence[Any] | None) -> Any:
    """Read an answer given as text or data.

    Raises:
        Unfit: it is not of that type, or none of the choices.
    """
    if choices is not None:
        return _choose(text, data, choices)
    if wanted is str:
        return text if text or data is None else (data if isinstance(data, str) else msgspec.json.encode(data).decode())
    if data is not None:
        try:
            return fit(data, wanted)
        except Unfit:
            if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:  # {"days": 3}: a form, one field
                return fit(next(iter(cast("dict[str, Any]", data).values())), wanted)
            raise
    return _from_text(text.strip(), wanted)


def _choose(text: str, data: Any, choices: Sequence[Any]) -> Any:
    for choice in choices:
        if data == choice or str(choice).casefold() == text.strip().casefold():
            return choice
    raise Unfit("one of " + ", ".join(str(choice) for choice in choices))


def _from_text(text: str, wanted: Any) -> Any:
    if wanted is bool and text.casefold() in _YES | _NO:
        return text.casefold() in _YES
    try:
        return fit(text, wanted)
    except Unfit:
        try:
            return fit(msgspec.json.decode(text.encode()), wanted)
        except (msgspec.MsgspecError, ValueError):
            pass
        raise Unfit(type_name(wanted)) from None
