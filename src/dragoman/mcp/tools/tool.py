"""What a tool is: its name, its schemas, its hints, and who does it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.model.error import A2AError, AuthError, BadCard, CannotConnect, DragomanError
from dragoman.schema.arguments import Schema

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from dragoman.mcp.tools.context import ToolContext

Json = dict[str, Any]


class ToolHandler(Protocol):
    """What a tool does."""

    __name__: str

    def __call__(self, context: ToolContext, call: ToolRequest, /) -> Awaitable[ToolResult | types.InputRequiredResult]:
        """Answer a call. Raises ToolError when that cannot be done."""
        ...


class ToolResult:
    """What a tool gives: JSON, as structured content and as text, and files in a form that hosts can show.

    With `listed`, the text is that array alone, as the tools' documentation wants it.
    """

    def __init__(
        self,
        structured: Json,
        *,
        items: list[Any] | None = None,
        content: list[types.ContentBlock] | None = None,
        is_error: bool = False,
    ) -> None:
        self.structured = structured
        self.is_error = is_error
        self._items = items
        self.content = content or []

    def to_mcp(self) -> types.CallToolResult:
        """The answer as MCP has it."""
        value = self.structured if self._items is None else self._items
        text = types.TextContent(type="text", text=json.dumps(value, indent=2, ensure_ascii=False))
        return types.CallToolResult(
            content=[text, *self.content], structured_content=self.structured, is_error=self.is_error
        )


class ToolDefinition:
    """One tool. Its name and title are its handler's, unless another `name` is given."""

    def __init__(
        self,
        handler: ToolHandler,
        description: str,
        *,
        name: str = "",
        parameters: Mapping[str, Json],
        required: tuple[str, ...] = (),
        result: Mapping[str, Json],
        result_required: tuple[str, ...] = (),
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
    ) -> None:
        self.name = name or handler.__name__
        self.handler = handler
        self._title = handler.__name__.replace("_", " ").capitalize()
        self._description = description
        self._input: Json = {"type": "object", "properties": dict(parameters), "additionalProperties": False}
        if required:
            self._input["required"] = list(required)
        self._output: Json = {"type": "object", "properties": dict(result)}
        if result_required:
            self._output["required"] = list(result_required)
        self._hints = types.ToolAnnotations(
            title=self._title,
            read_only_hint=read_only,
            destructive_hint=destructive and not read_only,
            idempotent_hint=idempotent or read_only,
            open_world_hint=True,
        )

    @cached_property
    def schema(self) -> Schema:
        """The schema of its arguments, to check them."""
        return Schema(self._input)

    def to_mcp(self) -> types.Tool:
        """The tool as a host sees it."""
        return types.Tool(
            name=self.name,
            title=self._title,
            description=self._description,
            input_schema=self._input,
            output_schema=self._output,
            annotations=self._hints,
        )


TIMEOUT = "Request failed: timeout"
NOT_YET = "The agent has not answered yet: its task is not known. Try again in a moment."
# More of what an agent says about an error is not worth reading.
_MAX_ERROR = 500


class ToolError(Exception):
    """A tool fails, and its text says why and what to do instead. `because` is for those who want to know more."""

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail


def request_failed(error: DragomanError) -> ToolError:
    """What to say when a request to an agent failed."""
    if isinstance(error, CannotConnect):
        return ToolError(f"Request failed: {short_reason(error)}")
    if isinstance(error, AuthError):
        return ToolError("Request failed: the agent wants other credentials: the user configures them under [remotes]")
    if isinstance(error, A2AError):
        # In quotes: these are the agent's words, and not ours.
        quoted = f'the agent says "{error.message[:_MAX_ERROR]}"'
        return ToolError(f"Request failed: {quoted} ({type(error).__name__}, {error.code})")
    return ToolError(f"Request failed: {str(error)[:_MAX_ERROR]}")


def card_failed(error: DragomanError, base_url: str) -> ToolError:
    """What to say when an agent's card could not be had."""
    if isinstance(error, CannotConnect):
        return ToolError(f"Failed to resolve agent card: {short_reason(error)}")
    if isinstance(error, BadCard):
        return ToolError(f"No agent card found at {base_url}", detail=str(error))
    return ToolError(f"Failed to resolve agent card: {str(error)[:_MAX_ERROR]}")


def short_reason(error: CannotConnect) -> str:
    """Why nobody answers, in the fewest words."""
    text = str(error).lower()
    if "refused" in text:
        return "connection refused"
    if error.reason == "TIMED_OUT" or "timed out" in text:
        return "timeout"
    return str(error)


_MAX_PROGRESS = 300


class ToolRequest:
    """What a handler is given."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> None:
        self._ctx = ctx
        self._steps = 0
        self.arguments: dict[str, Any] = params.arguments or {}
        self.responses = params.input_responses or {}
        self.state = params.request_state

    def require_text(self, name: str) -> str:
        """A text argument that must be there and not be empty. Raises ToolError."""
        value: Any = self.arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ToolError(f"Invalid params: {name} must not be empty")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that may be left out."""
        value = self.arguments.get(name)
        return default if value is None else value

    # -- the host ------------------------------------------------------------------------------------------------------

    @property
    def is_modern(self) -> bool:
        """True when questions are returned instead of being asked."""
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def can_elicit(self, *, by_url: bool = False) -> bool:
        """True when the host puts questions to its user: with a form, or by sending them to an address."""
        capabilities = self._ctx.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        if elicitation is None:
            return False
        # Before there were two kinds, saying nothing meant forms.
        return elicitation.url is not None if by_url else elicitation.form is not None or elicitation.url is None

    async def report_progress(self, text: str) -> None:
        """Tell the host that it goes on. Display only: the result holds everything."""
        self._steps += 1
        line = " ".join(text.split())
        await self._ctx.session.report_progress(self._steps, None, line[:_MAX_PROGRESS])

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user now; for hosts of the handshake era."""
        request_id = cast("Any", self._ctx.request_id)
        session = self._ctx.session
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(params.message, params.url, params.elicitation_id or "", request_id)
        return await session.elicit_form(params.message, params.requested_schema, request_id)
