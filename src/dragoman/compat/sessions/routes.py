"""The routes of session servers, in plain JSON without an envelope: send a task, poll it, and the card of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from dragoman.clock import timestamp
from dragoman.compat.sessions.cards import AgentCards
from dragoman.compat.sessions.dialect import InvalidBody, parse_body, parse_task_request
from dragoman.compat.sessions.registry import AgentEngine, TaskRegistry
from dragoman.dialects.errors import status_of
from dragoman.dialects.table import V1_0
from dragoman.engine.call import CallContext
from dragoman.model.error import (
    A2AError,
    InvalidParams,
    Overloaded,
    ParseError,
    TaskNotFound,
    Unauthenticated,
    Unauthorized,
)
from dragoman.server.http.pages import not_allowed
from dragoman.server.plugins import RoutePath
from dragoman.transports.http import Disconnected, error_headers, limit_status, respond, unexpected_error

if TYPE_CHECKING:
    from dragoman.compat.sessions.dialect import SessionTaskRequest
    from dragoman.compat.sessions.invocation_guard import InvocationGuard
    from dragoman.model.user import User
    from dragoman.server.http.hosted import HostedAgent
    from dragoman.server.plugins import PluginContext
    from dragoman.transports.http import Header, Request, Send

# The prefix under which each agent has its id as path.
API = "/api/agents/"
_SEND = ["a2a", "tasks", "send"]
_INVOKE = ["invoke"]
# Errors whose body is `{"error": text}`, without a code.
_PLAIN = (InvalidBody, ParseError, TaskNotFound, Unauthenticated)
_CODES: dict[type[A2AError], str] = {
    InvalidParams: "VALIDATION_ERROR",
    Unauthorized: "AUTHORIZATION_ERROR",
    Overloaded: "RATE_LIMITED",
}


class NoSuchAgent(A2AError):
    """There is no agent for the task."""

    reason = "NOT_FOUND"

    def __init__(self, agent: str) -> None:
        super().__init__(f"{agent} not found")


class SessionRoutes:
    """Serves the session routes of all agents of a server, with one registry of tasks."""

    mounts = (API,)
    paths = (
        RoutePath(("a2a", "tasks", "*")),
        RoutePath(("invoke",), mount=API),
        RoutePath(("agent-card",), mount=API, page=True),
    )

    def __init__(self, site: PluginContext, guard: InvocationGuard | None = None) -> None:
        self._site = site
        self._cards = {each.agent.name: AgentCards(each.agent, each.cards) for each in site.agents}
        self._registry = TaskRegistry(guard)

    async def close(self) -> None:
        """Drop every task, and wait for background work."""
        await self._registry.close()

    def page(
        self, hosted: HostedAgent, request: Request, base: str, user: User | None
    ) -> tuple[int, bytes, list[Header]]:
        """Return the card of an agent: status, body and headers."""
        return self._cards[hosted.agent.name].serve(request, base, user)

    async def no_agent(self, name: str, send: Send) -> None:
        """Respond that there is no such agent."""
        await self.refuse(send, NoSuchAgent(f"Agent {name}"))

    async def serve(self, hosted: HostedAgent, request: Request, send: Send, user: User | None) -> None:
        """Serve one request. Without an agent in its path, a task is for the first agent that has a project."""
        target = hosted if request.prefix else self._first_with_project()
        await self._serve(target, request, send, user)

    def _first_with_project(self) -> HostedAgent | None:
        return next((each for each in self._site.agents if each.agent.default_project_id is not None), None)

    async def _serve(self, hosted: HostedAgent | None, request: Request, send: Send, user: User | None) -> None:
        sends = request.segments in (_SEND, _INVOKE)
        if request.method != ("POST" if sends else "GET"):
            await not_allowed(send, "POST" if sends else "GET")
            return
        try:
            body = await (self._send(hosted, request, user) if sends else self._get(hosted, request, user))
        except A2AError as error:
            self._site.denials.log(request.caller, error)
            await self.refuse(send, error)
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await self.refuse(send, unexpected_error(error))
        else:
            # A task is for its sender only, and changes until it has ended.
            await respond(send, 200, msgspec.json.encode(body), headers=[(b"cache-control", b"private, no-store")])

    async def refuse(self, send: Send, error: A2AError, *, challenged: bool = True) -> None:
        """Respond with an error. `challenged` says that unauthenticated callers already get a `WWW-Authenticate`."""
        headers: list[Header] = error_headers(error)
        status = 404 if isinstance(error, NoSuchAgent) else limit_status(error) or status_of(error).http
        body: dict[str, Any] = {"error": error.message}
        if isinstance(error, Unauthenticated):
            body = {"error": Unauthenticated.text}
            if not challenged:
                headers.append((b"www-authenticate", b"Bearer"))
        elif status == 500:
            body = {"error": "Internal server error", "timestamp": timestamp(self._site.clock.now())}
        elif not isinstance(error, _PLAIN):
            body["code"] = next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), error.reason)
        await respond(send, status, msgspec.json.encode(body), headers=headers)

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _send(self, hosted: HostedAgent | None, request: Request, user: User | None) -> dict[str, Any]:
        site = self._site
        body = await request.json_body(site.body_limit)
        request.charge(body, site.limits.check(body))
        task_request = parse_task_request(parse_body(body))
        if hosted is None:
            raise NoSuchAgent("Agent with default project")
        source = (task_request.source or "").strip() or request.headers.get("x-source-agent")
        task_request = structs.replace(task_request, source=source, skill=_skill(hosted, task_request))
        engine = AgentEngine(hosted.agent.name, hosted.service, site.bus, site.clock)
        return await self._registry.send(
            engine, CallContext(user=user, origin=V1_0), task_request, request.caller, request.lease
        )

    async def _get(self, hosted: HostedAgent | None, request: Request, user: User | None) -> dict[str, Any]:
        # Without an agent in the path, tasks of all agents are found.
        agent = hosted.agent.name if hosted is not None and request.prefix else None
        return await self._registry.get(CallContext(user=user), request.segments[-1], agent)


def _skill(hosted: HostedAgent, request: SessionTaskRequest) -> str | None:
    """Return the requested skill if the agent has it. Callers may name any skill and mean the agent."""
    return request.skill if any(skill.id == request.skill for skill in hosted.agent.skills) else None
