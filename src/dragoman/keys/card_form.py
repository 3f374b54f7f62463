"""The signed part of an agent card: the fields of A2A 1.0, without signatures and default values.

The specification (8.4.1) keeps required fields even when they are empty. The official SDKs drop whatever is empty,
required or not, at every level; the two differ for a card with an empty description, or with a security requirement
without scopes. Fields unknown to 1.0 are part of neither form: a protobuf reader would not see them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, NamedTuple, cast

Form = Literal["specification", "sdk"]
Json = dict[str, Any]


class _Rule(Enum):
    REQUIRED = 1
    """Kept even when it is empty."""
    OPTIONAL = 2
    """Kept whenever it is present."""
    PLAIN = 3
    """Dropped when it has its default value."""


class _Field(NamedTuple):
    rule: _Rule
    default: Any = None
    """The value that its absence stands for; None for an object, which is present or not."""
    of: dict[str, _Field] | None = None
    """The fields of the object, or of each object in the list or map."""


_R, _O, _P = _Rule.REQUIRED, _Rule.OPTIONAL, _Rule.PLAIN
_TEXT_R, _TEXT_O, _TEXT = _Field(_R, ""), _Field(_O, ""), _Field(_P, "")
_FLAG_O, _FLAG = _Field(_O, False), _Field(_P, False)
_TEXTS_R, _TEXTS = _Field(_R, []), _Field(_P, [])
_SCOPES_R, _SCOPES = _Field(_R, {}), _Field(_P, {})
_VERBATIM = _Field(_P)

_REQUIREMENTS = _Field(_P, [], {"schemes": _Field(_P, {}, {"list": _TEXTS})})
_FLOWS = {
    "authorizationCode": _Field(
        _P,
        None,
        {
            "authorizationUrl": _TEXT_R,
            "tokenUrl": _TEXT_R,
            "refreshUrl": _TEXT,
            "scopes": _SCOPES_R,
            "pkceRequired": _FLAG,
        },
    ),
    "clientCredentials": _Field(_P, None, {"tokenUrl": _TEXT_R, "refreshUrl": _TEXT, "scopes": _SCOPES_R}),
    "implicit": _Field(_P, None, {"authorizationUrl": _TEXT, "refreshUrl": _TEXT, "scopes": _SCOPES}),
    "password": _Field(_P, None, {"tokenUrl": _TEXT, "refreshUrl": _TEXT, "scopes": _SCOPES}),
    "deviceCode": _Field(
        _P,
        None,
        {"deviceAuthorizationUrl": _TEXT_R, "tokenUrl": _TEXT_R, "refreshUrl": _TEXT, "scopes": _SCOPES_R},
    ),
}
_SCHEME = {
    "apiKeySecurityScheme": _Field(_P, None, {"description": _TEXT, "location": _TEXT_R, "name": _TEXT_R}),
    "httpAuthSecurityScheme": _Field(_P, None, {"description": _TEXT, "scheme": _TEXT_R, "bearerFormat": _TEXT}),
    "oauth2SecurityScheme": _Field(
        _P, None, {"description": _TEXT, "flows": _Field(_R, None, _FLOWS), "oauth2MetadataUrl": _TEXT}
    ),
    "openIdConnectSecurityScheme": _Field(_P, None, {"description": _TEXT, "openIdConnectUrl": _TEXT_R}),
    "mtlsSecurityScheme": _Field(_P, None, {"description": _TEXT}),
}
_EXTENSION = {"uri": _TEXT, "description": _TEXT, "required": _FLAG, "params": _VERBATIM}
_CAPABILITIES = {
    "streaming": _FLAG_O,
    "pushNotifications": _FLAG_O,
    "extensions": _Field(_P, [], _EXTENSION),
    "extendedAgentCard": _FLAG_O,
}
_INTERFACE = {"url": _TEXT_R, "protocolBinding": _TEXT_R, "tenant": _TEXT, "protocolVersion": _TEXT_R}
_SKILL = {
    "id": _TEXT_R,
    "name": _TEXT_R,
    "description": _TEXT_R,
    "tags": _TEXTS_R,
    "examples": _TEXTS,
    "inputModes": _TEXTS,
    "outputModes": _TEXTS,
    "securityRequirements": _REQUIREMENTS,
}
_CARD = {
    "name": _TEXT_R,
    "description": _TEXT_R,
    "supportedInterfaces": _Field(_R, [], _INTERFACE),
    "provider": _Field(_P, None, {"url": _TEXT_R, "organization": _TEXT_R}),
    "version": _TEXT_R,
    "documentationUrl": _TEXT_O,
    "capabilities": _Field(_R, None, _CAPABILITIES),
    "securitySchemes": _Field(_P, {}, _SCHEME),
    "securityRequirements": _REQUIREMENTS,
    "defaultInputModes": _TEXTS_R,
    "defaultOutputModes": _TEXTS_R,
    "skills": _Field(_R, [], _SKILL),
    "iconUrl": _TEXT_O,
}


def specification_form(card: Json, *, complete: bool = False) -> Json:
    """Return the part of a card that the specification signs.

    `complete` adds required fields that the card left out, as signers do that hold the card as protobuf, where an empty
    field and a missing one are the same.
    """
    return _select_fields(card, _CARD, complete)


def sdk_form(card: Json) -> Json:
    """Return the part of a card that the official SDKs sign."""
    return _without_empty(specification_form(card)) or {}


def _select_fields(value: Json, fields: dict[str, _Field], complete: bool) -> Json:
    result: Json = {}
    for name, field in fields.items():
        field_value = value.get(name)
        if field_value is None:  # in protobuf JSON, null is a missing field
            if complete and field.rule is _R:
                result[name] = (
                    _select_fields({}, field.of or {}, complete) if field.default is None else type(field.default)()
                )
            continue
        selected = _select(field_value, field, complete)
        # Equal and of the same type: 0 is not false.
        is_default = field.default is not None and type(selected) is type(field.default) and selected == field.default
        if not is_default or field.rule is not _P:
            result[name] = selected
    return result


def _select(value: Any, field: _Field, complete: bool) -> Any:
    if field.of is None:
        return value
    of = field.of

    def each(one: Any) -> Any:
        return _select_fields(cast("Json", one), of, complete) if isinstance(one, dict) else one

    if isinstance(field.default, list):
        return [each(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value
    if isinstance(field.default, dict):
        many = cast("Json", value)
        return {name: each(one) for name, one in many.items()} if isinstance(value, dict) else value
    return each(value)


def _without_empty(value: Any) -> Any:
    """Remove empty strings, lists, objects and nulls, and what becomes empty thereby."""
    if isinstance(value, dict):
        pairs = ((name, _without_empty(each)) for name, each in cast("Json", value).items())
        return {name: each for name, each in pairs if each is not None} or None
    if isinstance(value, list):
        return [
            cleaned_value for each in cast("list[Any]", value) if (cleaned_value := _without_empty(each)) is not None
        ] or None
    return None if value == "" else value
