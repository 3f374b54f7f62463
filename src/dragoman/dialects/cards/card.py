"""Agent cards: writes them as 1.0, as 0.3 or as both at once, and reads all of these and 0.1."""

from __future__ import annotations

from typing import Any, cast

from dragoman.dialects.cards.security import (
    requirement_from,
    requirement_to_03,
    scheme_from,
    scheme_to_03,
    scheme_to_both,
    schemes_from_01,
    schemes_to_01,
)
from dragoman.dialects.reading.lenient import LenientReader
from dragoman.dialects.table import CARD_FORMATS, CARD_PROTOCOL_VERSION, JSONRPC, V0_1, V0_3, CardVersion
from dragoman.model.card import AgentCard, AgentInterface
from dragoman.model.error import BadCard, InvalidParams
from dragoman.model.json import UNREADABLE, as_object, as_objects, decode_any, encode

Json = dict[str, Any]

_MODES = ("text/plain",)
_MODES_01 = ("text",)
# Keys that 0.3 and 1.0 share.
_SAME = ("name", "description", "version", "defaultInputModes", "defaultOutputModes")
_SAME_OPTIONAL = ("provider", "documentationUrl", "iconUrl")
_CARD = LenientReader(AgentCard, fill_defaults=True)


def card_json(card: AgentCard, extra: Json, version: CardVersion) -> Json:
    """Convert a card to JSON. `extra`, the author's own members, is merged into it last.

    `1.0` and `0.3` have exactly the keys of that version; `both` has the keys of 1.0 and those that only 0.3 has.
    """
    # A round trip through JSON makes plain lists and dicts that share nothing with the card.
    modern: Json = decode_any(encode(card))
    card_format = CARD_FORMATS[version]
    if card_format.older:
        modern = _to_both(modern, card) if card_format.modern else _to_03(modern, card)
    return _merge(modern, extra)


def parse_card(data: bytes) -> AgentCard:
    """Read a card of any version from JSON text.

    Raises:
        BadCard: it is not JSON or not a card; the text names the field.
    """
    try:
        decoded = decode_any(data)
    except UNREADABLE as error:
        raise BadCard(f"the agent card is not JSON: {error}") from None
    return read_card(decoded)


def read_card(data: Any) -> AgentCard:
    """Read a card of any version from JSON text or decoded JSON.

    Raises:
        BadCard: it is not a card; the text names the field.
    """
    if isinstance(data, bytes):
        return parse_card(data)
    if not isinstance(data, dict):
        raise BadCard("the agent card is not a JSON object")
    try:
        card = _CARD.read_value(_to_v1(cast("Json", data)))
    except InvalidParams as error:
        raise BadCard(f"the agent card is wrong: {error.message}") from None
    if not card.name:
        raise BadCard("the agent card is wrong: name is required and must not be empty")
    if not any(interface.url for interface in card.supported_interfaces):
        raise BadCard("the agent card is wrong: neither supportedInterfaces nor url says where the agent is")
    if not card.version:
        raise BadCard("the agent card is wrong: version is required and must not be empty")
    return card


def _to_03(modern: Json, card: AgentCard) -> Json:
    main, others = _interfaces_03(card)
    result: Json = {"protocolVersion": CARD_PROTOCOL_VERSION} | {key: modern[key] for key in _SAME}
    if main is not None:
        result["url"] = main.url
        result["preferredTransport"] = main.protocol_binding
    if others:
        result["additionalInterfaces"] = [{"url": each.url, "transport": each.protocol_binding} for each in others]
    result["capabilities"] = {key: value for key, value in modern["capabilities"].items() if key != "extendedAgentCard"}
    result["skills"] = [_skill_03(skill) for skill in modern["skills"]]
    result |= {key: modern[key] for key in _SAME_OPTIONAL if key in modern}
    if "securitySchemes" in modern:
        result["securitySchemes"] = {name: scheme_to_03(each) for name, each in modern["securitySchemes"].items()}
    if "securityRequirements" in modern:
        result["security"] = [requirement_to_03(each) for each in modern["securityRequirements"]]
    if card.capabilities.extended_agent_card is not None:
        result["supportsAuthenticatedExtendedCard"] = card.capabilities.extended_agent_card
    if "signatures" in modern:
        result["signatures"] = modern["signatures"]
    return result


