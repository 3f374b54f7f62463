"""Decodes JSON into types: strictly first, then leniently, as ProtoJSON and real clients require.

Lenient decoding accepts null for absent, snake_case keys, unpadded and URL-safe base64, numbers and booleans as
text, and enums in any spelling. Free-form JSON (`data`, `metadata`, `params`) is never changed.
"""

from __future__ import annotations

import base64
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec import inspect

from dragoman.dialects.reading.invalid import invalid_params, parse_error
from dragoman.dialects.spelling import role_of, state_of
from dragoman.model.json import UNREADABLE, decode_any
from dragoman.model.part import Part
from dragoman.model.state import Role, State

if TYPE_CHECKING:
    from collections.abc import Callable

    Normalizer = Callable[[Any], Any]

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_ENUMS: dict[type, Callable[[object], object]] = {State: state_of, Role: role_of}
_URL_SAFE = str.maketrans("-_", "+/", " \t\r\n")
_ABSENT: Any = object()


class LenientReader(Generic[T]):
    """Decodes one type. `ignored` are fields that this version does not have.

    With `fill_defaults` a missing field gets its proto3 default, as ProtoJSON omits empty values; with
    `numbers_as_text` strict decoding accepts numbers as text, as ProtoJSON writes an int64. `envelope` is for a type
    of which one member is always set: the caller retries with `read_value` when it finds none.
    """

    def __init__(
        self,
        type_: type[T],
        *,
        ignored: frozenset[str] = frozenset(),
        fill_defaults: bool = False,
        numbers_as_text: bool = False,
        envelope: bool = False,
    ) -> None:
        self._type = type_
        self._ignored = ignored
        self._fill_defaults = fill_defaults
        # The fast path, whose errors go to `recover`. It misses snake_case keys where no required field has two words.
        self.read_strict: Callable[[bytes], T] = msgspec.json.Decoder(type_, strict=not numbers_as_text).decode
        # Strict decoding fails on snake_case at the first required field of two words; without one, look for "_".
        self._checks_snake_case = not envelope and not _requires_camel_case(inspect.type_info(type_))

    def read(self, data: Any) -> T:
        """Decode JSON text or convert decoded JSON.

        Raises:
            InvalidParams: with the field named.
            ParseError: the text is not JSON.
        """
        return self.read_json(data) if isinstance(data, bytes) else self.read_value(data)

    def read_json(self, data: bytes) -> T:
        """Decode JSON text; an empty text counts as an empty object.

        Raises:
            InvalidParams: with the field named.
            ParseError: the text is not JSON.
        """
        if self._checks_snake_case and b"_" in data:
            return self._read_lenient(data, None)
        try:
            return self.read_strict(data)
        except UNREADABLE as error:
            return self.recover(data, error)

    def recover(self, data: bytes, strict_error: Exception) -> T:
        """Decode JSON text for which `read_strict` raised that error. Raises as `read_json` does."""
        if isinstance(strict_error, msgspec.ValidationError):
            return self._read_lenient(data, strict_error)
        if not data.strip():
            return self.read_value({})
        raise parse_error(strict_error) from None

    def read_value(self, data: Any) -> T:
        """Convert decoded JSON, or the values of a path or a query string.

        Raises:
            InvalidParams: with the field named.
        """
        try:
            return msgspec.convert(self._normalize({} if data is None else data), self._type)
        except msgspec.ValidationError as error:
            raise invalid_params(error) from None

    def _read_lenient(self, data: bytes, strict_error: msgspec.ValidationError | None) -> T:
        try:
            decoded = decode_any(data)
        except msgspec.ValidationError as error:
            # A number is out of range: only the strict error names its field.
            raise invalid_params(strict_error or error) from None
        except UNREADABLE as error:
            raise parse_error(error) from None
        return self.read_value(decoded)

    @cached_property
    def _normalize(self) -> Normalizer:
        return (
            _Normalizers(self._ignored, fill_defaults=self._fill_defaults).build(inspect.type_info(self._type))
            or _identity
        )


