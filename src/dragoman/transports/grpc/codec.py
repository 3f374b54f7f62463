"""Protobuf bytes of gRPC to the values of their ProtoJSON, and back, which is what the dialects read and write."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from dragoman.transports.grpc.proto.decoder import reader_of
from dragoman.transports.grpc.proto.encoder import writer_of
from dragoman.transports.grpc.proto.wire import Budget, MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.transports.grpc.proto.decoder import Reader

__all__ = ["Codec", "MalformedMessage", "codec_of"]

# As over HTTP: see JsonLimits.
MAX_LEVELS, MAX_VALUES = 100, 500_000


class Codec:
    """The messages of one package. A message is named without the package; one of another package in full.

    Values are builtins as in ProtoJSON: enums by name, bytes as base64, times as RFC 3339; but an int64 is an int.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._readers: dict[str, Reader] = {}
        self._writers: dict[str, Callable[[Any], bytes]] = {}

    def decode(
        self, message: str, data: bytes, *, levels: int = MAX_LEVELS, values: int = MAX_VALUES
    ) -> dict[str, Any]:
        """Decode a message, without the fields that have their default, unless they are optional or in a oneof.

        `levels` limits how deep JSON in it is nested, `values` how many fields and entries of lists and maps there are.

        Raises:
            MalformedMessage: it is none, or exceeds a limit.
            KeyError: there is no message type of that name.
        """
        read = self._readers.get(message) or self._add_reader(message)
        budget = Budget(None, values)
        budget.levels = levels
        try:
            return read(data, 0, len(data), budget, None)
        except IndexError:
            raise MalformedMessage(f"{message}: the message ends too early") from None
        except ValueError as error:
            raise MalformedMessage(f"{message}: {error}") from None

    def encode(self, message: str, value: Mapping[str, Any]) -> bytes:
        """Encode a message. Members that its type does not have are left out.

        Raises:
            ValueError: a member has a value that its type cannot hold.
            KeyError: there is no message type of that name.
        """
        write = self._writers.get(message) or self._add_writer(message)
        try:
            return write(value)
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
            raise ValueError(f"{message}: a member has a value that it cannot hold: {error}") from error

    def _add_reader(self, message: str) -> Reader:
        self._readers[message] = reader_of(self._full_name(message))
        return self._readers[message]

    def _add_writer(self, message: str) -> Callable[[Any], bytes]:
        self._writers[message] = writer_of(self._full_name(message))
        return self._writers[message]

    def _full_name(self, message: str) -> str:
        return f"{self._package}.{message}" if message[:1].isupper() else message


@cache
def codec_of(package: str) -> Codec:
    """Return the codec of a package, such as `grpc.health.v1`."""
    return Codec(package)
