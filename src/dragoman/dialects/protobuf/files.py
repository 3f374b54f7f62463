"""All schemas together: the message or enum of a full name, and the files that a file needs."""

from __future__ import annotations

from dragoman.dialects.protobuf import descriptor, google, grpc, v03, v1
from dragoman.dialects.protobuf.schema import EnumSchema, FileSchema, MessageSchema

FILES: tuple[FileSchema, ...] = (*google.FILES, *descriptor.FILES, *grpc.FILES, *v03.FILES, *v1.FILES)
MESSAGES: dict[str, MessageSchema] = {each.full_name: each for file in FILES for each in file.messages.values()}
ENUMS: dict[str, EnumSchema] = {each.full_name: each for file in FILES for each in file.enums.values()}
_FILE_OF: dict[str, FileSchema] = {
    each.full_name: file for file in FILES for each in (*file.messages.values(), *file.enums.values())
}


def imports_of(file: FileSchema) -> list[FileSchema]:
    """Return the other files whose types a file uses, by their paths."""
    used = {field.type for message in file.messages.values() for field in message.fields}
    for service in file.services.values():
        for method in service.methods.values():
            used |= {method.request, method.response}
    imported = {_FILE_OF[each].path: _FILE_OF[each] for each in used if each in _FILE_OF}
    return [each for path, each in sorted(imported.items()) if path != file.path]
