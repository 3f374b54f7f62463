"""Reads a Python function as a skill: its parameters (`read_parameters`), name, description and kind."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Protocol, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import UNSET, Struct
from msgspec.json import schema_components

from dragoman.agents.functions.files import FILE_SCHEMA, is_media_type, takes_files
from dragoman.agents.functions.sync_context import SyncContext
from dragoman.engine.execute.context import Context
from dragoman.engine.execute.outputs import Reply
from dragoman.model.card import AgentSkill
from dragoman.model.error import ConfigError
from dragoman.model.part import File, Part
from dragoman.schema.example import example_text

# What callers may send to a skill beside its files, and a file of any kind.
_MODES, _ANY_FILE = ("text/plain", "application/json"), "application/octet-stream"


class FunctionKind(Enum):
    """How a function is called. Functions that are not async run in a thread."""

    ASYNC_GENERATOR = "async generator"
    COROUTINE = "coroutine"
    GENERATOR = "generator"
    FUNCTION = "function"


class Parameter(Struct, frozen=True):
    """One parameter of a skill that callers fill by name.

    `default` is its default as JSON; UNSET when it has none, or one that JSON cannot express. Where it takes a file,
    `accepts` are the media types, none for any.
    """

    name: str
    type: Any
    required: bool
    help: str = ""
    default: Any = UNSET
    accepts: tuple[str, ...] = ()
    takes_files: bool = False

    def describe(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of its type with what callers should know about this parameter."""
        if "enum" in schema and get_origin(self.type) is Literal:
            schema = {**schema, "enum": list(get_args(self.type))}  # as the author wrote them, not sorted
        if self.accepts:
            schema = {**schema, "mediaTypes": list(self.accepts)}
        if self.help:
            schema = {**schema, "description": self.help}
        return schema if self.default is UNSET else {**schema, "default": self.default}


class Offer(Protocol):
    """One thing an agent can do: a function, an MCP tool or any other skill."""

    @property
    def id(self) -> str:
        """The name by which callers select it."""
        ...

    @property
    def description(self) -> str:
        """Its description; may be empty."""
        ...

    @property
    def permission(self) -> str | None:
        """The permission a caller needs, or None."""
        ...

    @property
    def default(self) -> bool:
        """True when it handles messages that name no skill."""
        ...

    def card(self) -> AgentSkill:
        """Its entry in the agent card."""
        ...

    def sample(self) -> dict[str, Any]:
        """A message part that it accepts, for examples and checks."""
        ...


class Skill(Struct, frozen=True):
    """A skill made from a function.

    `context_parameter` names the parameter that receives the context. `text_parameter` names the parameter that
    receives the text of a message; it is set only where that is a `str` and the only one that callers fill.
    """

    id: str
    name: str
    description: str
    fn: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    context_parameter: str | None
    takes_sync_context: bool
    may_reply: bool
    kind: FunctionKind
    text_parameter: str | None
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    default: bool = False
    permission: str | None = None
    timeout: float | None = None
    restart: bool = False

    def card(self) -> AgentSkill:
        """Its entry in the agent card."""
        files = [each for each in self.parameters if each.takes_files]
        types = [media_type for each in files for media_type in each.accepts or (_ANY_FILE,)]
        modes = tuple(dict.fromkeys((*_MODES, *types))) if files else ()
        return AgentSkill(self.id, self.name, self.description or self.name, self.tags, self.examples, modes)

    def schemas(self) -> dict[str, Any]:
        """Its JSON Schemas, under the names that MCP tools have for them.

        `inputSchema` is of its parameters, `outputSchema` of the data it returns, where that is an object. Either is
        missing where a type has no schema.
        """
        schemas = {"inputSchema": self._input_schema(), "outputSchema": self._output_schema()}
        return {name: schema for name, schema in schemas.items() if schema is not None}

    def _input_schema(self) -> dict[str, Any] | None:
        generated = json_schemas([parameter.type for parameter in self.parameters])
        if generated is None:
            return None
        properties = {
            parameter.name: parameter.describe(schema)
            for parameter, schema in zip(self.parameters, generated[0], strict=True)
        }
        required = [parameter.name for parameter in self.parameters if parameter.required]
        return {"type": "object", "properties": properties, "required": required, **generated[1]}

    def _output_schema(self) -> dict[str, Any] | None:
        if self.kind not in (FunctionKind.COROUTINE, FunctionKind.FUNCTION):
            return None  # what is yielded has no one form
        type_ = _type_hints(self.fn).get("return")
        if not _is_record(type_):
            return None
        generated = json_schemas([type_])
        return None if generated is None else {"type": "object", **generated[0][0], **generated[1]}

    def sample(self) -> dict[str, Any]:
        """A message part it accepts: one of its examples, else arguments for its required parameters."""
        if self.examples:
            return {"text": self.examples[0]}
        required = {parameter.name: parameter.type for parameter in self.parameters if parameter.required}
        texts = {name: example_text(name) for name, type_ in required.items() if type_ is str}
        samples: dict[Any, Any] = {int: 2, float: 2.5, bool: True}
        if required and len(texts) != 1 and all(type_ is str or type_ in samples for type_ in required.values()):
            arguments = {name: texts.get(name) or samples[type_] for name, type_ in required.items()}
            return {"data": {"tool": self.id, "arguments": arguments}}
        # Text fills the one text parameter; the skill asks for what else it needs.
        return {"text": next(iter(texts.values()), "hello")}


