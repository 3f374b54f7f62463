"""The numbers of `dragoman top`: what a page says, how fast it grows, and how slow the slowest are."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dragoman.cli.top.scrape import PageParser, Samples, Scrape, default_address, parse_address
from dragoman.cli.top.snapshot import OPERATIONS, History, take_snapshot
from dragoman.model.error import ConfigError
from dragoman.telemetry.metrics.distribution import Distribution
from dragoman.telemetry.metrics.registry import DURATIONS

# -- the address -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("9464", "http://127.0.0.1:9464/metrics"),
        (":9464", "http://127.0.0.1:9464/metrics"),
        ("localhost:1", "http://localhost:1/metrics"),
        ("0.0.0.0:9464", "http://127.0.0.1:9464/metrics"),
        ("[::]:9464", "http://[::1]:9464/metrics"),
        ("[fe80::1]:9464", "http://[fe80::1]:9464/metrics"),
        ("http://host:9464", "http://host:9464/metrics"),
        ("http://host:9464/", "http://host:9464/metrics"),
        ("http://host/team/metrics?x=1", "http://host:80/team/metrics?x=1"),
        ("https://host/metrics", "https://host:443/metrics"),
    ],
)
def test_an_address_is_what_serve_takes_or_a_url(typed: str, url: str) -> None:
    assert parse_address(typed).url == url


@pytest.mark.parametrize(
    "typed", ["localhost", "off", "host:0", "host:99999", "ftp://host:1/", "a b:1", "me:pw@h:1", ""]
)
def test_a_malformed_address_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(ConfigError, match=r"as in 127\.0\.0\.1:9464"):
        parse_address(typed)


@pytest.mark.parametrize(
    ("variable", "name"),
    [("", "127.0.0.1:9464"), ("off", "127.0.0.1:9464"), ("9000", "127.0.0.1:9000"), ("10.0.0.1:9", "10.0.0.1:9")],
)
def test_the_default_is_that_of_the_server_s_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    monkeypatch.setenv("DRAGOMAN_METRICS", variable)
    assert default_address().name == name


# -- the page --------------------------------------------------------------------------------------------------------


def by_prometheus(text: str) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.items())] = sample.value
    return samples


values = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(st.lists(st.tuples(values, values, st.floats(allow_nan=False)), max_size=5))
def test_a_page_is_read_as_prometheus_reads_it(rows: list[tuple[str, str, float]]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("some_gauge", "of {braces} and \\ more", ("one", "two"), registry=registry)
    Counter("some", "count", registry=registry).inc(7)
    for one, two, value in rows:
        gauge.labels(one, two).set(value)
    text = generate_latest(registry).decode()
    parser = PageParser()
    # Labels are sorted there, and here as they stand.
    expected = by_prometheus(text)
    assert parser.parse(text) == expected
    assert parser.parse(text) == expected, "the second time, from what it has kept"


def test_a_time_behind_a_value_is_left_out_and_what_is_no_sample_refused() -> None:
    parser = PageParser()
    assert parser.parse('a{b="c d"} 1.5 1700000000\ne 2 -3\n\n# EOF\n') == {"a": {(("b", "c d"),): 1.5}, "e": {(): 2.0}}
    for text in ("<html>\n", "a{b} x\n", "a b c d\n", "1a 2\n"):
        with pytest.raises(ValueError, match=r".+"):
            parser.parse(text)


# -- quantiles -------------------------------------------------------------------------------------------------------


def distribution_of(observed: Sequence[float]) -> Distribution:
    """By way of a page, from nothing."""
    registry = CollectorRegistry()
    histogram = Histogram(OPERATIONS, "x", ("a2a_method_name",), registry=registry, buckets=DURATIONS)
    histogram.labels("m")
    history = History(1)
    history.add(Scrape(0, PageParser().parse(generate_latest(registry).decode())))
    for value in observed:
        histogram.labels("m").observe(value)
    history.add(Scrape(1, PageParser().parse(generate_latest(registry).decode())))
    return history.window().distribution(OPERATIONS)


times = st.lists(st.floats(0, 1000), min_size=1, max_size=60)
shares = st.sampled_from([0.5, 0.95, 0.99, 1.0])


@given(times, shares)
def test_a_quantile_is_in_the_bucket_of_the_true_one(observed: list[float], share: float) -> None:
    found = distribution_of(observed)
    estimate = found.quantile(share)
    true = sorted(observed)[max(0, math.ceil(share * len(observed)) - 1)]
    bucket = bisect_left(DURATIONS, true)
    if bucket == len(DURATIONS):
        assert estimate == math.inf
    else:
        low = DURATIONS[bucket - 1] if bucket else 0
        assert low <= estimate <= DURATIONS[bucket] * (1 + 1e-9)
    assert found.size == len(observed)
    assert found.mean == pytest.approx(sum(observed) / len(observed), abs=1e-6)


@given(times)
def test_a_higher_quantile_is_no_smaller(observed: list[float]) -> None:
    found = distribution_of(observed)
    estimates = [found.quantile(share) for share in (0.1, 0.5, 0.9, 0.95, 0.99, 1)]
    assert estimates == sorted(estimates)


def test_an_empty_distribution_has_no_quantile_and_no_mean() -> None:
    assert math.isnan(Distribution().quantile(0.5))
    assert math.isnan(distribution_of([]).quantile(0.5))
    assert math.isnan(distribution_of([]).mean)


# -- rates -----------------------------------------------------------------------------------------------------------

# What a server counts before each look, and whether it has begun anew before that.
lives = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), min_size=1, max_size=12)


def look(at: float, one: float, two: float, started: float | None) -> Scrape:
    samples: Samples = {"some_total": {(("kind", "one"),): one}}
    if two:
        samples["some_total"][("kind", "two"),] = two
    if started is not None:
        samples["process_start_time_seconds"] = {(): started}
    return Scrape(at, samples)


@given(lives, st.booleans())
def test_counters_that_begin_anew_make_no_negative_rates_and_lose_nothing(
    life: list[tuple[int, int, bool]], says_when: bool
) -> None:
    history = History(1, window=1000)
    one, two, started, true = 5, 0, 1.0, 0
    history.add(look(0, one, two, started if says_when else None))
    for at, (more_one, more_two, anew) in enumerate(life, 1):
        if anew:
            one, two, started = 0, 0, started + at
        one, two, true = one + more_one, two + more_two, true + more_one + more_two
        history.add(look(at, one, two, started if says_when else None))
        window = history.window()
        assert all(amount >= 0 for amount in window.increases("some_total", "kind").values())
        if says_when:
            assert window.increase("some_total") == true
        else:
            assert window.increase("some_total") <= true
    assert all(rate >= 0 for rate in history.trend("tasks"))
    if says_when:
        assert history.restarts == sum(anew for _, _, anew in life)


def test_a_rate_is_about_the_last_seconds_only() -> None:
    history = History(1)
    for at in range(20):
        history.add(look(at, 100 if at < 10 else 100 + (at - 9) * 3, 0, 1))
    window = history.window()
    assert window.seconds == 5
    assert window.rate("some_total", kind="one") == 3
    assert window.rate("some_total", kind="two") == 0
    assert window.rate("other_total") == 0


def test_with_a_long_interval_a_rate_is_about_that() -> None:
    history = History(30)
    for at in (0, 30, 60):
        history.add(look(at, at * 2, 0, 1))
    assert history.window().seconds == 30
    assert history.window().rate("some_total") == 2


def test_figures_that_a_server_does_not_export_are_unknown() -> None:
    history = History(1)
    history.add(Scrape(0, {}))
    history.add(Scrape(1, {}))
    snapshot = take_snapshot(history)
    assert (snapshot.methods, snapshot.agents, snapshot.stalls, snapshot.limits) == ([], [], [], {})
    assert math.isnan(snapshot.uptime)
    assert math.isnan(snapshot.memory)
    assert math.isnan(snapshot.at_work)


def test_skills_are_summed_up_by_agent() -> None:
    name = "a2a_server_task_duration_seconds"
    rows = [
        ("desk", "book", "TASK_STATE_COMPLETED", 6),
        ("desk", "find", "TASK_STATE_FAILED", 2),
        ("echo", "say", "", 4),
    ]

    def page(factor: int) -> Samples:
        samples: Samples = {"a2a_server_task_in_progress": {(("gen_ai_agent_name", "idle"),): 0.0}}
        for agent, skill, state, count in rows:
            key = (("gen_ai_agent_name", agent), ("dragoman_skill", skill), ("a2a_task_state", state))
            samples.setdefault(f"{name}_count", {})[key] = count * factor
            samples.setdefault(f"{name}_sum", {})[key] = count * factor * 0.5
            for bound in ("1.0", "+Inf"):
                samples.setdefault(f"{name}_bucket", {})[*key, ("le", bound)] = count * factor
        return samples

    history = History(1)
    history.add(Scrape(0, page(1)))
    history.add(Scrape(2, page(2)))
    snapshot = take_snapshot(history)
    assert [[(row.agent, row.skill, row.rate, row.errors) for row in group] for group in snapshot.agents] == [
        [("desk", "", 4, 1), ("desk", "book", 3, 0), ("desk", "find", 1, 1)],
        [("echo", "", 2, 0), ("echo", "say", 2, 0)],
        [("idle", "", 0, 0)],
    ]
    assert snapshot.agents[0][0].times.mean == 0.5
    assert snapshot.agents[0][0].trend == [4]
    assert snapshot.ended == {"completed": 3, "failed": 1, "": 2}
    assert snapshot.agents[2][0].at_work == 0