def _to_both(modern: Json, card: AgentCard) -> Json:
    older = _to_03(modern, card)
    result = modern | {key: value for key, value in older.items() if key not in modern}
    result["skills"] = [
        new | old for new, old in zip(modern["skills"], cast("list[Json]", older["skills"]), strict=True)
    ]
    if "securitySchemes" in modern:
        result["securitySchemes"] = {name: scheme_to_both(each) for name, each in modern["securitySchemes"].items()}
        if modern.get("securityRequirements"):
            # 0.1 has only this member for it.
            result["authentication"] = {"schemes": schemes_to_01(modern["securitySchemes"])}
    return result


def _skill_03(skill: Json) -> Json:
    result = {key: value for key, value in skill.items() if key != "securityRequirements"}
    if "securityRequirements" in skill:
        result["security"] = [requirement_to_03(each) for each in skill["securityRequirements"]]
    return result


def _interfaces_03(card: AgentCard) -> tuple[AgentInterface | None, list[AgentInterface]]:
    """Return the main interface of a 0.3 card, and its additional ones."""
    usable = [each for each in card.supported_interfaces if each.protocol_version.startswith(V0_3)]
    candidates = (*usable, *card.supported_interfaces)
    main = next((each for each in candidates if each.protocol_binding == JSONRPC), next(iter(candidates), None))
    # 0.3 wants the main interface among the additional ones too.
    return main, usable if len(usable) > 1 else []


def _merge(card: Json, extra: Json) -> Json:
    merged = dict(card)
    for key, value in extra.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("Json", old), cast("Json", value)) if both else value
    return merged


def _to_v1(card: Json) -> Json:
    """Convert the JSON of a card of any version to that of 1.0."""
    modern = {key: value for key, value in card.items() if value is not None}
    if not modern.get("supportedInterfaces"):
        modern["supportedInterfaces"] = _interfaces_from(modern)
    if "securityRequirements" not in modern and isinstance(modern.get("security"), list):
        modern["securityRequirements"] = [requirement_from(each) for each in as_objects(modern["security"])]
    if isinstance(modern.get("securitySchemes"), dict):
        schemes = cast("Json", modern["securitySchemes"])
        modern["securitySchemes"] = {name: scheme_from(as_object(each)) for name, each in schemes.items()}
    elif isinstance(modern.get("authentication"), dict):
        schemes = schemes_from_01(cast("Json", modern["authentication"]))
        modern["securitySchemes"] = schemes
        # 0.1 lists alternatives.
        modern["securityRequirements"] = [{"schemes": {name: {}}} for name in schemes]
    modern["capabilities"] = _capabilities_from(modern)
    if isinstance(modern.get("skills"), list):
        modern["skills"] = [_skill_from(each) for each in cast("list[Any]", modern["skills"])]
    modes = _MODES_01 if _is_v01_card(card) else _MODES
    return {"defaultInputModes": list(modes), "defaultOutputModes": list(modes)} | modern


def _interfaces_from(card: Json) -> list[Json]:
    declared = card.get("protocolVersion")
    version = ".".join(declared.split(".")[:2]) if isinstance(declared, str) else V0_1 if _is_v01_card(card) else V0_3
    main = {"url": card.get("url"), "transport": card.get("preferredTransport") or JSONRPC}
    interfaces: list[Json] = []
    for each in (main, *as_objects(card.get("additionalInterfaces"))):
        interface = {
            "url": each.get("url"),
            "protocolBinding": each.get("transport") or JSONRPC,
            "protocolVersion": version,
        }
        # 0.3 wants the main interface among the additional ones too.
        if interface["url"] and interface not in interfaces:
            interfaces.append(interface)
    return interfaces


def _is_v01_card(card: Json) -> bool:
    """True for a card of 0.1, which has no version: it has members that were dropped later, or lacks required ones."""
    if any(key in card for key in ("protocolVersion", "supportedInterfaces", "preferredTransport", "securitySchemes")):
        return False
    if "authentication" in card or not isinstance(card.get("defaultInputModes"), list):
        return True
    return all("/" not in str(mode) for mode in cast("list[Any]", card["defaultInputModes"]))


def _capabilities_from(card: Json) -> Any:
    declared = card.get("capabilities", {})
    extended = card.get("supportsAuthenticatedExtendedCard")
    if extended is None or not isinstance(declared, dict):
        return declared
    return {"extendedAgentCard": extended} | cast("Json", declared)


def _skill_from(skill: Any) -> Any:
    if not isinstance(skill, dict):
        return skill
    modern = cast("Json", skill)
    if "securityRequirements" in modern or not isinstance(modern.get("security"), list):
        return modern
    return modern | {"securityRequirements": [requirement_from(each) for each in as_objects(modern["security"])]}
