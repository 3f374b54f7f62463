"""The rules for Prometheus: they use what exists, and say what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from support.deployed import (
    ALERTS,
    DEPLOY,
    ROOT,
    Expression,
    alerts,
    dashboard,
    labels_in,
    labels_left,
    panels,
    rule_groups,
    rules,
    series,
    unknown_names,
)

from dragoman.cli.main import VERBS

DURATION = re.compile(r"^\d+[smh]$")
# What an operator has to hear of, and the alert that tells.
EXPECTED = {
    "errors": {"DragomanErrorsFast", "DragomanErrorsSlow"},
    "latency": {"DragomanSlowFast", "DragomanSlowSlow"},
    "no scrape": {"DragomanDown", "DragomanAbsent"},
    "event loop": {"DragomanLoopStalls", "DragomanLoopLags"},
    "store": {"DragomanSlowSync", "DragomanStoreRefuses"},
    "nodes": {"DragomanLeaseRenewalsFail", "DragomanLeaseEnds", "DragomanTakeovers"},
    "webhooks": {"DragomanWebhooksLate", "DragomanWebhooksDead"},
    "tasks": {
        "DragomanRunsFail",
        "DragomanTasksPileUp",
        "DragomanThreadsBusy",
        "DragomanLimitsHit",
        "DragomanCallsFail",
    },
}


def existing() -> dict[str, frozenset[str]]:
    """The series of a server, and those that rules record."""
    recorded = {rule["record"]: labels_left(Expression(rule["expr"]), series()) for rule in rules() if "record" in rule}
    return series() | recorded


def test_every_metric_and_label_in_a_rule_exists() -> None:
    problems = {
        rule.get("alert", rule.get("record")): unknown_names(Expression(rule["expr"]), existing()) for rule in rules()
    }
    assert {name: found for name, found in problems.items() if found} == {}


def test_recorded_series_are_used() -> None:
    used = {selector.name for rule in alerts() for selector in Expression(rule["expr"]).selectors}
    assert {rule["record"] for rule in rules() if "record" in rule} - used == set()


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["alert"].startswith("Dragoman")
    assert DURATION.match(alert.get("for", "0s"))
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    assert not alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")
    assert alert["annotations"]["runbook"].endswith(".")


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_the_text_of_an_alert_names_labels_that_it_has(alert: dict[str, Any]) -> None:
    left = labels_left(Expression(alert["expr"]), existing())
    for text in alert["annotations"].values():
        assert labels_in(text) - left == set()


def test_commands_panels_and_settings_that_a_runbook_names_exist() -> None:
    titles = {panel["title"] for panel in [*panels(), *dashboard()["panels"]]}
    known = {*titles, *(title.partition(",")[0] for title in titles)}
    settings = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for alert in alerts():
        for quoted in re.findall("`([^`]+)`", " ".join(alert["annotations"].values())):
            if quoted.startswith("dragoman "):
                assert quoted.split()[1] in VERBS, alert["alert"]
            elif quoted[0].isupper() and ">" not in quoted:
                assert quoted in known, alert["alert"]
            elif quoted.startswith("limits_") and "{{" not in quoted:
                assert f"`{quoted}`" in settings


def test_groups_and_rules_have_names_of_their_own() -> None:
    groups = [group["name"] for group in rule_groups()]
    names = [rule.get("alert", rule.get("record")) for rule in rules()]
    assert len({*groups}) == len(groups)
    assert len({*names}) == len(names)


def test_every_expected_alert_exists() -> None:
    assert {alert["alert"] for alert in alerts()} == set().union(*EXPECTED.values())


def test_the_guide_lists_every_alert_with_its_severity() -> None:
    guide = (ROOT / "docs" / "guides" / "observing.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Dragoman\w+)` \| (\w+) \|", guide, re.MULTILINE)
    assert listed == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]


def test_every_alert_has_a_test_of_its_own_in_which_it_fires() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {check["alertname"] for test in tests for check in test.get("alert_rule_test", []) if "exp_alerts" in check}
    for test in tests:
        for check in test.get("promql_expr_test", []):
            for sample in check.get("exp_samples", []):
                fired |= {*re.findall('alertname="(.+?)"', sample["labels"])}
    assert {alert["alert"] for alert in alerts()} - fired == set()


def test_the_example_of_a_configuration_reads_the_rules_and_the_job_that_they_name() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    assert config["rule_files"] == [ALERTS.name]
    assert [job["job_name"] for job in config["scrape_configs"]] == ["dragoman"]
