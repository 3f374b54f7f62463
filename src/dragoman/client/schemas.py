"""The JSON schemas of an agent's skills, and words read as they want them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.remote import RemoteConnection
from dragoman.model.error import DragomanError
from dragoman.model.extensions import SKILL_SCHEMAS
from dragoman.model.json import decode_any, encode

if TYPE_CHECKING:
    from dragoman.client.client import Client

Json = dict[str, Any]

_MAX_BYTES = 4 * 1024 * 1024
# A schema may refer to itself, and it is an agent that wrote it: so many places in it are looked at, and choices tried.
_MOST_PLACES = 1_000
_MOST_CHOICES = 10_000
_LONGEST_REF = 1_000
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


async def schemas_of(client: Client) -> Json:
    """The schemas by skill id; empty where the agent's card names none, or they cannot be had.

    Raises:
        BadCard: there is no card, or one that cannot be read.
        CannotConnect: nobody answers.
    """
    connection = await client._open()  # pyright: ignore[reportPrivateUsage] - of one package
    card = connection.known_card or await connection.card()
    extension = next((each for each in card.capabilities.extensions if each.uri == SKILL_SCHEMAS), None)
    params = _object(extension and extension.params)
    found, url = params.get("schemas"), params.get("url")
    if found is None and isinstance(url, str) and isinstance(connection, RemoteConnection):
        try:
            found = decode_any(await connection.read_beside(url, _MAX_BYTES))
        except (DragomanError, msgspec.DecodeError, UnicodeError, RecursionError):
            found = None  # without them words are words, and the agent says what it makes of them
    return _object(found)


def value_of(text: str, schemas: Json, skill: str, argument: str) -> Any:
    """What a text means as an argument of a skill: a number where its schema wants one; the text where it says nothing.

    A text that does not fit stays as it is, for the agent to say so.
    """
    root = _object(_object(schemas.get(skill)).get("inputSchema"))
    kinds, choices = _taken(_object(root.get("properties")).get(argument), root)
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


def _taken(schema: Any, root: Json) -> tuple[set[str], list[Any]]:
    """Which types and which values a schema takes, as far as it says so plainly."""
    kinds: set[str] = set()
    choices: list[Any] = []
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_PLACES:
        said = _object(waiting.pop())
        if id(said) in seen:
            continue
        seen.add(id(said))
        kinds.update(str(each) for each in (_list(said.get("type")) or [said.get("type", "")]) if each)
        choices.extend(_list(said.get("enum")))
        choices.extend([said["const"]] if "const" in said else [])
        # What is taken last is looked at first: so they stay in their order.
        inner = [each for word in ("anyOf", "oneOf", "allOf") for each in _list(said.get(word))]
        waiting.extend(reversed(inner[:_MOST_PLACES]))
        if isinstance(said.get("$ref"), str):
            waiting.append(_referred(said["$ref"], root))
    return kinds, choices[:_MOST_CHOICES]


def _referred(ref: str, root: Json) -> Any:
    """What a reference within the schema means; nothing is fetched from elsewhere."""
    if not ref.startswith("#/") or len(ref) > _LONGEST_REF:
        return None
    found: Any = root
    for step in ref.split("/")[1:]:
        found = _object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
