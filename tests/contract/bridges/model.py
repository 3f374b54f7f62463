"""The script of the language models of the contract, the same for every framework, and the tools that it calls."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from contract.bridges.bridge import REASON, SECRET, Behavior, Question
from contract.bridges.checkpoints import wait_at
from opentelemetry import trace

from dragoman import Failed

TRACER = trace.get_tracer("contract")


@dataclass
class Prompt:
    """What a model is given: the texts of each message of the user, the last file, and results of the last calls."""

    messages: list[list[str]] = field(default_factory=list[list[str]])
    results: list[str] = field(default_factory=list[str])
    image: tuple[str, bytes] | None = None

    @property
    def order(self) -> str:
        return self.messages[-1][0].split()[0]


@dataclass(frozen=True)
class ToolCall:
    tool: str
    arguments: dict[str, int]


TOOLS: dict[str, ToolCall] = {
    "ask": ToolCall("pay", {"amount": 3}),
    **{order: ToolCall(order, {}) for order in ("wait", "fail", "refuse", "leave", "span", "who")},
}


async def speak(prompt: Prompt, port: int) -> AsyncIterator[str | ToolCall]:
    """Yield what the model says: pieces of text, and a call of a tool at the end."""
    order = "leave" if prompt.order == "exit" else prompt.order
    if prompt.results:
        yield prompt.results[-1]
    elif order in TOOLS:
        if order == "ask":
            yield "Well."
        yield TOOLS[order]
    elif order == "tell":
        yield "one "
        await wait_at(port, "tell")
        yield "two"
    elif order == "remember":
        yield json.dumps([texts[0] for texts in prompt.messages if texts[0].startswith("remember")])
    elif order == "look":
        assert prompt.image is not None
        media_type, content = prompt.image
        yield json.dumps([media_type, base64.b64encode(content).decode()])
    elif order == "read":
        yield prompt.messages[-1][1]
    else:
        raise AssertionError(f"an unknown order: {order}")


async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def plain_tools(port: int) -> Sequence[Callable[[], Awaitable[str]]]:
    """The tools that need nothing of the framework."""

    async def wait() -> str:
        """Wait."""
        await wait_at(port, "wait")
        return "done"

    async def fail() -> str:
        """Fail."""
        raise ValueError(SECRET)

    async def refuse() -> str:
        """Fail for a reason."""
        raise Failed(REASON)

    async def leave() -> str:
        """End the program."""
        sys.exit(3)

    async def span() -> str:
        """Open a span."""
        with TRACER.start_as_current_span("in the work"):
            return "done"

    return wait, fail, refuse, leave, span


APPROVAL = Question(
    text='May I call pay({"amount":3})?',
    wrong="perhaps",
    again='May I call pay({"amount":3})? Please answer yes or no.',
    answer="yes",
    result="Well.\n\npaid 3",
)

LACKS: dict[Behavior, str] = {
    "file out": "the framework has no files in its answers",
    "progress": "calls of tools are nobody else's business, and the framework reports nothing else",
    "login": "the framework has no way to ask for a login",
    "run again": "a model may have had effects through its tools: there is no option to run it twice",
}