def _is_record(hint: object) -> bool:
    """True for classes whose values are sent as JSON objects of certain members."""
    if not isinstance(hint, type) or issubclass(hint, (Part, File, Reply)):
        return False
    record = cast("type[Any]", hint)
    return issubclass(record, Struct) or dataclasses.is_dataclass(record) or is_typeddict(record)


def json_schemas(types: Sequence[Any]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]] | None:
    """Return a JSON Schema for each type, and their `$defs` if they have any; None where a type has no schema."""
    of_models: dict[str, Any] = {}

    def model_schema(type_: Any) -> dict[str, Any]:
        """Return the schema of a file, or of a pydantic model, its own definitions beside those of the others."""
        if type_ is File:
            return dict(FILE_SCHEMA)
        if not hasattr(type_, "model_json_schema"):
            raise NotImplementedError
        schema: dict[str, Any] = type_.model_json_schema()
        of_models.update(schema.pop("$defs", {}))
        return schema

    try:
        schemas, definitions = schema_components(types, schema_hook=model_schema, ref_template="#/$defs/{name}")
    except Exception:  # noqa: BLE001 - types and their hooks may be anything
        return None
    definitions = {**of_models, **definitions}
    return schemas, {"$defs": definitions} if definitions else {}


def read_skill(
    fn: Callable[..., Any],
    *,
    id: str | None = None,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
    default: bool = False,
    permission: str | None = None,
    timeout: float | None = None,
    restart: bool = False,
    replies: bool = False,
) -> Skill:
    """Build a skill from a function's signature and docstring.

    Raises:
        ConfigError: a parameter has no type, a type that cannot be resolved or sent, or no name to pass it by; or the
            context's type does not suit the function: `dragoman.sync.Context` for `def`, `Context` for `async def`.
    """
    parameters, context, sync = read_parameters(fn)
    kind = _kind(fn)
    _check_context(fn, kind, context, sync=sync)
    return Skill(
        id=id or fn.__name__,
        name=name or id or fn.__name__,
        description=description if description is not None else inspect.getdoc(fn) or "",
        fn=fn,
        parameters=parameters,
        context_parameter=context,
        takes_sync_context=sync,
        may_reply=replies or returns_reply(fn),
        kind=kind,
        text_parameter=parameters[0].name if len(parameters) == 1 and parameters[0].type is str else None,
        tags=tuple(tags),
        examples=tuple(examples),
        default=default,
        permission=permission,
        timeout=timeout,
        restart=restart,
    )


def read_parameters(fn: Callable[..., Any]) -> tuple[tuple[Parameter, ...], str | None, bool]:
    """Return the parameters that callers fill, the name of the context parameter, and whether that is a sync context.

    Raises:
        ConfigError: a parameter has no type, a type that cannot be resolved or sent, or no name to pass it by.
    """
    hints = _type_hints(fn)
    help_texts = argument_help(inspect.getdoc(fn) or "")
    parameters: list[Parameter] = []
    context: str | None = None
    sync = False
    for parameter in inspect.signature(fn).parameters.values():
        annotation = hints.get(parameter.name)
        if annotation in (Context, SyncContext):
            context, sync = parameter.name, annotation is SyncContext
            continue
        parameters.append(_read_parameter(fn, parameter, annotation, help_texts.get(parameter.name, "")))
    return tuple(parameters), context, sync


def _kind(fn: Callable[..., Any]) -> FunctionKind:
    if inspect.isasyncgenfunction(fn):
        return FunctionKind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(fn):
        return FunctionKind.COROUTINE
    return FunctionKind.GENERATOR if inspect.isgeneratorfunction(fn) else FunctionKind.FUNCTION


def _type_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise ConfigError(f"skill `{fn.__name__}`: a type is not known at import: {error}") from None


