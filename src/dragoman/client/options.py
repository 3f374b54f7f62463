"""The options of a client and of a message, declared once: methods take theirs from these Structs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec import NODEFAULT, Struct

from dragoman.model.message import Message
from dragoman.model.part import File, Part
from dragoman.model.task import Task
from dragoman.net.exchange import MAX_RESPONSE

if TYPE_CHECKING:
    import ssl

    from dragoman.client.cards import TrustOption
    from dragoman.model.operation import TaskPushNotificationConfig
    from dragoman.net.exchange import Interceptor

    Verify = bool | str | Path | ssl.SSLContext

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

# How many bytes one task may send by default.
DEFAULT_LIMIT = MAX_RESPONSE
# For how many seconds a lost connection is tried again by default.
RECONNECT = 60.0

TaskLike = Task | Message | str
Attachment = File | Part | Path
Content = str | Mapping[str, Any] | list[Any]
"""What a message says: text, or JSON, which becomes a data part."""


class _Target(Struct, frozen=True):
    target: object

    def __repr__(self) -> str:
        # The options may hold secrets, and so may the address.
        return f"{type(self).__name__}(…)"


class ClientOptions(_Target, frozen=True, kw_only=True):
    """What a `Client` calls, and how. `Client` says what each option is."""

    auth: object = None
    protocol: str | None = None
    transport: str | None = None
    connect_timeout: float | None = 10.0
    idle_timeout: float | None = None
    retries: int = 5
    limit: int | None = DEFAULT_LIMIT
    reconnect: float = RECONNECT
    verify: Verify = True
    headers: Mapping[str, str] | None = None
    interceptors: Sequence[Interceptor] = ()
    trust: TrustOption = None


class ProxyOptions(ClientOptions, frozen=True, kw_only=True):
    """What an agent that is a proxy calls, and how it differs from the remote one."""

    name: str | None = None
    description: str | None = None
    version: str | None = None
    card: Mapping[str, Any] | None = None


class _Text(Struct, frozen=True):
    text: Content | None = None


class TurnOptions(_Text, frozen=True, kw_only=True):
    """A message in a conversation, which itself sets the task, the context and the credentials."""

    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    data: Any = None
    files: Iterable[Attachment] = ()
    metadata: Mapping[str, Any] | None = None
    push: str | TaskPushNotificationConfig | None = None
    message_id: str | None = None


class SendTurnOptions(TurnOptions, frozen=True, kw_only=True):
    """A message in a conversation whose answer is awaited."""

    wait: bool = True


class MessageOptions(TurnOptions, frozen=True, kw_only=True):
    """A message. `Client.send` says what each option is."""

    task: TaskLike | None = None
    context: TaskLike | None = None
    auth: object = None


class SendOptions(MessageOptions, frozen=True, kw_only=True):
    """A message whose answer is awaited."""

    wait: bool = True


def takes(
    options: Callable[Concatenate[Any, P], None], kind: type[Struct]
) -> Callable[[Callable[Concatenate[S, ...], R]], Callable[Concatenate[S, P], R]]:
    """Give a method of `(self, *args, **keywords)` the parameters of a Struct: those of `kind.__init__`, `options`.

    Nothing is added to a call: the method builds the Struct itself. Type checkers, `inspect` and `help` see the names,
    types and defaults of its fields.
    """

    def declare(method: Callable[Concatenate[S, ...], R]) -> Callable[Concatenate[S, P], R]:
        annotations: dict[str, Any] = {}
        for each in reversed(kind.__mro__):
            annotations.update(vars(each).get("__annotations__", {}))
        first = method.__code__.co_varnames[0]
        parameters = [Parameter(first, Parameter.POSITIONAL_OR_KEYWORD)]
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        defaults = (NODEFAULT,) * (len(names) - len(defaults)) + defaults
        for name, default in zip(names, defaults, strict=True):
            how = Parameter.KEYWORD_ONLY if len(parameters) > 1 else Parameter.POSITIONAL_OR_KEYWORD
            value = Parameter.empty if default is NODEFAULT else default
            parameters.append(Parameter(name, how, default=value, annotation=annotations[name]))
        returned = method.__annotations__.get("return", Signature.empty)
        vars(method)["__signature__"] = Signature(parameters, return_annotation=returned)
        return method

    return declare
