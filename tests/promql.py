"""Reads PromQL as far as its names go: which metrics an expression selects, and which labels it relies on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | \#[^\n]* )
  | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<range> \[ [^\]]* \] )                                # [5m], [$__rate_interval], [1h:5m]
  | (?P<number> (?:\d+(?:ms|[smhdwy]))+ | [0-9.]+(?:e[+-]?\d+)? | \$\w+ )
  | (?P<name> [A-Za-z_:][A-Za-z0-9_:]* )
  | (?P<symbol> =~ | !~ | != | == | >= | <= | [-+*/%^=<>(){},@] )
    """,
    re.VERBOSE,
)
_AGGREGATIONS = {
    *("sum", "avg", "min", "max", "count", "stddev", "stdvar", "group", "topk", "bottomk", "quantile", "count_values"),
}
_GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset", "start", "end", "inf", "nan"}


class Selector(NamedTuple):
    """A metric in an expression, and the labels that it is selected by."""

    name: str
    labels: Mapping[str, str]


class Grouping(NamedTuple):
    """Labels by which metrics are grouped or matched, and the metrics."""

    labels: tuple[str, ...]
    metrics: tuple[str, ...]


class Expression(NamedTuple):
    """The names of one expression. `result_labels` is None where nothing is aggregated: all labels are left then."""

    selectors: list[Selector]
    groupings: list[Grouping]
    result_labels: frozenset[str] | None


class Token(NamedTuple):
    """A piece of an expression: its kind, its text and where it begins."""

    kind: str
    text: str
    position: int


def read_expression(text: str) -> Expression:
    """Return the names of an expression. Raises ValueError if it is not one, or groups behind its parentheses."""
    tokens = list(_tokens(text))
    selectors: list[tuple[int, Selector]] = []
    groupings: list[tuple[tuple[str, ...], range]] = []
    results: list[str] | None = None
    position = 0
    while position < len(tokens):
        token = tokens[position]
        following = tokens[position + 1].text if position + 1 < len(tokens) else ""
        if token.kind != "name":
            position += 1
        elif token.text in _GROUPINGS and following == "(":
            closing = _closing(tokens, position + 1)
            labels = tuple(each.text for each in tokens[position + 2 : closing] if each.kind == "name")
            if token.text in ("by", "without"):
                if tokens[position - 1].text not in _AGGREGATIONS:
                    raise ValueError(f"write `sum by (…) (…)`, so that a reader sees first what it is: {text}")
                groupings.append((labels, range(closing + 1, _closing(tokens, closing + 1))))
            else:
                groupings.append((labels, range(len(tokens))))
            results = [*(results or []), *labels]
            position = closing + 1
        elif following == "(" or token.text.lower() in _WORDS | _AGGREGATIONS:
            if token.text in _AGGREGATIONS:
                results = results or []
            position += 1
        elif following == "{":
            closing = _closing(tokens, position + 1)
            selectors.append((position, Selector(token.text, dict(_matchers(tokens[position + 2 : closing])))))
            position = closing + 1
        else:
            selectors.append((position, Selector(token.text, {})))
            position += 1
    return Expression(
        [selector for _, selector in selectors],
        [
            Grouping(labels, tuple(selector.name for place, selector in selectors if place in places))
            for labels, places in groupings
        ],
        None if results is None else frozenset(results) - {"le"},
    )


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"not PromQL from `{text[position:]}` on")
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match[0], position)
        position = match.end()


def _closing(tokens: list[Token], opening: int) -> int:
    pair = {"(": ")", "{": "}"}[tokens[opening].text]
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].text == tokens[opening].text) - (tokens[position].text == pair)
        if depth == 0:
            return position
    raise ValueError(f"nothing closes the parenthesis at {tokens[opening].position}")


def _matchers(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    for position in range(0, len(tokens), 4):  # name, operator, value, comma
        name, operator, value = tokens[position : position + 3]
        if name.kind != "name" or operator.text not in ("=", "!=", "=~", "!~") or value.kind != "string":
            raise ValueError(f"not a label: {name.text}{operator.text}{value.text}")
        yield name.text, operator.text + value.text
