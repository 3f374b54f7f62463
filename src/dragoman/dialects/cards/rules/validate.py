"""Validates agent cards: lists every problem with its field and the rule it violates.

`parse_card` stops at the first thing it cannot use. This lists all problems, for authors of cards.
"""

from __future__ import annotations

import re
from typing import NamedTuple, cast

from dragoman.dialects.cards.rules.shape import (
    CardProblem,
    Json,
    Path,
    Report,
    Violation,
    describe,
    format_path,
)
from dragoman.dialects.cards.rules.versions import Version, check_card
from dragoman.dialects.table import V0_1, V0_2, V0_3, V1_0
from dragoman.model.json import UNREADABLE, as_list, as_object, decode_any

__all__ = ["CardProblem", "card_problems"]

_LARGE = 1024 * 1024
_MEGABYTE = "Advice: readers give up on a large card, so it stays below 1 MB"
_IS_JSON = "A2A 0.3, 5.1: an agent card is a JSON document"
_IS_OBJECT = "A2A 1.0, 4.4.1: an agent card is an object"
_AUTHENTICATION = "A2A 0.2 schema, AgentCard: securitySchemes took the place of authentication"
_MAJOR_MINOR = re.compile(r"(\d+)\.(\d+)", re.ASCII)
# Members since 0.3, and since 0.2.
_SINCE_03 = ("preferredTransport", "additionalInterfaces", "signatures")
_SINCE_02 = ("securitySchemes", "security", "supportsAuthenticatedExtendedCard")


class _ClaimedVersions(NamedTuple):
    """The versions a card is written for: 1.0, an older one, or both."""

    modern: bool
    older: Version | None


def card_problems(data: bytes | object, *, url: str | None = None) -> list[CardProblem]:
    """List the problems of a card of any version, in the order of the card. Never raises for bad input.

    `data` is JSON text or decoded JSON; only text is checked for its size. `url` is the URL of the card, with which the
    URLs on the card are compared. Text that is not JSON is one problem.
    """
    report = Report()
    if isinstance(data, bytes):
        if len(data) > _LARGE:
            report.warning((), _MEGABYTE, f"{len(data) / _LARGE:.1f} MB")
        try:
            data = cast("object", decode_any(data))
        except UNREADABLE as error:
            report.error((), _IS_JSON, _not_json(data, error))
            return _to_problems(report.violations, None)
    if not isinstance(data, dict):
        report.error((), _IS_OBJECT, describe(data))
        return _to_problems(report.violations, None)
    card = cast("Json", data)
    claims = _detect_versions(card)
    if claims.modern:
        check_card(report, card, url, V1_0, alone=claims.older is None)
    if claims.older is not None:
        check_card(report, card, url, claims.older)
    # Beside securitySchemes it is for 0.1 clients, who know nothing else; without a scheme it says nothing.
    is_empty = as_object(card.get("authentication")).get("schemes") == []
    if card.get("authentication") is not None and not is_empty and not card.get("securitySchemes"):
        report.warning(("authentication",), _AUTHENTICATION, "deprecated")
    return _to_problems(report.violations, card)


def _detect_versions(card: Json) -> _ClaimedVersions:
    declared = card.get("protocolVersion")
    match = _MAJOR_MINOR.match(declared) if isinstance(declared, str) else None
    new = "supportedInterfaces" in card
    if match is not None and match[1].strip("0"):
        return _ClaimedVersions(modern=True, older=None)
    if "url" not in card and (new or not any(name in card for name in ("protocolVersion", *_SINCE_03[:2]))):
        return _ClaimedVersions(modern=True, older=None)
    if match is not None:
        older: Version = V0_1 if match[2] == "1" else V0_2 if match[2] == "2" else V0_3
    elif new or declared is not None or any(name in card for name in _SINCE_03):
        older = V0_3
    else:
        older = V0_1 if _is_v01_card(card) else V0_2
    return _ClaimedVersions(new, older)


def _is_v01_card(card: Json) -> bool:
    """True for a card of 0.1, which has no version: it has members that were dropped later, or lacks required ones."""
    if any(name in card for name in _SINCE_02):
        return False
    modes = as_list(card.get("defaultInputModes"))
    return "authentication" in card or all("/" not in str(mode) for mode in modes)


def _to_problems(violations: list[Violation], card: Json | None) -> list[CardProblem]:
    """Sort violations in the order of the card; one that two versions share is listed once, for the newer version."""
    unique: dict[tuple[Path, str], Violation] = {}
    for violation in violations:
        unique.setdefault((violation.path, violation.found), violation)
    ordered = sorted(unique.values(), key=lambda violation: _position(violation.path, card))
    return [CardProblem(each.level, format_path(each.path), each.rule, each.found) for each in ordered]


def _position(path: Path, card: object) -> list[int]:
    """Return the position of a path in the card; missing members come after all others."""
    position: list[int] = []
    value = card
    for step in path:
        if isinstance(step, int):
            position.append(step)
            value = as_list(value)[step]
        else:
            members = as_object(value)
            position.append(list(members).index(step) if step in members else len(members))
            value = members.get(step)
    return position


def _not_json(data: bytes, error: Exception) -> str:
    start = data.lstrip()[:1]
    if not start:
        return "nothing"
    return "HTML or XML" if start == b"<" else str(error)
