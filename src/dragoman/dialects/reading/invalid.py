"""Turns msgspec errors into A2A errors that name the field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.model.error import BadResponse, InvalidParams, ParseError

if TYPE_CHECKING:
    import msgspec

_WHERE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_TYPES = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<actual>[^`]+)`")
_LIMIT = re.compile(r"Expected `(?:int|float)` (?P<sign>>=|<=) (?P<bound>-?\d+)")
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<value>.+)", re.DOTALL)

_MAX_QUOTED = 80
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "bytes": "base64 text",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_EXPECTED_VALUES = {
    "role": "ROLE_USER or ROLE_AGENT",
    "state": "a state such as TASK_STATE_WORKING",
    "status": "a state such as TASK_STATE_WORKING",
    "kind": "the kind the specification gives it",
}


def invalid_params(error: msgspec.ValidationError) -> InvalidParams:
    """Build the error for an invalid value: the field, such as `message.parts[0].text`, and what it should be."""
    match = _WHERE.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    field = path.replace("[...]", "").removeprefix(".")
    missing = _MISSING.fullmatch(what)
    if missing:
        return missing_field(f"{field}.{missing['name']}" if field else missing["name"])
    return InvalidParams(f"{field or 'params'} {_complaint(what, field)}", field=field)


def quoted(value: str) -> str:
    """Quote a caller's text, shortened, so that a response does not grow with its request."""
    return repr(_shorten(value))


def missing_field(field: str) -> InvalidParams:
    """Build the error for a required field that is absent or empty."""
    return InvalidParams(f"{field} is required and must not be empty", field=field)


def parse_error(error: Exception) -> ParseError:
    """Build the error for text that is not JSON."""
    if isinstance(error, RecursionError):
        return ParseError("Invalid JSON payload: nested too deeply")
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    return ParseError(f"Invalid JSON payload: {reason}")


class ResponseErrors:
    """A context manager around reading a response, whose errors are the server's and not the caller's.

    Raises:
        BadResponse: on exit, instead of InvalidParams and ParseError.
    """

    __slots__ = ("_version",)

    def __init__(self, version: str) -> None:
        self._version = version

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Convert the error."""
        if isinstance(error, (InvalidParams, ParseError)):
            raise self.bad_response(error.message) from None

    def bad_response(self, why: str) -> BadResponse:
        """Build the error for an invalid response."""
        return BadResponse(f"the answer is not A2A {self._version}: {why}")


def _complaint(what: str, field: str) -> str:
    if types := _TYPES.fullmatch(what):
        return f"must be {_type_names(types['expected'])}, not {_type_names(types['actual'])}"
    if limit := _LIMIT.fullmatch(what):
        return f"must be {limit['bound']} or {'more' if limit['sign'] == '>=' else 'less'}"
    if value := _VALUE.fullmatch(what):
        choice = _EXPECTED_VALUES.get(field.rpartition(".")[2], "one of the values the specification lists")
        return f"cannot be {_shorten(value['value'])}: it must be {choice}"
    if what == "Invalid base64 encoded string":
        return "must be base64"
    # The rest are messages of the model and of the decoder.
    return f"is wrong: {_shorten(what)}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…"


def _type_names(types: str) -> str:
    names = types.split(" | ")
    expected = [name for name in names if name != "null"] or names
    return " or ".join(_TYPE_NAMES.get(name, name) for name in expected)
