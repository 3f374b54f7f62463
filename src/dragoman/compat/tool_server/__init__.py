"""The server of MCP tools as functions, without HTTP: cards, `tasks/send`, `tasks/get` and `tasks/cancel` of A2A 0.1.

    from dragoman.compat.tool_server import handle_send, setup_database

    await setup_database("tasks.db")
    outcome, task = await handle_send({"message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}}, user)

An outcome is `("ok", task)` or `("error", {"code": …, "message": …})`, and a task a map in the form of A2A 0.1.
The functions work on one server, which `setup_database` opens and `shutdown` closes; its tools are those of
`dragoman.examples.toolbox`. A `ToolServer` has the same functions for other tools. A user is a `dragoman.User` or a map
`{"id": …, "username": …, "permissions": {key: true}}`; permissions are such a map, or the keys alone. `dragoman serve`
answers the same on the same file, but not at the same time: a store has one server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from dragoman.clock import SystemClock
from dragoman.compat.tool_server.answers import ToolAnswers
from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.compat.tool_server.rows import NumberedTasks
from dragoman.dialects.cards.v01 import plain_card
from dragoman.dialects.errors import rpc_error
from dragoman.dialects.negotiate import MethodMatch
from dragoman.engine.call import CallContext
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import A2AError, ConfigError, InvalidParams, Unauthenticated
from dragoman.model.json import decode_any, encode
from dragoman.model.operation import Operation
from dragoman.model.task import Task
from dragoman.model.user import User
from dragoman.server.agent.frameworks import require
from dragoman.server.agent.in_process import ServiceConnection, connect
from dragoman.server.build import open_store
from dragoman.server.cards.cache import build_card, offers_for, schemas_of
from dragoman.transports.endpoint import JSON_LIMITS, Endpoint

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Offer
    from dragoman.engine.operations import Service
    from dragoman.server.agent.agent import Agent

    Json = dict[str, Any]
    Outcome: TypeAlias = tuple[Literal["ok", "error"], Json]
    Permissions: TypeAlias = Mapping[Any, bool] | Iterable[Any]
    Who: TypeAlias = User | Mapping[str, Any] | None

__all__ = [
    "ToolServer",
    "agent_card",
    "call_tool_as",
    "handle_cancel",
    "handle_get",
    "handle_send",
    "public_agent_card",
    "setup_database",
    "shutdown",
    "tools_for_permissions",
]

MEMORY, URL = "memory:", "https://localhost"
# Imported when it is used: it needs an extra.
_TOOLBOX = "dragoman.compat.tool_server.toolbox"
_COOKIE = {"cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "user"}}}
# The code of what a tool refuses or fails at, where no task is there to tell it.
_TOOL_FAILED = -32000


class ToolServer:
    """An agent of tools with its database, open between `open` and `close`, or in `async with`.

    `store` is a path or a store URL, and `database` is it as a URL; `url` is where the card says that it is served.
    """

    def __init__(self, agent: Agent | None = None, store: str | os.PathLike[str] = MEMORY, url: str = URL) -> None:
        self.agent: Agent = agent if agent is not None else require(_TOOLBOX, "mcp").new_agent()
        self.database = _store_url(store)
        self.url = url.rstrip("/")
        self._connection: ServiceConnection | None = None
        self._answers: ToolAnswers | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Create or open the database, start the tools, and end what a crash interrupted. Twice is once.

        Raises:
            ConfigError: the database cannot be opened or is another server's, or a program is not there.
            CannotConnect: the tools do not answer.
        """
        if self._connection is not None and self._loop is asyncio.get_running_loop():
            return
        await self.close()
        store, clock = open_store(self.database), SystemClock()
        settings = EngineSettings(drain=0, task_rows=NumberedTasks(store, clock))
        connection = connect(self.agent, store=store, clock=clock, settings=settings)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._answers = ToolAnswers(store, clock)

    async def close(self) -> None:
        """Stop the tools and close the database. What is at work then is interrupted."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def public_agent_card(self) -> Json:
        """The card for everybody: the tools that need no permission."""
        return await self.agent_card(())

    async def agent_card(self, permissions: Permissions) -> Json:
        """The card for who has these permissions. Raises ConfigError when the server is not open."""
        user, offers = self._open_to(permissions)
        card = build_card(self.agent, self.url, user, security=(_COOKIE, []), linked=True)
        return plain_card(card, ((offer.id, offer.description) for offer in offers), self.agent.card)

    async def tools_for_permissions(self, permissions: Permissions) -> list[Json]:
        """The tools that these permissions open, each with `name`, `description` and `inputSchema`."""
        _, offers = self._open_to(permissions)
        schemas: Json = schemas_of(self.agent, offers)
        tools = [{"name": each.id, "description": each.description} for each in offers]
        return [each | {"inputSchema": schemas.get(each["name"], {}).get("inputSchema", {})} for each in tools]

    def _open_to(self, permissions: Permissions) -> tuple[User, list[Offer]]:
        self._service()  # without it the tools are not known
        user = User("", permissions=_permission_keys(permissions))
        return user, offers_for(self.agent, user)

    async def handle_send(self, params: Any, user: Who) -> Outcome:
        """Carry out `tasks/send`: run the tool as the user, and give the task once it has ended.

        Raises:
            ConfigError: the server is not open, or the user has no id.
            TypeError: something in `params` has no JSON form.
        """
        return await self._handle(Operation.SEND, params, user)

    async def handle_get(self, params: Any, user: Who) -> Outcome:
        """Carry out `tasks/get`: the user's task as it is now. Raises like `handle_send`."""
        return await self._handle(Operation.GET, params, user)

    async def handle_cancel(self, params: Any, user: Who) -> Outcome:
        """Carry out `tasks/cancel`: the task is canceled, also if it has ended before. Raises like `handle_send`."""
        return await self._handle(Operation.CANCEL, params, user)

    async def _handle(self, operation: Operation, params: Any, user: Who) -> Outcome:
        service, caller = self._service(), _user(user)
        if caller is None:
            return _error_outcome(Unauthenticated())
        return await _perform(service, operation, params, caller, self._answers)

    async def call_tool_as(self, tool: str, arguments: Mapping[str, Any] | None, user: Who) -> Outcome:
        """Run a tool as a user, or as nobody, without leaving a task.

        Gives `("ok", {"content": [{"type": "text", "text": …}]})`, or an error with the reason: `Unauthorized: …` for
        who lacks the permission. Raises like `handle_send`.
        """
        self._service()
        part = {"type": "data", "data": {"tool": tool, "arguments": dict(arguments or {})}}
        params = {"message": {"role": "user", "parts": [part]}}
        # An engine for this one call, which keeps what it writes in memory and is forgotten with it.
        service = connect(self.agent).service
        try:
            outcome, task = await _perform(service, Operation.SEND, params, _user(user))
        finally:
            await service.close()
        if outcome == "error":
            return outcome, task
        content = [part for artifact in task["artifacts"] for part in artifact["parts"]]
        if task["status"]["state"] == "completed":
            return ("ok", {"content": content})
        text = "".join(part.get("text", "") for part in content)
        return ("error", {"code": _TOOL_FAILED, "message": text or "the tool failed"})

    def _service(self) -> Service:
        if self._connection is None or self._loop is not asyncio.get_running_loop():
            raise ConfigError("the server of tools is not open in this event loop: `await server.open()` first")
        return self._connection.service


