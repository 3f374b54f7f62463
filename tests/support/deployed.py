"""What `deploy/` ships, as tests read it: the dashboard, the rules, and the series that they may use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.exposition import label_name, prometheus_name

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dragoman.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"

# Labels that Prometheus gives to what it scrapes.
TARGET_LABELS = frozenset({"job", "instance"})
# Series that Prometheus makes of every scrape, and those of a process that its client libraries have in common.
FOREIGN_SERIES = dict.fromkeys(
    ("up", "scrape_duration_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes"), TARGET_LABELS
)
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\b([A-Za-z_:][\w:]*)\b(?!\s*\()(?:{([^}]*)})?")
_AGGREGATION = re.compile(r"\b(?:sum|avg|min|max|count|topk|quantile)\b")
_OPERATORS = {"and", "or", "unless", "bool", "offset", "sum", "avg", "min", "max", "count", "topk", "quantile"}
_LEGEND_LABEL = re.compile(r"{{\s*(\w+)\s*}}")
_ANNOTATION_LABEL = re.compile(r"\$labels\.(\w+)")
# A metric of ours in a text, such as an expression that a variable of the dashboard is filled with.
_LABEL_VALUES = re.compile(r"^label_values\((?P<selector>.+), (?P<label>\w+)\)$")


class Selector(NamedTuple):
    """A metric in an expression, and the labels that it is selected by."""

    name: str
    labels: frozenset[str]


class Expression:
    """The names in an expression of PromQL. Whether it is one at all, promtool tells."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"\[[^]]*\]|#.*|\$\w+", "", text)
        self.grouping_labels = {label for labels in _GROUPING.findall(text) for label in re.findall(r"\w+", labels)}
        self.aggregates = _AGGREGATION.search(text) is not None
        self.selectors = [
            Selector(name, frozenset(re.findall(r"(\w+)\s*[=!]", labels)))
            for name, labels in _SELECTOR.findall(_GROUPING.sub("", text))
            if name not in _OPERATORS
        ]


class Query(NamedTuple):
    """An expression of the dashboard: where it is, what it says and what its lines are called."""

    place: str
    text: str
    legend: str

    @property
    def expression(self) -> Expression:
        return Expression(self.text)

    @property
    def legend_labels(self) -> set[str]:
        return set(_LEGEND_LABEL.findall(self.legend))


@cache
def series() -> dict[str, frozenset[str]]:
    """Return the names of all series that a server has, each with its labels."""
    found = {**FOREIGN_SERIES, "dragoman_info": TARGET_LABELS | {"version"}}
    for metric in METRICS.metrics.values():
        name = prometheus_name(metric)
        labels = TARGET_LABELS.union(map(label_name, metric.labels))
        if metric.kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[f"{name}_total" if metric.kind == "counter" else name] = labels
    return found


def family_of(name: str) -> str:
    """Return the name of the metric that a series belongs to, without the suffix of a histogram."""
    return re.sub("_(bucket|sum|count)$", "", name)


@cache
def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def panels() -> Iterator[dict[str, Any]]:
    """Yield all panels, also those of collapsed rows; rows are none."""
    for panel in dashboard()["panels"]:
        yield from panel["panels"] if panel["type"] == "row" else [panel]


def panel_queries() -> list[Query]:
    """Return what the panels ask for."""
    return [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def variable_queries() -> list[tuple[Query, str]]:
    """Return the series of which each variable lists a label, and the label."""
    found: list[tuple[Query, str]] = []
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.match(variable["query"]["query"])
            assert match is not None, variable
            found.append((Query(variable["name"], match["selector"], ""), match["label"]))
    return found


def annotation_queries() -> list[Query]:
    """Return what the marks on all panels are made of."""
    return [
        Query(annotation["name"], annotation["expr"], annotation["titleFormat"])
        for annotation in dashboard()["annotations"]["list"]
    ]


@cache
def rule_groups() -> list[dict[str, Any]]:
    """Return the groups of rules."""
    return yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]


def rules() -> list[dict[str, Any]]:
    """Return all rules, in order."""
    return [rule for group in rule_groups() for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """Return the alerts."""
    return [rule for rule in rules() if "alert" in rule]


def labels_in(annotation: str) -> set[str]:
    """Return the labels that the text of an alert names."""
    return set(_ANNOTATION_LABEL.findall(annotation))


def unknown_names(expression: Expression, existing: dict[str, frozenset[str]]) -> list[str]:
    """Return what an expression uses and no server has: metrics, and labels of metrics."""
    problems = [selector.name for selector in expression.selectors if selector.name not in existing]
    if problems:
        return problems
    for selector in expression.selectors:
        problems += [f"{selector.name}: {label}" for label in selector.labels if label not in existing[selector.name]]
    labels = frozenset[str]().union(*(existing[selector.name] for selector in expression.selectors))
    problems += [f"grouped by {label}" for label in expression.grouping_labels - labels]
    return problems


def labels_left(expression: Expression, existing: dict[str, frozenset[str]]) -> frozenset[str]:
    """Return the labels that the result of an expression has."""
    if expression.aggregates:
        return frozenset(expression.grouping_labels - {"le"})
    return frozenset[str]().union(*(existing[selector.name] for selector in expression.selectors))
