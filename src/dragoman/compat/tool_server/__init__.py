"""A tool server of A2A 0.1 as functions, without HTTP: agent cards, `tasks/send`, `tasks/get` and `tasks/cancel`.

    from dragoman.compat.tool_server import handle_send, setup_database

    await setup_database("tasks.db")
    outcome, task = await handle_send({"message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}}, user)

An outcome is `("ok", task)` or `("error", {"code": …, "message": …})`; a task is a map in the form of A2A 0.1.
The functions use one default server, which `setup_database` opens and `shutdown` closes; its tools are those of
`dragoman.examples.toolbox`. A `ToolServer` has the same functions for other tools. A user is a `dragoman.User` or a map
`{"id": …, "username": …, "permissions": {key: true}}`; permissions are such a map, or the keys alone. `dragoman serve`
works on the same file, but not at the same time: a store has one server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from dragoman.clock import SystemClock
from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.compat.tool_server.responses import ToolResponses
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
    UserOrMap: TypeAlias = User | Mapping[str, Any] | None

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
# Imported when first used, as it needs dragoman[mcp].
_TOOLBOX = "dragoman.compat.tool_server.toolbox"
_COOKIE = {"cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "user"}}}
# The error code of a failed tool where no task is returned that could say so.
_TOOL_FAILED = -32000


class ToolServer:
    """An agent made of MCP tools, with its database. Use it with `async with`, or with `open` and `close`.

    `store` is a path or a store URL; the attribute `database` is its URL. `url` is the address on the card.

    Raises:
        ConfigError: `agent` is not given, and dragoman[mcp] is not installed.
    """

    def __init__(self, agent: Agent | None = None, store: str | os.PathLike[str] = MEMORY, url: str = URL) -> None:
        self.agent: Agent = agent if agent is not None else require(_TOOLBOX, "mcp").new_agent()
        self.database = _store_url(store)
        self.url = url.rstrip("/")
        self._connection: ServiceConnection | None = None
        self._responses: ToolResponses | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Create or open the database, start the tools, and recover tasks that a crash interrupted.

        Does nothing when already open in this event loop; a server that is open in another loop is closed first.

        Raises:
            ConfigError: the database cannot be opened or another server uses it, or a program does not exist.
            CannotConnect: an MCP server does not respond.
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
        self._responses = ToolResponses(store, clock)

    async def close(self) -> None:
        """Stop the tools and close the database. Running tasks are interrupted."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def public_agent_card(self) -> Json:
        """Return the card for callers without permissions. Raises like `agent_card`."""
        return await self.agent_card(())

    async def agent_card(self, permissions: Permissions) -> Json:
        """Return the card with the tools that these permissions allow. It needs no database.

        Raises:
            ConfigError: the server is open in another event loop, or the program of the tools does not exist.
            CannotConnect: an MCP server does not respond.
        """
        async with self._offers(permissions) as (user, offers):
            card = build_card(self.agent, self.url, user, security=(_COOKIE, []), linked=True)
            return plain_card(card, self.url, ((offer.id, offer.description) for offer in offers), self.agent.card)

    async def tools_for_permissions(self, permissions: Permissions) -> list[Json]:
        """Return the tools that these permissions allow, each with `name`, `description` and `inputSchema`.

        Raises like `agent_card`.
        """
        async with self._offers(permissions) as (_, offers):
            schemas: Json = schemas_of(self.agent, offers)
            tools = [{"name": each.id, "description": each.description} for each in offers]
            return [each | {"inputSchema": schemas.get(each["name"], {}).get("inputSchema", {})} for each in tools]

    @asynccontextmanager
    async def _offers(self, permissions: Permissions) -> AsyncGenerator[tuple[User, list[Offer]]]:
        """The caller and the tools it may use. Unless the server is open, the tools are started for this alone."""
        user = User("", permissions=_permission_keys(permissions))
        if self._connection is not None:
            self._service()  # raises in another event loop
            yield user, offers_for(self.agent, user)
            return
        if self.agent.backend.open is not None:
            await self.agent.backend.open()
        try:
            yield user, offers_for(self.agent, user)
        finally:
            await self.agent.close()

    async def handle_send(self, params: Any, user: UserOrMap) -> Outcome:
        """Perform `tasks/send`: run a tool as the user, and return the task when it has ended.

        Raises:
            ConfigError: the server is not open, or the user has no id.
            TypeError: something in `params` has no JSON form.
        """
        return await self._handle(Operation.SEND, params, user)

    async def handle_get(self, params: Any, user: UserOrMap) -> Outcome:
        """Perform `tasks/get`: return the user's task as it is now. Raises like `handle_send`."""
        return await self._handle(Operation.GET, params, user)

    async def handle_cancel(self, params: Any, user: UserOrMap) -> Outcome:
        """Perform `tasks/cancel`: the task is canceled, even if it has ended before. Raises like `handle_send`."""
        return await self._handle(Operation.CANCEL, params, user)

    async def _handle(self, operation: Operation, params: Any, user: UserOrMap) -> Outcome:
        service, caller = self._service(), _to_user(user)
        if caller is None:
            return _error_outcome(Unauthenticated())
        return await _perform(service, operation, params, caller, self._responses)

    async def call_tool_as(self, tool: str, arguments: Mapping[str, Any] | None, user: UserOrMap) -> Outcome:
        """Run a tool as a user, or anonymously, without storing a task.

        Returns `("ok", {"content": [{"type": "text", "text": …}]})`, or an error with the reason: `Unauthorized: …` for
        a user without the permission. Raises like `handle_send`.
        """
        self._service()
        part = {"type": "data", "data": {"tool": tool, "arguments": dict(arguments or {})}}
        params = {"message": {"role": "user", "parts": [part]}}
        # An engine for this one call, with a store in memory.
        service = connect(self.agent).service
        try:
            outcome, task = await _perform(service, Operation.SEND, params, _to_user(user))
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
    """Open the default server on a path or a store URL; missing tables and indexes are created.

    Called again with the same database, it does nothing; with another one, it closes the server before. Raises like
    `ToolServer.open`, and ConfigError when dragoman[mcp] is not installed.
    """
    global _default  # noqa: PLW0603 - one server is what these functions are about
    if _default is None or _default.database != _store_url(db):
        await shutdown()
        _default = ToolServer(store=db)
    await _default.open()


