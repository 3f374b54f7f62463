"""Descriptors of our schemas, serialized as reflection sends them to tools."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from dragoman.dialects.protobuf import files
from dragoman.dialects.protobuf.schema import FieldSchema, Label, MessageSchema
from dragoman.transports.grpc.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.dialects.protobuf.schema import EnumSchema, FileSchema, ServiceSchema


@cache
def descriptors_of(path: str) -> tuple[bytes, ...]:
    """Return the FileDescriptorProto of a file, behind those of the files that it imports.

    Raises:
        KeyError: there is no file of that path.
    """
    needed = {file.path: file for file in _with_imports(_FILES[path])}
    return tuple(codec_of("google.protobuf").encode("FileDescriptorProto", _describe(file)) for file in needed.values())


def file_containing(symbol: str) -> str:
    """Return the path of the file that holds a message, field, enum, value, service or method of that full name.

    Raises:
        KeyError: there is none.
    """
    return _file_of_symbol()[symbol]


_FILES = {file.path: file for file in files.FILES}


@cache
def _file_of_symbol() -> dict[str, str]:
    return {symbol: file.path for file in files.FILES for symbol in _symbols(file)}


def _symbols(file: FileSchema) -> Iterator[str]:
    for message in file.messages.values():
        yield message.full_name
        yield from (f"{message.full_name}.{field.name}" for field in message.fields)
    for enum in file.enums.values():
        yield enum.full_name
        # As in C++, a value belongs to what holds its enum.
        yield from (f"{enum.full_name.rpartition('.')[0]}.{value}" for value in enum.numbers)
    for service in file.services.values():
        yield service.full_name
        yield from (f"{service.full_name}.{method}" for method in service.methods)


def _with_imports(file: FileSchema) -> Iterator[FileSchema]:
    for imported in files.imports_of(file):
        yield from _with_imports(imported)
    yield file


def _describe(file: FileSchema) -> dict[str, Any]:
    messages, enums = _nested_in("", file)
    return {
        "name": file.path,
        "package": file.package,
        "dependency": [each.path for each in files.imports_of(file)],
        "messageType": messages,
        "enumType": enums,
        "service": [_service(each) for each in file.services.values()],
        "syntax": "proto3",
    }


def _nested_in(outer: str, file: FileSchema) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Describe the messages and the enums whose name has one part more than the outer one."""
    messages = [_message(each, file) for each in file.messages.values() if each.name.rpartition(".")[0] == outer]
    enums = [_enum(each) for each in file.enums.values() if each.name.rpartition(".")[0] == outer]
    return messages, enums


def _message(message: MessageSchema, file: FileSchema) -> dict[str, Any]:
    messages, enums = _nested_in(message.name, file)
    entries = [_map_entry(field) for field in message.fields if field.label is Label.MAP]
    # What is optional is a oneof of its own; those come last.
    oneofs = [field.oneof for field in message.fields if field.oneof]
    oneofs += [f"_{field.name}" for field in message.fields if field.label is Label.OPTIONAL]
    oneofs = list(dict.fromkeys(oneofs))
    return {
        "name": message.name.rpartition(".")[2],
        "field": [_field(each, message, oneofs) for each in message.fields],
        "nestedType": messages + entries,
        "enumType": enums,
        "oneofDecl": [{"name": each} for each in oneofs],
    }


def _field(field: FieldSchema, message: MessageSchema, oneofs: list[str]) -> dict[str, Any]:
    is_many = field.label in (Label.REPEATED, Label.MAP)
    is_optional = field.label is Label.OPTIONAL
    oneof = f"_{field.name}" if is_optional else field.oneof
    type_ = f"{message.full_name}.{_entry_name(field)}" if field.label is Label.MAP else field.type
    described = {
        "name": field.name,
        "number": field.number,
        "label": "LABEL_REPEATED" if is_many else "LABEL_OPTIONAL",
        "jsonName": field.json_name,
        "oneofIndex": oneofs.index(oneof) if oneof else None,
        "proto3Optional": is_optional,
    }
    if field.label is not Label.MAP and field.type in files.ENUMS:
        return {**described, "type": "TYPE_ENUM", "typeName": f".{type_}"}
    if field.label is Label.MAP or field.type in files.MESSAGES:
        return {**described, "type": "TYPE_MESSAGE", "typeName": f".{type_}"}
    return {**described, "type": f"TYPE_{type_.upper()}"}


def _map_entry(field: FieldSchema) -> dict[str, Any]:
    """Describe the message that an entry of a map is, on the wire."""
    key, value = FieldSchema(1, "key", "key", field.key), FieldSchema(2, "value", "value", field.type)
    fields = [_field(each, _ENTRY, []) for each in (key, value)]
    return {"name": _entry_name(field), "field": fields, "options": {"mapEntry": True}}


_ENTRY = MessageSchema("", "", ())


def _entry_name(field: FieldSchema) -> str:
    return "".join(word.capitalize() for word in field.name.split("_")) + "Entry"


def _enum(enum: EnumSchema) -> dict[str, Any]:
    values = [{"name": name, "number": number} for name, number in enum.numbers.items()]
    return {"name": enum.name.rpartition(".")[2], "value": values}


def _service(service: ServiceSchema) -> dict[str, Any]:
    methods = [
        {
            "name": method.name,
            "inputType": f".{method.request}",
            "outputType": f".{method.response}",
            "clientStreaming": method.streams_requests,
            "serverStreaming": method.streams_responses,
        }
        for method in service.methods.values()
    ]
    return {"name": service.name, "method": methods}
