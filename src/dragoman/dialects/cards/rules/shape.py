"""A small schema language for agent cards, with errors in sentences.

An `ObjectOf` lists the fields of one object, each with the `Shape` of its value. A shape checks a value and reports
violations; the sentence that names the rule is built from the table, so that it is written once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, cast

from dragoman.model.json import as_object

Level = Literal["error", "warning"]
Path = tuple[str | int, ...]
Json = dict[str, Any]
Fault = tuple[Level, str] | None

WHOLE = "(card)"
_MAX_QUOTED = 60
_IDENTIFIER = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_SNAKE = re.compile(r"_([a-z0-9])")


class CardProblem(NamedTuple):
    """One problem of a card: an `error` breaks the protocol, a `warning` works but should be fixed."""

    level: Level
    field: str
    rule: str
    found: str


class Violation(NamedTuple):
    """A problem with its path, before it is formatted as a `CardProblem`."""

    path: Path
    level: Level
    rule: str
    found: str


class Report:
    """Collects the violations of a card."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def error(self, path: Path, rule: str, found: str) -> None:
        """Add a violation of the protocol."""
        self.violations.append(Violation(path, "error", rule, found))

    def warning(self, path: Path, rule: str, found: str) -> None:
        """Add something that works but should be fixed."""
        self.violations.append(Violation(path, "warning", rule, found))


class Shape(Protocol):
    """The schema of a value."""

    @property
    def phrase(self) -> str:
        """The end of a sentence that begins with "it is"."""
        ...

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report the violations of a value; `rule` is that of its field."""
        ...


class Scalar(NamedTuple):
    """A value without members. `fault` returns what is wrong with it, or None."""

    phrase: str
    fault: Callable[[object], Fault]

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report the fault, if there is one."""
        fault = self.fault(value)
        if fault is not None:
            report.violations.append(Violation(path, fault[0], rule, fault[1]))


class ListOf(NamedTuple):
    """A list of one shape. `empty` is the level of an empty list."""

    phrase: str
    item: Shape
    empty: Level | None = None

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a value that is not a list, an empty list, and the violations of each item."""
        if not isinstance(value, list):
            report.error(path, rule, f"{describe(value)} instead of a list")
            return
        entries = cast("list[object]", value)
        if not entries and self.empty is not None:
            report.violations.append(Violation(path, self.empty, rule, "an empty list"))
        for index, entry in enumerate(entries):
            self.item.check(report, (*path, index), entry, rule)


class MapOf(NamedTuple):
    """An object with arbitrary keys and values of one shape."""

    phrase: str
    item: Shape

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a value that is not an object, and the violations of each of its values."""
        if not isinstance(value, dict):
            report.error(path, rule, f"{describe(value)} instead of an object")
            return
        for key, entry in cast("dict[str, object]", value).items():
            self.item.check(report, (*path, key), entry, rule)


class Field(NamedTuple):
    """A field of an object. `need` is the level of its absence; `says` and `where` replace the generated rule."""

    name: str
    shape: Shape
    need: Level | None = None
    says: str = ""
    where: str = ""


class ObjectOf(NamedTuple):
    """An object with defined fields, and the section of the specification that defines them. Others are ignored."""

    noun: str
    where: str
    fields: tuple[Field, ...]

    @property
    def phrase(self) -> str:
        """The noun of the object, for a sentence."""
        return self.noun

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a value that is not an object, and each field that is missing, invalid or in snake_case."""
        if not isinstance(value, dict):
            report.error(path, rule, f"{describe(value)} instead of an object")
            return
        members = cast("Json", value)
        misspelled = self._check_spelling(report, path, members)
        for field in self.fields:
            rule_text = self._rule(field)
            member = members.get(field.name)
            if member is not None:
                field.shape.check(report, (*path, field.name), member, rule_text)
            elif field.need is not None and field.name not in misspelled:
                report.violations.append(Violation((*path, field.name), field.need, rule_text, "missing"))

    def _rule(self, field: Field) -> str:
        if field.says:
            says = field.says
        elif field.need is not None:
            says = f"{self.noun} has {field.name}, {field.shape.phrase}"
        else:
            says = f"{field.name} of {self.noun}, if given, is {field.shape.phrase}"
        return f"{field.where or self.where}: {says}"

    def _check_spelling(self, report: Report, path: Path, members: Json) -> set[str]:
        names = {field.name for field in self.fields}
        where = "A2A 1.0, 5.5" if self.where.startswith("A2A 1.0") else self.where
        misspelled: set[str] = set()
        for key in members:
            camel = _SNAKE.sub(lambda found: found[1].upper(), str(key))
            if camel != key and camel in names:
                report.error((*path, key), f"{where}: names are written in camelCase, so this is {camel}", "snake_case")
                misspelled.add(camel)
        return misspelled


class OneOf(NamedTuple):
    """An object that must hold one of some members; with `exclusive` off, one or more of them."""

    phrase: str
    where: str
    members: Mapping[str, ObjectOf]
    exclusive: bool = True
    missing: Level = "error"
    deprecated: Mapping[str, str] = {}

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report none or too many of the members, deprecated ones, and the violations inside them."""
        if not isinstance(value, dict):
            report.error(path, rule, f"{describe(value)} instead of an object")
            return
        members = cast("Json", value)
        present = [name for name in self.members if members.get(name) is not None]
        rule_text = f"{self.where}: {self.phrase}"
        if not present:
            keys = ", ".join(quoted(key) for key in list(members)[:3]) or "an empty object"
            report.violations.append(Violation(path, self.missing, rule_text, f"none of them, but {keys}"))
        elif self.exclusive and len(present) > 1:
            report.error(path, rule_text, f"{len(present)} of them: {', '.join(present)}")
        for name in present:
            if name in self.deprecated:
                report.warning((*path, name), self.deprecated[name], "deprecated")
            self.members[name].check(report, (*path, name), members[name], rule_text)


def check_unique(report: Report, path: Path, values: list[object], name: str, rule: str, level: Level) -> None:
    """Report every object of a list whose member `name` has the value of an earlier one."""
    first_index: dict[str, int] = {}
    for index, value in enumerate(values):
        member = as_object(value).get(name)
        if not isinstance(member, str) or not member:
            continue
        if member in first_index:
            found = f"{quoted(member)} is also that of {format_path((*path, first_index[member]))}"
            report.violations.append(Violation((*path, index, name), level, rule, found))
        first_index.setdefault(member, index)


def format_path(path: Path) -> str:
    """Format a path for people: `skills[2].tags`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _IDENTIFIER.fullmatch(str(step)):
            text += f".{step}" if text else str(step)
        else:
            text += f"[{quoted(step)}]"
    return text or WHOLE


def describe(value: object) -> str:
    """Describe a value in a few words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value) if value.strip() else "an empty text"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a number" if isinstance(value, int | float) else "something that is not JSON"


def quoted(value: object) -> str:
    """Quote text of a card, shortened and without terminal control characters."""
    text = str(value)
    return repr(text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 1] + "…")
