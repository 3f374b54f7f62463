"""Schemas of protobuf messages, read from a text that is easy to compare with the published .proto files.

    file google/rpc/status.proto
    package google.rpc

    message Status                              fields of a message: number, name, type
      1 code int32
      3 details repeated google.protobuf.Any    labels: repeated, optional (has presence)
    message Part
      1 text string oneof=content               members of one oneof exclude each other
      8 schemes map<string,SecurityScheme>
      2 update Message json=message             its name in ProtoJSON, where that is not the name in lowerCamel
    enum TaskState
      0 TASK_STATE_UNSPECIFIED
    service A2AService
      SendStreamingMessage SendMessageRequest stream StreamResponse

A type is a scalar, a type of the same package (its name begins with a capital), or one with its full name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class Label(StrEnum):
    """How often a field may occur. An `optional` one is told from its default; a plain one is not, unless a message."""

    PLAIN = ""
    OPTIONAL = "optional"
    REPEATED = "repeated"
    MAP = "map"


class FieldSchema(Struct, frozen=True):
    """A field: `type` is a scalar or the full name of a message or enum. The keys of a map have the type `key`."""

    number: int
    name: str
    json_name: str
    type: str
    label: Label = Label.PLAIN
    oneof: str = ""
    key: str = ""


class MessageSchema(Struct, frozen=True):
    """A message type; one that is nested in another has a dot in its name."""

    name: str
    full_name: str
    fields: tuple[FieldSchema, ...]


class EnumSchema(Struct, frozen=True):
    """An enum and its values."""

    name: str
    full_name: str
    numbers: dict[str, int]


class MethodSchema(Struct, frozen=True):
    """A method, with the full names of its messages."""

    name: str
    request: str
    response: str
    streams_requests: bool = False
    streams_responses: bool = False


class ServiceSchema(Struct, frozen=True):
    """A service and its methods, by name."""

    name: str
    full_name: str
    methods: dict[str, MethodSchema]


class FileSchema(Struct, frozen=True):
    """A .proto file: its types and services, by the names they have within the package."""

    path: str
    package: str
    messages: dict[str, MessageSchema] = field(default_factory=dict)
    enums: dict[str, EnumSchema] = field(default_factory=dict)
    services: dict[str, ServiceSchema] = field(default_factory=dict)


def read_files(text: str) -> tuple[FileSchema, ...]:
    """Read the files that a text describes.

    Raises:
        ValueError: a line is none of the forms above.
    """
    files: list[FileSchema] = []
    path = package = ""
    for block in _blocks(text):
        kind, name = block[0]
        if kind == "file":
            path = name
            continue
        if kind == "package":
            package = name
            files.append(FileSchema(path, package))
            continue
        file, full_name = files[-1], f"{package}.{name}"
        if kind == "message":
            fields = tuple(_read_field(words, package) for words in block[1:])
            file.messages[name] = MessageSchema(name, full_name, fields)
        elif kind == "enum":
            file.enums[name] = EnumSchema(name, full_name, {value: int(number) for number, value in block[1:]})
        elif kind == "service":
            methods = {words[0]: _read_method(words, package) for words in block[1:]}
            file.services[name] = ServiceSchema(name, full_name, methods)
        else:
            raise ValueError(f"{kind} {name} is no file, package, message, enum or service")
    return tuple(files)


def _blocks(text: str) -> list[list[list[str]]]:
    """Return the words of the lines, each block a line that is not indented and those that follow it."""
    blocks: list[list[list[str]]] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words and line[0] != " ":
            blocks.append([words])
        elif words:
            blocks[-1].append(words)
    return blocks


def _read_field(words: list[str], package: str) -> FieldSchema:
    number, name, *rest = words
    options: dict[str, Any] = {}
    while "=" in rest[-1]:
        option, _, value = rest.pop().partition("=")
        options["json_name" if option == "json" else option] = value
    type_ = rest.pop()
    if type_.startswith("map<"):
        options["key"], _, type_ = type_[4:-1].partition(",")
        options["label"] = Label.MAP
    elif rest:
        options["label"] = Label(rest.pop())
    options.setdefault("json_name", camel_case(name))
    return FieldSchema(int(number), name, type=_full_name(type_, package), **options)


def _read_method(words: list[str], package: str) -> MethodSchema:
    name, *rest = words
    request_streams = rest[0] == "stream"
    if request_streams:
        del rest[0]
    response_streams = rest[1] == "stream"
    return MethodSchema(
        name, _full_name(rest[0], package), _full_name(rest[-1], package), request_streams, response_streams
    )


def _full_name(type_: str, package: str) -> str:
    return f"{package}.{type_}" if type_[0].isupper() else type_


def camel_case(name: str) -> str:
    """Return the name that ProtoJSON gives a field: that of the .proto file in lowerCamel."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)