_default: ToolServer | None = None


async def setup_database(db: str | os.PathLike[str] = MEMORY) -> None:
    """Open the server of the functions below on a file or a store URL; tables and indexes are made if need be.

    Called again with the same, it changes nothing; with another, it closes the one before. Raises like
    `ToolServer.open`, and ConfigError when dragoman[mcp] is not installed.
    """
    global _default  # noqa: PLW0603 - one server is what these functions are about
    if _default is None or _default.database != _store_url(db):
        await shutdown()
        _default = ToolServer(store=db)
    await _default.open()


async def shutdown() -> None:
    """Close the server that `setup_database` opened, if it did."""
    global _default
    server, _default = _default, None
    if server is not None:
        await server.close()


async def public_agent_card() -> Json:
    """Return the public card of the default server. Raises ConfigError when there is none."""
    return await _default_server().public_agent_card()


async def agent_card(permissions: Permissions) -> Json:
    """Return the default server's card for callers with these permissions. Raises ConfigError when there is none."""
    return await _default_server().agent_card(permissions)


async def tools_for_permissions(permissions: Permissions) -> list[Json]:
    """Return the tools of the default server that these permissions open. Raises ConfigError when there is none."""
    return await _default_server().tools_for_permissions(permissions)


async def handle_send(params: Any, user: Who) -> Outcome:
    """Carry out `tasks/send` on the default server. Raises ConfigError when there is none."""
    return await _default_server().handle_send(params, user)


