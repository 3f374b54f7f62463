"""The async client: `Client` and `Chat`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from dragoman.client.connect import connect
from dragoman.client.follow import ResumableStream
from dragoman.client.message import build_message, build_send_request, task_id_of
from dragoman.client.options import (
    ClientOptions,
    MessageOptions,
    SendOptions,
    SendTurnOptions,
    TaskLike,
    TurnOptions,
    takes,
)
from dragoman.client.streams.backoff import Outage
from dragoman.client.streams.stream import EventStream
from dragoman.client.tool import build_tool
from dragoman.model.card import AgentCard
from dragoman.model.error import ConfigError, DragomanError
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    ListTasksResponse,
    Operation,
    TaskPushNotificationConfig,
)
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.telemetry.metrics.otel import FORWARDING
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from types import TracebackType

    from dragoman.client.connection import Connection
    from dragoman.client.follow import FollowOptions
    from dragoman.client.streams.backoff import Backoff
    from dragoman.model.operation import Request


class Chat:
    """A conversation with one agent.

    It remembers the last response: the next message answers the task that waits for input, if there is one, and
    otherwise starts a new task in the same context.
    """

    def __init__(self, client: Client, context: TaskLike | None = None, auth: object = None) -> None:
        self._client = client
        self._auth = auth
        self._context = context
        self.last: Task | Message | None = None

    @property
    def context_id(self) -> str | None:
        """The context id of the conversation; None before the first response."""
        if self.last is not None and self.last.context_id:
            return self.last.context_id
        return self._context if self._context is None or isinstance(self._context, str) else self._context.context_id

    @property
    def question(self) -> str | None:
        """The open question of the agent, or None."""
        return self.last.question if self.last is not None else None

    @takes(SendTurnOptions.__init__, SendTurnOptions)
    async def send(self, *args: Any, **keywords: Any) -> Task | Message:
        """Send the next message with the options of `Client.send`. Raises the same errors."""
        self.last = await self._client.send(*args, **self._continuation(), **keywords)
        return self.last

    @takes(TurnOptions.__init__, TurnOptions)
    def stream(self, *args: Any, **keywords: Any) -> EventStream:
        """Send the next message with the options of `Client.stream` and return its stream. Raises the same errors."""
        stream: EventStream = self._client.stream(*args, **self._continuation(), **keywords)
        return stream._observe(self._set_last, self._complete_last)  # pyright: ignore[reportPrivateUsage]

    def _set_last(self, result: Task | Message) -> None:
        self.last = result

    async def _complete_last(self) -> None:
        if isinstance(self.last, Task) and not self.last.context_id:
            # Events of 0.1 do not carry the context id; the task does.
            self.last = await self._client.get_task(self.last, auth=self._auth)

    def _continuation(self) -> dict[str, Any]:
        if isinstance(self.last, Task) and self.last.state.waiting:
            return {"task": self.last, "auth": self._auth}
        return {"context": self.context_id, "auth": self._auth}


class Client:
    """An async client for one agent: given by URL, by card, as an object in this process, or as an ASGI app.

    The connection opens with the first call.

    `auth` is a token, a pair of user and password, an object of `dragoman.auth` or `async def f(card, scheme)`; it is
    sent to the target's origin and nowhere else. `protocol` (`"0.3"`) and `transport` (`"rest"`) restrict the choice
    among the card's interfaces. Timeouts are seconds: `connect_timeout` for connecting, `idle_timeout` for silence on
    an open connection; None waits forever. `retries` is the number of consecutive retries, made only where they are
    safe; a message is sent again under its own id. When the connection to a task is lost, `reconnect` is for how many
    seconds it is tried again, with growing pauses, since the agent was last reached; 0 is not at all. The logger
    `dragoman.client` says so. `verify` is True, False, a CA file or directory, or an SSL context.
    An interceptor is `async def f(request, call_next)`.
    `limit` is how many bytes one task may send over all its streams, None for no limit. Beyond it the client stops
    reading; the task itself continues.
    With `trust`, only signed cards are accepted, and only their signed members are used: True trusts the keys of the
    card's own origin, otherwise it is the trusted keys as a URL, a file or a dict.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the given card cannot be parsed.
    """

    @takes(ClientOptions.__init__, ClientOptions)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        options = ClientOptions(*args, **keywords)
        self._connection: Connection = connect(options)
        self._target = options.target
        self._retries = options.retries
        self._limit = options.limit
        self._opened = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Remote tasks continue."""
        if self._opened:
            self._opened = False
            await self._connection.close()

    async def _open(self) -> Connection:
        if not self._opened:
            async with self._opening:
                if not self._opened:
                    TRACING.detect()
                    FORWARDING.detect()
                    await self._connection.open()
                    self._opened = True
        return self._connection

    async def _follow(self, auth: object, **options: Unpack[FollowOptions]) -> ResumableStream:
        connection = await self._open()
        connection = connection if auth is None else connection.with_auth(auth)
        return ResumableStream(connection, self._retries, limit=self._limit, **options)

    async def _perform(
        self, operation: Operation, request: Request, auth: object = None, backoff: Backoff | None = None
    ) -> Any:
        connection = self._connection if self._opened else await self._open()
        try:
            if auth is not None:
                connection = connection.with_auth(auth)
            return await connection.perform(operation, request, backoff)
        except DragomanError as error:
            # The frames below lead through the client and say nothing about the caller's code.
            raise error.with_traceback(None) from None

    @property
    def protocol(self) -> str | None:
        """The version of A2A that is spoken with the agent, such as `"1.0"`; None before its card has been read."""
        return self._connection.protocol

    @property
    def transport(self) -> str | None:
        """`"jsonrpc"` or `"rest"`; None before the agent's card has been read, and for an agent in this process."""
        return self._connection.transport

    # -- messages ----------------------------------------------------------------------------------------------------

    @takes(SendOptions.__init__, SendOptions)
    async def send(self, *args: Any, **keywords: Any) -> Task | Message:
        """Send a message; by default wait until the task ends or pauses. A failed task is returned, not raised.

        A dict or a list instead of text is sent as data. A task pauses when it needs input or authorization. `task`
        continues that task, `context` starts a new one in the same conversation. `push` is a webhook. `auth` are
        credentials for this call alone, instead of the client's: so one client can serve many users.

        Raises:
            ConfigError: the message would be empty, or the arguments contradict each other.
            A2AError: the agent did not accept the message.
            CannotConnect: the agent cannot be reached.
            AuthError: the agent requires other credentials.
            BadResponse: the response is not valid A2A.
            ResponseTooLarge: the task sends more than `limit` bytes.
        """
        options = SendOptions(*args, **keywords)
        wait, auth = options.wait, options.auth
        request = build_send_request(build_message(options), wait=wait, push=options.push)
        answer: Task | Message = await self._perform(Operation.SEND, request, auth)
        if wait and isinstance(answer, Task) and not (answer.state.final or answer.state.waiting):
            # Not every server honors a blocking request.
            return await self._wait_for_end(answer, auth)
        return answer

    @takes(MessageOptions.__init__, MessageOptions)
    def stream(self, *args: Any, **keywords: Any) -> EventStream:
        """Send a message and return a stream of its events; `stream.task` is the task assembled so far.

        The stream reconnects by itself after a broken connection and yields every event once. The message is sent when
        the iteration begins; it raises the errors of `send`.

        Raises:
            ConfigError: the message would be empty, or the arguments contradict each other.
        """
        options = MessageOptions(*args, **keywords)
        request = build_send_request(build_message(options), wait=True, push=options.push)
        return EventStream(partial(self._follow, options.auth), lambda stream: stream.send(request))

    async def call(self, tool: str, /, *, auth: object = None, **arguments: Any) -> Any:
        """Call a tool and return its value.

        `auth` are credentials for this call alone. An argument of that name is sent with `send(tool=…, arguments=…)`.

        Raises:
            TaskEnded: the task failed, was rejected or canceled.
            InputRequired: the task needs input or authorization.
            A2AError: the agent did not accept the message.
            CannotConnect: the agent cannot be reached.
        """
        result = await self.send(tool=tool, arguments=arguments, auth=auth)
        result.raise_for_state()
        return result.value

    def chat(self, context: TaskLike | None = None, *, auth: object = None) -> Chat:
        """Return a conversation that keeps track of the context and of the task that waits for input."""
        return Chat(self, context, auth)

    def as_tool(
        self, name: str | None = None, description: str | None = None, tool: str | None = None
    ) -> Callable[..., Awaitable[Any]]:
        """Return the agent as a typed async function that any framework accepts as a tool. Each call is a new context.

        With `tool`, the function calls that skill. Name and description come from the card if it has been fetched
        (`await client.card()`).
        """
        return build_tool(self, self._connection, self._target, name, description, tool)

    # -- tasks -------------------------------------------------------------------------------------------------------

    async def wait(self, task: TaskLike, *, auth: object = None) -> Task:
        """Wait until a task ends or needs input or authorization, and return it. Raises TaskNotFound."""
        # An agent that is away is waited for as in a stream.
        outage = Outage(self._connection.reconnect, self._connection.clock) if self._connection.reconnect else None
        current: Task = await self._perform(Operation.GET, GetTaskRequest(task_id_of(task)), auth, outage)
        return current if current.state.final or current.state.waiting else await self._wait_for_end(current, auth)

    async def _wait_for_end(self, task: Task, auth: object) -> Task:
        follower = await self._follow(auth, snapshot=task, wait_only=True)
        try:
            return await follower.wait(task)
        except DragomanError as error:
            raise error.with_traceback(None) from None

    def subscribe(self, task: TaskLike, after: int | None = None, *, auth: object = None) -> EventStream:
        """Follow a task until it ends; with `after`, from the event after the one with that `.id`.

        The iteration raises TaskNotFound, and UnsupportedOperation when the task has ended and nothing is left to send.
        """
        task_id = task_id_of(task)
        open_stream = partial(self._follow, auth, until_final=True)
        return EventStream(open_stream, lambda stream: stream.subscribe(task_id, after))

    async def get_task(self, task: TaskLike, *, history_length: int | None = None, auth: object = None) -> Task:
        """Fetch a task. Raises TaskNotFound."""
        return await self._perform(Operation.GET, GetTaskRequest(task_id_of(task), history_length), auth)

    async def list_tasks(
        self,
        *,
        context: TaskLike | None = None,
        state: State | str | None = None,
        since: datetime | str | None = None,
        artifacts: bool = False,
        page_size: int | None = None,
        auth: object = None,
    ) -> AsyncGenerator[Task, None]:
        """Iterate over the caller's tasks, newest status first; pages are fetched as they are needed.

        Raises:
            ConfigError: `state` is not a state, or `since` is not a time.
            A2AError: the agent does not list tasks.
        """
        context_id = context if context is None or isinstance(context, str) else context.context_id
        token: str | None = None
        while True:
            request = ListTasksRequest(
                context_id=context_id,
                status=_parse_state(state),
                page_size=page_size,
                page_token=token,
                status_timestamp_after=_parse_time(since),
                include_artifacts=artifacts or None,
            )
            page: ListTasksResponse = await self._perform(Operation.LIST, request, auth)
            for task in page.tasks:
                yield task
            if not page.next_page_token or page.next_page_token == token:
                return
            token = page.next_page_token

    async def cancel_task(
        self, task: TaskLike, *, metadata: Mapping[str, Any] | None = None, auth: object = None
    ) -> Task:
        """Cancel a task and return it.

        Raises:
            TaskNotFound: there is no such task.
            TaskNotCancelable: it has already ended.
        """
        request = CancelTaskRequest(task_id_of(task), dict(metadata) if metadata else None)
        return await self._perform(Operation.CANCEL, request, auth)

    # -- webhooks ----------------------------------------------------------------------------------------------------

    async def create_push_config(
        self,
        task: TaskLike,
        url: str,
        *,
        id: str | None = None,
        token: str | None = None,
        auth: tuple[str, str] | None = None,
    ) -> TaskPushNotificationConfig:
        """Register a webhook for a task's events; `auth` is the scheme and credentials the webhook expects.

        Raises:
            PushNotificationNotSupported: the agent does not send webhooks.
            TaskNotFound: there is no such task.
        """
        authentication = None if auth is None else AuthenticationInfo(*auth)
        request = TaskPushNotificationConfig(url, id, task_id_of(task), token, authentication)
        return await self._perform(Operation.CREATE_PUSH, request)

    async def get_push_config(self, task: TaskLike, id: str) -> TaskPushNotificationConfig:
        """Fetch one webhook of a task. Raises TaskNotFound when the task or the webhook does not exist."""
        return await self._perform(Operation.GET_PUSH, GetPushConfigRequest(task_id_of(task), id))

    async def list_push_configs(self, task: TaskLike) -> tuple[TaskPushNotificationConfig, ...]:
        """List the webhooks of a task. Raises TaskNotFound."""
        return await self._perform(Operation.LIST_PUSH, ListPushConfigsRequest(task_id_of(task)))

    async def delete_push_config(self, task: TaskLike, id: str) -> None:
        """Delete a webhook of a task; deleting a missing one is not an error. Raises TaskNotFound."""
        await self._perform(Operation.DELETE_PUSH, GetPushConfigRequest(task_id_of(task), id))

    # -- cards -------------------------------------------------------------------------------------------------------

    async def card(self) -> AgentCard:
        """Return the agent's card, cached as long as its server allows and for five minutes at most.

        Raises:
            BadCard: there is no card, it cannot be parsed, or it is not signed as `trust` requires.
            CannotConnect: the agent cannot be reached.
            AuthError: the card is not public, and the credentials are missing or wrong.
        """
        try:
            return await (await self._open()).card()
        except DragomanError as error:
            raise error.with_traceback(None) from None

    async def extended_card(self, *, auth: object = None) -> AgentCard:
        """Fetch the extended card, for authenticated callers. Raises A2AError when there is none."""
        return await self._perform(Operation.EXTENDED_CARD, GetExtendedAgentCardRequest(), auth)


# What the bridges of this package need of a client, and no user is promised.


async def open_connection(client: Client) -> Connection:
    """Return the connection of a client, open."""
    return await client._open()  # pyright: ignore[reportPrivateUsage] - of one module


async def follow(client: Client, **options: Unpack[FollowOptions]) -> ResumableStream:
    """Return a follower of one message or task over the connection of a client, with its retries and its limit."""
    return await client._follow(None, **options)  # pyright: ignore[reportPrivateUsage] - of one module


def _parse_state(state: State | str | None) -> State | None:
    if state is None or isinstance(state, State):
        return state
    for each in State:
        if state.upper().replace("-", "_") in (each.value, each.name):
            return each
    names = ", ".join(each.name.lower().replace("_", "-") for each in State)
    raise ConfigError(f"there is no state {state!r}; there are: {names}")


def _parse_time(since: datetime | str | None) -> str | None:
    if since is None:
        return None
    if isinstance(since, str):
        try:
            since = datetime.fromisoformat(since)
        except ValueError:
            raise ConfigError(f"{since!r} is no time: write it as 2026-11-15T10:00:00Z") from None
    return since.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
