"""The schemas of a remote agent's skills, and command-line arguments parsed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.client import open_connection
from dragoman.client.remote import RemoteConnection
from dragoman.model.card import SKILL_SCHEMAS
from dragoman.model.error import DragomanError
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from dragoman.client.client import Client

Json = dict[str, Any]

_MAX_BYTES = 4 * 1024 * 1024
# Schemas come from the agent and may be recursive: bounds for the subschemas visited and the choices tried.
_MAX_SUBSCHEMAS = 1_000
_MAX_CHOICES = 10_000
_MAX_REF_LENGTH = 1_000
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


async def fetch_schemas(client: Client) -> Json:
    """Fetch the schemas by skill id; empty when the agent's card has none, or they cannot be fetched.

    Raises:
        BadCard: there is no card, or it cannot be parsed.
        CannotConnect: the agent cannot be reached.
    """
    connection = await open_connection(client)
    card = connection.cached_card or await connection.card()
    extension = next((each for each in card.capabilities.extensions if each.uri == SKILL_SCHEMAS), None)
    params = _object(extension and extension.params)
    schemas, url = params.get("schemas"), params.get("url")
    if schemas is None and isinstance(url, str) and isinstance(connection, RemoteConnection):
        try:
            schemas = decode_any(await connection.fetch_same_origin(url, _MAX_BYTES))
        except (DragomanError, msgspec.DecodeError, UnicodeError, RecursionError):
            schemas = None  # arguments then stay strings, and the agent validates them
    return _object(schemas)


def skill_schema(schemas: Json, skill: str) -> Json:
    """Return the schema of a skill's arguments, of those that `fetch_schemas` returns; empty when there is none."""
    return _object(_object(schemas.get(skill)).get("inputSchema"))


def parse_argument(text: str, schemas: Json, skill: str, argument: str) -> Any:
    """Convert a text to an argument of a skill: a number where the schema requires one, the text where it is silent.

    A text that does not match stays as it is.
    """
    root = skill_schema(schemas, skill)
    kinds, choices = _accepted_values(_object(root.get("properties")).get(argument), root)
    for choice in choices:
        if text == (choice if isinstance(choice, str) else encode(choice).decode()):
            return choice
    if not kinds or "string" in kinds:
        return text
    try:
        value = decode_any((text.lower() if text in ("True", "False") else text).encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    kind = _KINDS.get(cast("type[Any]", type(value)), "null")
    if kind == "number" and "number" not in kinds and value.is_integer():
        kind, value = "integer", int(value)
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    return value if fits else text


def _accepted_values(schema: Any, root: Json) -> tuple[set[str], list[Any]]:
    """Return the types and the values that a schema accepts, as far as it lists them directly."""
    kinds: set[str] = set()
    choices: list[Any] = []
    pending: list[Any] = [schema]
    visited: set[int] = set()
    while pending and len(visited) < _MAX_SUBSCHEMAS:
        subschema = _object(pending.pop())
        if id(subschema) in visited:
            continue
        visited.add(id(subschema))
        kinds.update(str(each) for each in (_list(subschema.get("type")) or [subschema.get("type", "")]) if each)
        choices.extend(_list(subschema.get("enum")))
        choices.extend([subschema["const"]] if "const" in subschema else [])
        # A stack: reversed, so that subschemas are visited in their order.
        inner = [each for word in ("anyOf", "oneOf", "allOf") for each in _list(subschema.get(word))]
        pending.extend(reversed(inner[:_MAX_SUBSCHEMAS]))
        if isinstance(subschema.get("$ref"), str):
            pending.append(_resolve_ref(subschema["$ref"], root))
    return kinds, choices[:_MAX_CHOICES]


def _resolve_ref(ref: str, root: Json) -> Any:
    """Resolve a reference within the schema; nothing is fetched."""
    if not ref.startswith("#/") or len(ref) > _MAX_REF_LENGTH:
        return None
    target: Any = root
    for step in ref.split("/")[1:]:
        target = _object(target).get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