class _Normalizers:
    """Builds, per type, the function that normalizes decoded JSON for strict conversion."""

    def __init__(self, ignored: frozenset[str], *, fill_defaults: bool) -> None:
        self._ignored = ignored
        self._fill_defaults = fill_defaults

    def build(self, kind: inspect.Type) -> Normalizer | None:
        """Build the function for a type; None when its values need no change."""
        if isinstance(kind, inspect.StructType):
            return self._struct(kind)
        if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
            return self._array(kind)
        if isinstance(kind, inspect.UnionType):
            return self._union(kind)
        if isinstance(kind, inspect.EnumType) and kind.cls in _ENUMS:
            return _enum_normalizer(_ENUMS[kind.cls])
        return _SCALARS.get(type(kind))

    def _array(self, kind: inspect.VarTupleType | inspect.ListType) -> Normalizer | None:
        item = self.build(kind.item_type)
        if item is None:
            return None
        return lambda value: [item(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value

    def _union(self, kind: inspect.UnionType) -> Normalizer | None:
        members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            return self.build(members[0])
        structs = [member for member in members if isinstance(member, inspect.StructType)]
        if len(structs) == 1:
            # The function of a struct returns any other value unchanged.
            return self._struct(structs[0])
        by_tag = {str(member.tag): self._struct(member) for member in structs}
        tag_field = structs[0].tag_field if structs else None

        def choose(value: Any) -> Any:
            members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            tag = members.get(tag_field or "")
            # An unknown tag is left for the decoder to reject.
            return by_tag[tag](members) if isinstance(tag, str) and tag in by_tag else cast("Any", value)

        return choose if structs else None

    def _struct(self, kind: inspect.StructType) -> Normalizer:
        aliases: dict[str, str] = getattr(kind.cls, "aliases", {})
        fields = {field.encode_name: field for field in kind.fields if field.encode_name not in self._ignored}
        normalizers = {name: self.build(field.type) for name, field in fields.items()}
        names = {field.name: name for name, field in fields.items()} | aliases | {name: name for name in fields}
        if kind.tag_field:
            names[kind.tag_field] = kind.tag_field
        free_form = {name for name, field in fields.items() if isinstance(field.type, inspect.AnyType)}
        defaults = self._defaults(fields) if self._fill_defaults else {}
        is_part = kind.cls is Part

        def normalize(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            normalized: dict[str, Any] = {}
            for key, item in cast("dict[str, Any]", value).items():
                name = names.get(key)
                if name is None or (name in normalized and key != name) or (item is None and name not in free_form):
                    continue
                normalize_item = normalizers.get(name)
                normalized[name] = normalize_item(item) if normalize_item else item
            if (
                is_part
                and normalized.get("data", _ABSENT) is None
                and not normalized.keys().isdisjoint(("text", "raw", "url"))
            ):
                # null is a value only when the part holds nothing else.
                del normalized["data"]
            for name, default in defaults.items():
                if name not in normalized:
                    normalized[name] = default
            return normalized

        return normalize

    def _defaults(self, fields: dict[str, inspect.Field]) -> dict[str, Any]:
        defaults = {name: self._default(field.type) for name, field in fields.items() if field.required}
        return {name: default for name, default in defaults.items() if default is not _ABSENT}

    def _default(self, kind: inspect.Type) -> Any:
        if isinstance(kind, inspect.StructType):
            return self._struct(kind)({})
        if isinstance(kind, inspect.EnumType):
            return next(iter(kind.cls))
        if isinstance(kind, inspect.UnionType):
            return self._default(kind.types[0])
        make = _DEFAULTS.get(type(kind))
        return make() if make else _ABSENT


def from_base64(text: str) -> bytes:
    """Decode base64 in either alphabet, with or without padding and line breaks.

    Raises:
        ValueError: it is not base64.
    """
    plain = text.translate(_URL_SAFE).rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _requires_camel_case(kind: inspect.Type) -> bool:
    """True when strict decoding of this type fails on snake_case keys, as a required field has two words."""
    if not isinstance(kind, inspect.StructType):
        return True
    required = [field for field in kind.fields if field.required]
    return any(
        "_" in field.name or (isinstance(field.type, inspect.StructType) and _requires_camel_case(field.type))
        for field in required
    )


def _enum_normalizer(parse: Callable[[object], object]) -> Normalizer:
    def normalize(value: Any) -> Any:
        parsed = parse(value)
        return value if parsed is None else parsed

    return normalize


def _identity(value: Any) -> Any:
    return value


def _normalize_integer(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _normalize_boolean(value: Any) -> Any:
    return _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value


def _normalize_bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return from_base64(value)
    except ValueError:
        return value


_SCALARS: dict[type[inspect.Type], Normalizer] = {
    inspect.IntType: _normalize_integer,
    inspect.BoolType: _normalize_boolean,
    inspect.BytesType: _normalize_bytes,
}
_DEFAULTS: dict[type[inspect.Type], Callable[[], Any]] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.BoolType: bool,
    inspect.VarTupleType: list,
    inspect.ListType: list,
}
