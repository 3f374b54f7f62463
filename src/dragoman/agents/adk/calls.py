"""Calls of tools that wait for the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from dragoman.agents.adk import credential
from dragoman.agents.adk.parts import IS_LONG_RUNNING, TYPE
from dragoman.agents.adk.remote_message import ASKS_AUTH, ASKS_INPUT
from dragoman.model.part import Part

CONFIRMATION = "adk_request_confirmation"
CREDENTIAL = "adk_request_credential"
INPUT = "adk_request_input"
# How ADK words a confirmation that nobody has worded. It is addressed to programs.
_UNWORDED = "Please approve or reject the tool call"
# Where the calls that stand for a remote agent's question have its words.
_ASKED = {ASKS_INPUT: "input_required", ASKS_AUTH: "auth_required"}
_LONGEST = 200

Kind = Literal["confirmation", "credential", "input", "question", "tool"]


class Call(Struct, frozen=True, omit_defaults=True):
    """A call that waits. `args` are what callers may see of its arguments, `response` is what the tool said so far.

    `asked` is the question that came with it, where a remote agent makes the call.
    """

    id: str
    name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    response: dict[str, Any] | None = None
    asked: str = ""

    @property
    def kind(self) -> Kind:
        """What it waits for."""
        if self.name == CREDENTIAL:
            return "credential"
        if self.name in _ASKED:
            return "question"
        if self.name == CONFIRMATION or "confirmed" in (self.schema.get("properties") or {}):
            return "confirmation"
        return "input" if self.name == INPUT else "tool"

    @property
    def auth(self) -> bool:
        """True when somebody has to say who he is."""
        return self.name in (CREDENTIAL, ASKS_AUTH)

    @property
    def schema(self) -> dict[str, Any]:
        """What the answer to a question must be, as far as the agent says."""
        if self.name != INPUT:
            return {}
        return _object(self.args.get("response_schema") or self.args.get("responseSchema"))

    @property
    def question(self) -> str:
        """What to ask the caller."""
        if self.kind == "credential":
            return credential.question(self.args)
        if self.name == CONFIRMATION:
            return self._confirmation()
        if self.name == INPUT or self.name in _ASKED:
            message = self.args.get(_ASKED.get(self.name, "message"))
            said = message if isinstance(message, str) else self.asked
            return said or ("Credentials are needed." if self.auth else "Input is needed.")
        return self.asked or f"{_called(self.name, self.args)} waits for its result."

    def _confirmation(self) -> str:
        call = _object(self.args.get("originalFunctionCall"))
        hint = _object(self.args.get("toolConfirmation")).get("hint")
        allow = f"Allow {_called(str(call['name']), call.get('args'))}?" if "name" in call else "Allow it?"
        if isinstance(hint, str) and hint and not hint.startswith(_UNWORDED):
            return f"{hint} {allow}"
        return allow

    def details(self) -> tuple[Part, ...]:
        """The call as ADK's clients know it, and what the tool said so far."""
        body: dict[str, Any] = {"id": self.id, "name": self.name, "args": self.args}
        parts = [Part(data=body, metadata={TYPE: "function_call", IS_LONG_RUNNING: True})]
        if self.response is not None:
            said = {"id": self.id, "name": self.name, "response": self.response}
            parts.append(Part(data=said, metadata={TYPE: "function_response"}))
        return tuple(parts)


class Open(Struct, frozen=True, omit_defaults=True):
    """What a task that waits remembers: its calls, the answers that came while others were missing, its session."""

    calls: tuple[Call, ...]
    given: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict[str, dict[str, Any]])
    user: str = ""
    session: str = ""

    @property
    def missing(self) -> tuple[Call, ...]:
        """The calls that nobody has answered."""
        return tuple(call for call in self.calls if call.id not in self.given)


def details_of(calls: Sequence[Call]) -> tuple[Part, ...]:
    """What to show beside the question. A question in plain words, if it is the only one, needs nothing."""
    if len(calls) == 1 and calls[0].kind == "question":
        return ()
    return tuple(part for call in calls for part in call.details())


def question_of(calls: Sequence[Call]) -> str:
    """One question for all of them."""
    asked = [call.question for call in calls]
    if all(call.kind == "confirmation" for call in calls):
        return " ".join((*asked, "Answer yes or no."))
    if len(calls) == 1:
        return asked[0]
    return "\n".join(("Each of these needs an answer of its own:", *(f"- {text}" for text in asked)))


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _called(name: str, args: Any) -> str:
    if not isinstance(args, dict) or not args:
        return f"{name}()"
    shown = msgspec.json.encode(args).decode(errors="replace")
    return f"{name}({shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + '…'})"
