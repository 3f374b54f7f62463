"""Reading what a caller said as the Python type that is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import Enum, EnumType
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec

YES = frozenset({"yes", "y", "true", "on", "ok"})
NO = frozenset({"no", "n", "false", "off"})
_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "yes or no",
    dict: "a JSON object",
    list: "a JSON list",
    tuple: "a JSON list",
    set: "a JSON list",
    frozenset: "a JSON list",
    bytes: "bytes in base64",
}


class TypeMismatch(ValueError):
    """The value is not what was asked for; the text says what would be, and `why` what is wrong where that is known."""

    def __init__(self, wanted: str, why: str = "What was sent does not fit.") -> None:
        super().__init__(wanted)
        self.why = why


class InvalidJson(ValueError):
    """The text is not JSON."""


def parse_json(text: str) -> Any:
    """The JSON value a text is.

    Raises:
        Unreadable: it is none.
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidJson(text) from None


def type_name(wanted: Any) -> str:
    """How to call a type when asking a person for it."""
    wanted = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted
    origin: Any = get_origin(wanted)
    inner: tuple[Any, ...] = get_args(wanted)
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(type_name(one) for one in inner if one is not NoneType)
    if isinstance(wanted, EnumType):
        return "one of " + ", ".join(str(member.value) for member in cast("type[Enum]", wanted))
    known = _NAMES.get(origin or wanted)
    if known is not None:
        return known
    fields = _field_names(wanted)
    return f"a JSON object with {', '.join(fields)}" if fields else getattr(wanted, "__name__", str(wanted))


def _field_names(wanted: Any) -> list[str]:
    for name in ("__struct_fields__", "model_fields", "__dataclass_fields__", "__annotations__"):
        found: Any = getattr(wanted, name, None)
        if found:
            return [str(field) for field in found]
    return []


def is_text(wanted: Any) -> bool:
    """True for `str` and for text that may be missing."""
    return wanted is str or (get_origin(wanted) in (Union, UnionType) and set(get_args(wanted)) == {str, NoneType})


def convert(value: Any, wanted: Any) -> Any:
    """Convert a JSON value to a type; pydantic models may stand anywhere in it.

    Raises:
        Unfit: it does not fit; the text says what would.
    """
    if wanted is Any:
        return value
    try:
        return _fill_defaults(msgspec.convert(value, wanted, strict=False, dec_hook=_convert_pydantic))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        details: Any = getattr(error.__cause__ or error, "errors", None)  # pydantic says what is wrong, and where
        if details is None:
            raise TypeMismatch(type_name(wanted)) from None
        first = details()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise TypeMismatch(type_name(wanted), f"{place}: {first['msg']}." if place else f"{first['msg']}.") from None


def _convert_pydantic(wanted: Any, value: Any) -> Any:
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    if isinstance(value, wanted):
        return value
    raise TypeError(f"a {wanted.__name__} cannot be sent as JSON")


def _fill_defaults(value: Any) -> Any:
    """Put a dataclass's defaults into it: msgspec leaves them on the class, where it does not look when it encodes."""
    found: Any = value
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            inner = _fill_defaults(getattr(found, field.name))
            if hasattr(found, "__dict__"):
                object.__setattr__(found, field.name, inner)  # it may be frozen
    elif isinstance(found, msgspec.Struct):
        for name in found.__struct_fields__:
            _fill_defaults(getattr(found, name))
    elif isinstance(found, (list, tuple, dict)):
        for item in cast("dict[Any, Any]", found).values() if isinstance(found, dict) else cast("list[Any]", found):
            _fill_defaults(item)
    return value


def read_answer(text: str, data: Any, wanted: Any, choices: Sequence[Any] | None) -> Any:
    """Read an answer given as text or data.

    Raises:
        Unfit: it is not of that type, or none of the choices.
    """
    if choices is not None:
        return _parse_choice(text, data, choices)
    if wanted is str:
        return text if text or data is None else (data if isinstance(data, str) else msgspec.json.encode(data).decode())
    if data is not None:
        try:
            return convert(data, wanted)
        except TypeMismatch:
            if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:  # {"days": 3}: a form, one field
                return convert(next(iter(cast("dict[str, Any]", data).values())), wanted)
            raise
    return _parse_text(text.strip(), wanted)


def _parse_choice(text: str, data: Any, choices: Sequence[Any]) -> Any:
    for choice in choices:
        if data == choice or str(choice).casefold() == text.strip().casefold():
            return choice
    raise TypeMismatch("one of " + ", ".join(str(choice) for choice in choices))


def _parse_text(text: str, wanted: Any) -> Any:
    if wanted is bool and text.casefold() in YES | NO | {"1", "0"}:
        return text.casefold() in YES | {"1"}
    try:
        return convert(text, wanted)
    except TypeMismatch:
        try:
            return convert(parse_json(text), wanted)
        except ValueError:
            pass
        raise TypeMismatch(type_name(wanted)) from None
