"""The reader of PromQL, on which the tests of dashboard and rules rely."""

import pytest
from promql import Grouping, Selector, read_expression


def test_metrics_and_labels_are_found_and_nothing_else() -> None:
    read = read_expression(
        "histogram_quantile(0.99, sum by (le, skill) ("
        'rate(a_seconds_bucket{job=~"$job", x!="rate(b)"}[$__rate_interval])))'
        " / on (skill) group_left () (c_total offset 5m) > 0.5e3 unless bool_metric or vector(1) # not_one"
    )
    assert read.selectors == [
        Selector("a_seconds_bucket", {"job": '=~"$job"', "x": '!="rate(b)"'}),
        Selector("c_total", {}),
        Selector("bool_metric", {}),
    ]
    assert read.groupings[0] == Grouping(("le", "skill"), ("a_seconds_bucket",))
    assert read.groupings[1].labels == ("skill",)
    assert read.result_labels == {"skill"}


def test_a_recorded_name_has_colons() -> None:
    read = read_expression("job:errors:ratio_rate5m > (14.4 * 0.001) and job:requests:rate5m >= 1")
    assert [selector.name for selector in read.selectors] == ["job:errors:ratio_rate5m", "job:requests:rate5m"]
    assert read.result_labels is None


def test_what_is_added_up_without_labels_has_none_left() -> None:
    assert read_expression("sum(rate(a_total[5m])) / sum(b)").result_labels == frozenset()


@pytest.mark.parametrize("text", ["sum(a) by (job)", "rate(a{job=5}[5m])", "a ? b", "sum by (job) (a"])
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"write `sum by|not a label|not PromQL|nothing closes"):
        read_expression(text)
