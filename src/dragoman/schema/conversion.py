"""Converts JSON values and typed text to Python types; names types in questions to people."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import Enum, EnumType
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec

from dragoman.model.part import File

YES = frozenset({"yes", "y", "true", "on", "ok"})
NO = frozenset({"no", "n", "false", "off"})
_TYPE_NAMES = {
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
    File: "a file",
}


class TypeMismatch(ValueError):
    """The value does not fit the type.

    The text names what would fit, such as "a whole number"; `why` is a sentence that says what is wrong.
    """

    def __init__(self, expected: str, why: str = "What was sent does not fit.") -> None:
        super().__init__(expected)
        self.why = why


class InvalidJson(ValueError):
    """The text is not JSON."""


def parse_json(text: str) -> Any:
    """Parse a text as JSON.

    Raises:
        InvalidJson: it is not JSON.
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidJson(text) from None


def type_name(type_: Any) -> str:
    """Name a type in words, for a question to a person."""
    type_ = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    origin: Any = get_origin(type_)
    inner: tuple[Any, ...] = get_args(type_)
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(type_name(one) for one in inner if one is not NoneType)
    if isinstance(type_, EnumType):
        return "one of " + ", ".join(str(member.value) for member in cast("type[Enum]", type_))
    if origin is list and inner == (File,):
        return "one file or more"
    plain = _TYPE_NAMES.get(origin or type_)
    if plain is not None:
        return plain
    fields = _field_names(type_)
    return f"a JSON object with {', '.join(fields)}" if fields else getattr(type_, "__name__", str(type_))


def _field_names(type_: Any) -> list[str]:
    for name in ("__struct_fields__", "model_fields", "__dataclass_fields__", "__annotations__"):
        fields: Any = getattr(type_, name, None)
        if fields:
            return [str(field) for field in fields]
    return []


def is_text_type(type_: Any) -> bool:
    """True for `str` and `str | None`."""
    return type_ is str or (get_origin(type_) in (Union, UnionType) and set(get_args(type_)) == {str, NoneType})


def convert(value: Any, type_: Any) -> Any:
    """Convert a JSON value to a type, which may contain pydantic models anywhere.

    Raises:
        TypeMismatch: it does not fit; the text says what would.
    """
    if type_ is Any:
        return value
    try:
        return _fill_defaults(msgspec.convert(value, type_, strict=False, dec_hook=_decode_custom_type))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        details: Any = getattr(error.__cause__ or error, "errors", None)  # pydantic's error details
        if details is None:
            raise TypeMismatch(type_name(type_)) from None
        first = details()[0]
        path = ".".join(str(step) for step in first["loc"])
        raise TypeMismatch(type_name(type_), f"{path}: {first['msg']}." if path else f"{first['msg']}.") from None


def _decode_custom_type(type_: Any, value: Any) -> Any:
    if hasattr(type_, "model_validate"):
        return type_.model_validate(value)
    if isinstance(value, type_):
        return value
    raise TypeError(f"a {type_.__name__} cannot be sent as JSON")


def _fill_defaults(value: Any) -> Any:
    """Set a dataclass's defaults on the instance: msgspec leaves them on the class and ignores them when it encodes."""
    holder: Any = value
    if dataclasses.is_dataclass(holder):
        for field in dataclasses.fields(holder):
            inner = _fill_defaults(getattr(holder, field.name))
            if hasattr(holder, "__dict__"):
                object.__setattr__(holder, field.name, inner)  # it may be frozen
    elif isinstance(holder, msgspec.Struct):
        for name in holder.__struct_fields__:
            _fill_defaults(getattr(holder, name))
    elif isinstance(holder, (list, tuple, dict)):
        for item in cast("dict[Any, Any]", holder).values() if isinstance(holder, dict) else cast("list[Any]", holder):
            _fill_defaults(item)
    return value


def read_answer(text: str, data: Any, type_: Any, choices: Sequence[Any] | None) -> Any:
    """Convert an answer, given as text or data, to a type or to one of the choices.

    Raises:
        TypeMismatch: it does not fit; the text says what would.
    """
    if choices is not None:
        return _parse_choice(text, data, choices)
    if type_ is str:
        return text if text or data is None else (data if isinstance(data, str) else msgspec.json.encode(data).decode())
    if data is not None:
        try:
            return convert(data, type_)
        except TypeMismatch:
            if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:  # {"days": 3}: a form with one field
                return convert(next(iter(cast("dict[str, Any]", data).values())), type_)
            raise
    return _parse_text(text.strip(), type_)


def _parse_choice(text: str, data: Any, choices: Sequence[Any]) -> Any:
    for choice in choices:
        if data == choice or str(choice).casefold() == text.strip().casefold():
            return choice
    raise TypeMismatch("one of " + ", ".join(str(choice) for choice in choices))


def _parse_text(text: str, type_: Any) -> Any:
    if type_ is bool and text.casefold() in YES | NO | {"1", "0"}:
        return text.casefold() in YES | {"1"}
    try:
        return convert(text, type_)
    except TypeMismatch:
        try:
            return convert(parse_json(text), type_)
        except ValueError:
            pass
        raise TypeMismatch(type_name(type_)) from None
