"""One call of a tool by a host: its arguments, and what the host can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.mcp.problem import ToolProblem

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_LONGEST = 300


class Call:
    """What a handler is given."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> None:
        self._ctx = ctx
        self._steps = 0
        self.arguments: dict[str, Any] = params.arguments or {}
        self.responses = params.input_responses or {}
        self.state = params.request_state

    def text(self, name: str) -> str:
        """A text argument that must be there and not be empty. Raises ToolProblem."""
        value: Any = self.arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ToolProblem(f"Invalid params: {name} must not be empty")
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

    def can_ask(self, *, url: bool = False) -> bool:
        """True when the host puts questions to its user: with a form, or by sending them to an address."""
        capabilities = self._ctx.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        if elicitation is None:
            return False
        # Before there were two kinds, saying nothing meant forms.
        return elicitation.url is not None if url else elicitation.form is not None or elicitation.url is None

    async def progress(self, text: str) -> None:
        """Tell the host that it goes on. Display only: the result holds everything."""
        self._steps += 1
        said = " ".join(text.split())
        await self._ctx.session.report_progress(self._steps, None, said[:_LONGEST])

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user now; for hosts of the handshake era."""
        request_id = cast("Any", self._ctx.request_id)
        session = self._ctx.session
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(params.message, params.url, params.elicitation_id or "", request_id)
        return await session.elicit_form(params.message, params.requested_schema, request_id)
