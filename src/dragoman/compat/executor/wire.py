"""What every object of A2A 0.3 can do here: become a map, and be read from one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from dragoman.dialects.reading.lenient import Reader
from dragoman.dialects.v03.codec import event_to_03
from dragoman.model.error import InvalidParams
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from typing import Self

    from dragoman.compat.executor.result import Failure, Ok
    from dragoman.dialects.v03.codec import Event

W = TypeVar("W", bound="Wire")


class Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An object of A2A 0.3."""

    def to_map(self) -> dict[str, Any]:
        """The object as JSON values: camelCase keys, `kind` where 0.3 has one, nothing that is not there."""
        return {key: value for key, value in plain(self).items() if value is not None}

    @classmethod
    def from_map(cls, map: Mapping[str, Any]) -> Ok[Self] | Failure:
        """Read the object from JSON values; the reason of a failure names the field. Raises nothing."""
        try:
            return ("ok", read(cls, map))
        except InvalidParams as error:
            return ("error", error.message)


def read(cls: type[W], map: Mapping[str, Any]) -> W:
    """Read an object from JSON values.

    Raises:
        InvalidParams: with the field named.
    """
    return _reader(cls).value(dict(map) if isinstance(map, Mapping) else map)  # pyright: ignore[reportUnnecessaryIsInstance]


def spelled(event: Event, *, final: bool = False) -> dict[str, Any]:
    """A model's task, message or update as the 0.3 dialect spells it."""
    return plain(event_to_03(event, last=final))


def plain(value: Struct) -> dict[str, Any]:
    """An object as decoded JSON, with lists where it has tuples."""
    return decode_any(encode(value))


@cache
def _reader(cls: type[W]) -> Reader[W]:
    return Reader(cls)
