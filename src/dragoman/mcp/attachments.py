"""Files a host sends along."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from dragoman.mcp.problem import ToolProblem
from dragoman.model.part import Part


def files_of(files: list[dict[str, Any]]) -> list[Part]:
    """The files as parts of a message. Raises ToolProblem when one has neither bytes nor a uri."""
    return [_file(file, number) for number, file in enumerate(files)]


def _file(file: dict[str, Any], number: int) -> Part:
    name, kind = file.get("name"), file.get("mime_type")
    held, uri = file.get("bytes"), file.get("uri")
    if isinstance(held, str) and not uri:
        try:
            raw = base64.b64decode(held, validate=True)
        except (binascii.Error, ValueError):
            raise ToolProblem(f"Invalid params: files[{number}].bytes is not base64") from None
        return Part(raw=raw, filename=name, media_type=kind)
    if isinstance(uri, str) and not held and uri.startswith(("http://", "https://")):
        return Part(url=uri, filename=name, media_type=kind)
    raise ToolProblem(f"Invalid params: files[{number}] needs bytes (base64) or an http uri, one of them")
