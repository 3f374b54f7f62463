"""A probe of an interface: the request, the responses that a rule allows, and what was wrong with the one that came."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from dragoman.model.error import A2AError
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest

Errors = tuple[type[A2AError], ...]
# Level, problem, and the rule that it breaks.
Fault = tuple[Literal["warn", "FAIL"], str, str]


class Expectation(NamedTuple):
    """The responses that a rule allows: one of these errors, or a result where `result` is True."""

    rule: str
    errors: Errors
    result: bool = False
    strict: bool = True  # False where the version only recommends the error


class Probe(NamedTuple):
    """A request to send, and the response that is expected."""

    label: str
    request: HttpRequest
    expected: Expectation
    operation: Operation | None = None

    @property
    def level(self) -> Literal["warn", "FAIL"]:
        """The level of the finding for an unexpected response."""
        return "FAIL" if self.expected.strict else "warn"

    @property
    def id(self) -> object:
        """The id of a JSON-RPC request; None when it cannot be read."""
        try:
            return msgspec.json.decode(self.request.body or b"{}").get("id")
        except msgspec.DecodeError:
            return None
