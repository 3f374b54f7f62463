"""Tool definitions, requests, results and errors of the MCP server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.model.error import A2AError, AuthError, BadCard, CannotConnect, DragomanError, TimedOut
from dragoman.schema.arguments import Schema
from dragoman.telemetry.printable import one_line

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from dragoman.mcp.tools.context import ToolContext

Json = dict[str, Any]
TIMEOUT = "Request failed: timeout"
NOT_YET = "The agent has not answered yet: its task is not known. Try again in a moment."
# How many characters of an agent's error message are shown.
_MAX_ERROR = 500
_MAX_PROGRESS = 300


class ToolHandler(Protocol):
    """The async function that implements a tool."""

    __name__: str

    def __call__(
        self, context: ToolContext, call: ToolInvocation, /
    ) -> Awaitable[ToolResult | types.InputRequiredResult]:
        """Handle a call. Raises ToolError when it fails."""
        ...


class ToolResult:
    """The result of a tool: JSON as structured content and as text, and files as content blocks.

    With `items`, the text is that array alone, as the tools' documentation specifies.
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
        """Return the result in the types of MCP."""
        value = self.structured if self._items is None else self._items
        text = types.TextContent(type="text", text=json.dumps(value, indent=2, ensure_ascii=False))
        return types.CallToolResult(
            content=[text, *self.content], structured_content=self.structured, is_error=self.is_error
        )


class ToolDefinition:
    """A tool: handler, description and schemas. Name and title come from the handler unless `name` is given."""

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
        """The schema that validates its arguments."""
        return Schema(self._input)

    def to_mcp(self) -> types.Tool:
        """Return the tool as listed to hosts."""
        return types.Tool(
            name=self.name,
            title=self._title,
            description=self._description,
            input_schema=self._input,
            output_schema=self._output,
            annotations=self._hints,
        )


class ToolError(Exception):
    """A tool call failed. The text tells the model why and what to do instead; `detail` has more."""

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail


def request_failed(error: DragomanError) -> ToolError:
    """Build the error for a failed request to an agent."""
    if isinstance(error, CannotConnect):
        return ToolError(f"Request failed: {short_reason(error)}")
    if isinstance(error, AuthError):
        return ToolError("Request failed: the agent wants other credentials: the user configures them under [remotes]")
    if isinstance(error, A2AError):
        # Quoted, and on one line: it is the agent's text, not ours.
        quoted = f'the agent says "{one_line(error.message[:_MAX_ERROR])}"'
        return ToolError(f"Request failed: {quoted} ({type(error).__name__}, {error.code})")
    return ToolError(f"Request failed: {one_line(str(error)[:_MAX_ERROR])}")


def card_failed(error: DragomanError, base_url: str) -> ToolError:
    """Build the error for a card that could not be fetched."""
    if isinstance(error, CannotConnect):
        return ToolError(f"Failed to resolve agent card: {short_reason(error)}")
    if isinstance(error, BadCard):
        return ToolError(f"No agent card found at {base_url}", detail=str(error))
    return ToolError(f"Failed to resolve agent card: {one_line(str(error)[:_MAX_ERROR])}")


def short_reason(error: CannotConnect) -> str:
    """Return a short reason why an agent cannot be reached."""
    text = str(error).lower()
    if "refused" in text:
        return "connection refused"
    if isinstance(error, TimedOut) or "timed out" in text:
        return "timeout"
    return one_line(str(error)[:_MAX_ERROR])


class ToolInvocation:
    """One call of a tool: its arguments, and access to the host."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> None:
        self._ctx = ctx
        self._steps = 0
        self.arguments: dict[str, Any] = params.arguments or {}
        self.responses = params.input_responses or {}
        self.state = params.request_state

    def require_text(self, name: str) -> str:
        """Return a required text argument. Raises ToolError when it is missing or blank."""
        value: Any = self.arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ToolError(f"Invalid params: {name} must not be empty")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an optional argument, or `default`."""
        value = self.arguments.get(name)
        return default if value is None else value

    # -- the host ------------------------------------------------------------------------------------------------------

    @property
    def is_modern(self) -> bool:
        """True for protocol revisions in which elicitations are returned as results instead of being sent."""
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def can_elicit(self, *, by_url: bool = False) -> bool:
        """True when the host supports elicitation: by form, or with `by_url` by opening a URL."""
        capabilities = self._ctx.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        if elicitation is None:
            return False
        # Before URL elicitation existed, an empty capability meant forms.
        return elicitation.url is not None if by_url else elicitation.form is not None or elicitation.url is None

    async def report_progress(self, text: str) -> None:
        """Report progress to the host. For display only: the result holds everything."""
        self._steps += 1
        line = " ".join(text.split())
        await self._ctx.session.report_progress(self._steps, None, line[:_MAX_PROGRESS])

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user and wait for the answer; for hosts that are not `is_modern`. Raises MCPError."""
        request_id = cast("Any", self._ctx.request_id)
        session = self._ctx.session
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(params.message, params.url, params.elicitation_id or "", request_id)
        return await session.elicit_form(params.message, params.requested_schema, request_id)
