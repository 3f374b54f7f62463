"""Everything that is wrong with an agent card, field by field, with the rule that says so.

`parse_card` reads what it can use and stops at what it cannot. This lists every problem, for those who write cards.
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
# What 0.1 did not have yet, and of this what 0.2 did not.
_SINCE_03 = ("preferredTransport", "additionalInterfaces", "signatures")
_SINCE_02 = ("securitySchemes", "security", "supportsAuthenticatedExtendedCard")


class _ClaimedVersions(NamedTuple):
    """The versions a card presents itself in. One card can serve readers of 1.0 and of an older one."""

    modern: bool
    older: Version | None


def card_problems(data: bytes | object, *, url: str | None = None) -> list[CardProblem]:
    """Every problem of a card of any version, in the order of the card. Never raises for bad input.

    `data` is JSON text or decoded JSON; the size is that of the text. `url` is where the card was found: with it, the
    addresses on the card are compared with its own. Text that is not JSON is one problem.
    """
    report = Report()
    if isinstance(data, bytes):
        if len(data) > _LARGE:
            report.warning((), _MEGABYTE, f"{len(data) / _LARGE:.1f} MB")
        try:
            data = cast("object", decode_any(data))
        except UNREADABLE as error:
            report.error((), _IS_JSON, _not_json(data, error))
            return _problems(report.violations, None)
    if not isinstance(data, dict):
        report.error((), _IS_OBJECT, describe(data))
        return _problems(report.violations, None)
    card = cast("Json", data)
    claims = _claims(card)
    if claims.modern:
        check_card(report, card, url, V1_0, alone=claims.older is None)
    if claims.older is not None:
        check_card(report, card, url, claims.older)
    # Beside what took its place it is for readers of 0.1, who know nothing else.
    if card.get("authentication") is not None and not card.get("securitySchemes"):
        report.warning(("authentication",), _AUTHENTICATION, "deprecated")
    return _problems(report.violations, card)


def _claims(card: Json) -> _ClaimedVersions:
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
        older = V0_1 if _is_of_01(card) else V0_2
    return _ClaimedVersions(new, older)


def _is_of_01(card: Json) -> bool:
    """0.1 does not say so: such a card has what later versions dropped, or lacks what they demand."""
    if any(name in card for name in _SINCE_02):
        return False
    modes = as_list(card.get("defaultInputModes"))
    return "authentication" in card or all("/" not in str(mode) for mode in modes)


def _problems(findings: list[Violation], card: Json | None) -> list[CardProblem]:
    """In the order of the card, and what two versions agree on once, in the words of the newer."""
    unique: dict[tuple[Path, str], Violation] = {}
    for finding in findings:
        unique.setdefault((finding.path, finding.found), finding)
    ordered = sorted(unique.values(), key=lambda finding: _position(finding.path, card))
    return [CardProblem(each.level, format_path(each.path), each.rule, each.found) for each in ordered]


def _position(path: Path, card: object) -> list[int]:
    """Where a path is in the card; what is missing comes after everything that is there."""
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
