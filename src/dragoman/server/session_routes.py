"""The routes of session tasks: `POST /a2a/tasks/send` and `GET /a2a/tasks/{id}`, in plain JSON without an envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from dragoman.clock import timestamp
from dragoman.dialects.errors import status_of
from dragoman.dialects.session_tasks import InvalidBody, read_body, read_task
from dragoman.dialects.table import V1_0
from dragoman.engine.call import Call
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
from dragoman.server.task_desk import TaskDesk, Workshop
from dragoman.transports.http import Disconnected, failure_of, limit_status, refusal_headers, respond

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.clock import Clock
    from dragoman.dialects.reading.limits import JsonLimits
    from dragoman.dialects.session_tasks import AskedTask
    from dragoman.engine.ports import Bus
    from dragoman.model.user import User
    from dragoman.server.http.app import Hosted
    from dragoman.server.invocation_guard import InvocationGuard
    from dragoman.transports.http import Header, Request, Send
    from dragoman.transports.limits import Denials

# Where agents stand under their ids.
API = "/api/agents/"
_SEND = ["a2a", "tasks", "send"]
_INVOKE = ["invoke"]
# These are answered with their text alone.
_PLAIN = (InvalidBody, ParseError, TaskNotFound, Unauthenticated)
_CODES: dict[type[A2AError], str] = {
    InvalidParams: "VALIDATION_ERROR",
    Unauthorized: "AUTHORIZATION_ERROR",
    Overloaded: "RATE_LIMITED",
}


class NoSuchAgent(A2AError):
    """There is no agent for the task."""

    reason = "NOT_FOUND"

    def __init__(self, which: str) -> None:
        super().__init__(f"{which} not found")


def is_session_path(request: Request) -> bool:
    """True for a path of session tasks, relative to the agent."""
    segments = request.segments
    if segments == _INVOKE:
        return request.prefix.startswith(API)
    return len(segments) == len(_SEND) and segments[:2] == _SEND[:2]


def first_with_project(hosted: Iterable[Hosted]) -> Hosted | None:
    """The agent that gets the tasks which are sent to nobody in particular."""
    return next((each for each in hosted if each.agent.default_project_id is not None), None)


class SessionRoutes:
    """Answers for all agents of a server, from one desk."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        guard: InvocationGuard | None = None,
        *,
        body_limit: int,
        limits: JsonLimits,
        denials: Denials | None = None,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._guard = guard
        self._body_limit = body_limit
        self._limits = limits
        self._denials = denials
        self.desk = TaskDesk(guard)

    def renew(self) -> None:
        """Begin with an empty desk, for a new event loop: it knows no task from before."""
        self.desk.clear()
        self.desk = TaskDesk(self._guard)

    async def serve(self, hosted: Hosted | None, request: Request, send: Send, user: User | None) -> None:
        """Answer one request for an agent; None is where there is none. Every error has the form of these routes."""
        sends = request.segments in (_SEND, _INVOKE)
        if request.method != ("POST" if sends else "GET"):
            await not_allowed(send, "POST" if sends else "GET")
            return
        try:
            body = await (self._send(hosted, request, user) if sends else self._get(hosted, request, user))
        except A2AError as error:
            if self._denials is not None:
                self._denials.note(request.caller, error)
            await self.refuse(send, error)
        except (Disconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - it is logged there
            await self.refuse(send, failure_of(error))
        else:
            # What a task says is for its sender alone, and changes until it has ended.
            await respond(send, 200, msgspec.json.encode(body), headers=[(b"cache-control", b"private, no-store")])

    async def refuse(self, send: Send, error: A2AError, *, challenged: bool = True) -> None:
        """Answer with an error. One who is not known is told how to be, unless that stands in a header already."""
        headers: list[Header] = refusal_headers(error)
        status = 404 if isinstance(error, NoSuchAgent) else limit_status(error) or status_of(error).http
        body: dict[str, Any] = {"error": error.message}
        if isinstance(error, Unauthenticated):
            body = {"error": Unauthenticated.text}
            if not challenged:
                headers.append((b"www-authenticate", b"Bearer"))
        elif status == 500:
            body = {"error": "Internal server error", "timestamp": timestamp(self._clock.now())}
        elif not isinstance(error, _PLAIN):
            body["code"] = next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), error.reason)
        await respond(send, status, msgspec.json.encode(body), headers=headers)

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _send(self, hosted: Hosted | None, request: Request, user: User | None) -> dict[str, Any]:
        body = await request.json_body(self._body_limit)
        request.charge(body, self._limits.check(body))
        asked = read_task(read_body(body))
        if hosted is None:
            raise NoSuchAgent("Agent with default project")
        source = (asked.source or "").strip() or request.headers.get("x-source-agent")
        asked = structs.replace(asked, source=source, skill=_skill(hosted, asked))
        shop = Workshop(hosted.agent.name, hosted.service, self._bus, self._clock)
        return await self.desk.send(shop, Call(user=user, origin=V1_0), asked, request.caller, request.lease)

    async def _get(self, hosted: Hosted | None, request: Request, user: User | None) -> dict[str, Any]:
        # At the root are all tasks, whoever works on them.
        agent = hosted.agent.name if hosted is not None and request.prefix else None
        return await self.desk.get(Call(user=user), request.segments[-1], agent)


def _skill(hosted: Hosted, asked: AskedTask) -> str | None:
    """The skill that is asked for, where there is such a skill. Callers name any, and mean the agent."""
    return asked.skill if any(skill.id == asked.skill for skill in hosted.agent.skills) else None