_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def argument_help(docstring: str) -> dict[str, str]:
    """Return what the section `Args:` of a docstring says about each argument, by name."""
    _, _, section = f"\n{docstring}".partition("\nArgs:\n")
    texts: dict[str, str] = {}
    indent, name = 0, ""
    for line in section.splitlines():
        depth = len(line) - len(line.lstrip())
        if not line.strip() or not depth:
            break
        indent = indent or depth
        argument = _ARGUMENT.fullmatch(line.strip()) if depth == indent else None
        if argument is not None:
            name, texts[argument[1]] = argument[1], argument[2]
        elif name:
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts


def _json_default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter as JSON; UNSET when there is none, or none that JSON can express."""
    if parameter.default is parameter.empty:
        return UNSET
    try:
        return msgspec.json.decode(msgspec.json.encode(parameter.default))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return UNSET


def _read_parameter(fn: Callable[..., Any], parameter: inspect.Parameter, annotation: Any, help_text: str) -> Parameter:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ConfigError(f"skill `{fn.__name__}`: `{parameter}` cannot be filled by name: give each argument a name")
    if annotation is None:
        raise ConfigError(
            f"skill `{fn.__name__}`: parameter `{name}` has no type: write `{name}: str` (or int, float, bool, dict, "
            "a dataclass …), so that callers know what to send"
        )
    accepts: tuple[str, ...] = ()
    if get_origin(annotation) is Annotated:
        type_, *notes = get_args(annotation)
        texts = [note for note in notes if isinstance(note, str)]
        if takes_files(type_):
            accepts = tuple(text for text in texts if is_media_type(text))
            texts = [text for text in texts if not is_media_type(text)]
        help_text = next(iter(texts), help_text)
        limits = [note for note in notes if not isinstance(note, str)]
        annotation = Annotated[(type_, *limits)] if limits else type_
    _check_type(fn, name, annotation)
    required = parameter.default is parameter.empty
    return Parameter(name, annotation, required, help_text, _json_default(parameter), accepts, takes_files(annotation))


# What JSON values are in Python. A type that is none of them, and that has no schema, can never be sent.
_JSON_TYPES = (str, int, float, bool, list, dict, type(None))


class _NoJsonForm(Exception):
    """A type that no JSON value can be converted to."""


def _check_type(fn: Callable[..., Any], name: str, annotation: Any) -> None:
    """Raise ConfigError when no JSON value can fill a parameter of this type."""

    if takes_files(annotation):
        return

    def check_custom_type(type_: Any) -> dict[str, Any]:
        if type_ is File:
            raise ConfigError(
                f"skill `{fn.__name__}`: parameter `{name}`: a File is a parameter of its own: write `{name}: File`, "
                f"`{name}: list[File]` or `{name}: File | None = None`"
            )
        if hasattr(type_, "model_validate") or any(_is_subclass(each, type_) for each in _JSON_TYPES):
            return {"type": "object"}
        raise _NoJsonForm(_name_of_type(type_))

    try:
        schema_components([annotation], schema_hook=check_custom_type)
    except _NoJsonForm as error:
        raise ConfigError(
            f"skill `{fn.__name__}`: parameter `{name}`: no caller can send a `{error}`, it has no JSON form: use str, "
            "int, float, bool, list, dict, an Enum, a dataclass, a TypedDict or a pydantic model, and create the "
            f"`{error}` in the function"
        ) from None
    except (TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].partition(" - ")[0].rstrip(".")
        raise ConfigError(
            f"skill `{fn.__name__}`: parameter `{name}`: no caller can send a value of this type: {reason}"
        ) from None


def _is_subclass(type_: type, other: Any) -> bool:
    try:
        return issubclass(type_, other)
    except TypeError:
        return False


def _name_of_type(type_: Any) -> str:
    if not isinstance(type_, type):
        return str(type_)
    return (
        type_.__qualname__ if type_.__module__ in ("builtins", "__main__") else f"{type_.__module__}.{type_.__name__}"
    )


def _check_context(fn: Callable[..., Any], kind: FunctionKind, context: str | None, *, sync: bool) -> None:
    on_loop = kind in (FunctionKind.COROUTINE, FunctionKind.ASYNC_GENERATOR)
    if context is not None and sync == on_loop:
        word, right = ("async", "dragoman.Context") if on_loop else ("def", "dragoman.sync.Context")
        raise ConfigError(f"skill `{fn.__name__}`: annotate `{context}` as {right}: {word} skills use that one")


def returns_reply(fn: Callable[..., Any]) -> bool:
    """True when the return annotation of a function contains `Reply`: it may answer with a message, without a task."""
    try:
        return _has_reply(get_type_hints(fn).get("return"))
    except (NameError, TypeError):
        return False


def _has_reply(hint: Any) -> bool:
    return hint is Reply or any(_has_reply(argument) for argument in get_args(hint))