async def handle_get(params: Any, user: Who) -> Outcome:
    """Carry out `tasks/get` on the default server. Raises ConfigError when there is none."""
    return await _default_server().handle_get(params, user)


async def handle_cancel(params: Any, user: Who) -> Outcome:
    """Carry out `tasks/cancel` on the default server. Raises ConfigError when there is none."""
    return await _default_server().handle_cancel(params, user)


async def call_tool_as(tool: str, arguments: Mapping[str, Any] | None, user: Who) -> Outcome:
    """Run a tool of the default server as a user. Raises ConfigError when there is none."""
    return await _default_server().call_tool_as(tool, arguments, user)


def _default_server() -> ToolServer:
    if _default is None:
        raise ConfigError("there is no database yet: `await setup_database(db)` first")
    return _default


async def _perform(
    service: Service, operation: Operation, params: Any, user: User | None, answers: ToolAnswers | None = None
) -> Outcome:
    call = CallContext(user=user, origin=TOOL_TASKS.origin, asks=TOOL_TASKS.asks)
    try:
        request = TOOL_TASKS.read_request(operation, _encode_params(params))
        endpoint = Endpoint(service, (), body_limit=0, blocking=True)
        if answers is None:
            outcome = await endpoint.perform(operation, call, request, None)
        else:
            outcome = await answers.perform(endpoint, MethodMatch(operation, TOOL_TASKS), call, request)
        assert isinstance(outcome.result, Task)
        return ("ok", decode_any(TOOL_TASKS.write_result(operation, outcome.result)))
    except A2AError as error:
        return _error_outcome(error)


def _encode_params(params: Any) -> bytes:
    if params is not None and not isinstance(params, dict):
        raise InvalidParams("params must be an object", field="params")
    try:
        encoded = encode(params)
    except (UnicodeEncodeError, RecursionError):
        raise InvalidParams("params cannot be written as JSON", field="params") from None
    JSON_LIMITS.check(encoded, "params")
    return encoded


def _error_outcome(error: A2AError) -> Outcome:
    error_object = rpc_error(error, TOOL_TASKS.version)
    return ("error", {key: error_object[key] for key in ("code", "message")})


def _store_url(store: str | os.PathLike[str]) -> str:
    path = os.fspath(store)
    return path if path == MEMORY or "://" in path else f"sqlite:///{path}"


def _user(who: Who) -> User | None:
    if who is None or isinstance(who, User):
        return who
    key = who.get("id")
    if not isinstance(key, (str, int)) or isinstance(key, bool) or key == "":
        raise ConfigError('a user needs an id: {"id": 1, "username": "ada", "permissions": {"admin": True}}')
    return User(str(key), str(who.get("username") or ""), _permission_keys(who.get("permissions") or ()))


def _permission_keys(permissions: Permissions) -> frozenset[str]:
    # Of a map, only what is true counts; keys may be numbers.
    keys = [key for key in permissions if not isinstance(permissions, Mapping) or permissions[key] is True]
    return frozenset(map(str, keys))