async def shutdown() -> None:
    """Close the default server, if it is open."""
    global _default
    server, _default = _default, None
    if server is not None:
        await server.close()


async def public_agent_card() -> Json:
    """Return the public card of the default server, also before `setup_database`. Raises like the method."""
    return await (_default or ToolServer()).public_agent_card()


async def agent_card(permissions: Permissions) -> Json:
    """Return the default server's card for these permissions, also before `setup_database`. Raises like the method."""
    return await (_default or ToolServer()).agent_card(permissions)


async def tools_for_permissions(permissions: Permissions) -> list[Json]:
    """Return the default server's tools for these permissions, also before `setup_database`. Raises like the method."""
    return await (_default or ToolServer()).tools_for_permissions(permissions)


async def handle_send(params: Any, user: UserOrMap) -> Outcome:
    """Perform `tasks/send` on the default server. Raises ConfigError when there is none, else like the method."""
    return await _default_server().handle_send(params, user)


async def handle_get(params: Any, user: UserOrMap) -> Outcome:
    """Perform `tasks/get` on the default server. Raises ConfigError when there is none, else like the method."""
    return await _default_server().handle_get(params, user)


async def handle_cancel(params: Any, user: UserOrMap) -> Outcome:
    """Perform `tasks/cancel` on the default server. Raises ConfigError when there is none, else like the method."""
    return await _default_server().handle_cancel(params, user)


async def call_tool_as(tool: str, arguments: Mapping[str, Any] | None, user: UserOrMap) -> Outcome:
    """Run a tool of the default server as a user. Raises ConfigError when there is none, else like the method."""
    return await _default_server().call_tool_as(tool, arguments, user)


def _default_server() -> ToolServer:
    if _default is None:
        raise ConfigError("there is no database yet: `await setup_database(db)` first")
    return _default


async def _perform(
    service: Service, operation: Operation, params: Any, user: User | None, responses: ToolResponses | None = None
) -> Outcome:
    call = CallContext(user=user, origin=TOOL_TASKS.origin, asks=TOOL_TASKS.asks)
    try:
        request = TOOL_TASKS.read_request(operation, _encode_params(params))
        endpoint = Endpoint(service, (), body_limit=0, blocking=True)
        if responses is None:
            outcome = await endpoint.perform(operation, call, request, None)
        else:
            outcome = await responses.perform(endpoint, MethodMatch(operation, TOOL_TASKS), call, request)
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


def _to_user(user: UserOrMap) -> User | None:
    if user is None or isinstance(user, User):
        return user
    user_id = user.get("id")
    if not isinstance(user_id, (str, int)) or isinstance(user_id, bool) or user_id == "":
        raise ConfigError('a user needs an id: {"id": 1, "username": "ada", "permissions": {"admin": True}}')
    return User(str(user_id), str(user.get("username") or ""), _permission_keys(user.get("permissions") or ()))


def _permission_keys(permissions: Permissions) -> frozenset[str]:
    # In a map, only keys whose value is True count; keys may be numbers.
    keys = [key for key in permissions if not isinstance(permissions, Mapping) or permissions[key] is True]
    return frozenset(map(str, keys))
