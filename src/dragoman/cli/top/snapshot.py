"""What a server did between two looks at its metrics: rates, quantiles, and how many there are of what."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dragoman.cli.top.scrape import Labels, Samples, Scrape
from dragoman.telemetry.metrics.distribution import Distribution

AGENT, SKILL, METHOD, STATE, ERROR = (
    "gen_ai_agent_name",
    "dragoman_skill",
    "a2a_method_name",
    "a2a_task_state",
    "error_type",
)
OPERATIONS = "a2a_server_operation_duration_seconds"
CLIENT_OPERATIONS = "a2a_client_operation_duration_seconds"
TASKS = "a2a_server_task_duration_seconds"
FIRST_TOKENS = "a2a_server_time_to_first_token_seconds"
STARTED = "process_start_time_seconds"
# Samples that only grow, unless the server begins anew. A sum may shrink, so it decides nothing.
_GROWING = ("_total", "_bucket", "_count")
_COUNTERS = (*_GROWING, "_sum")
# What numbers are about: long enough for a quantile, short enough to see what happens.
WINDOW_SECONDS = 5.0
TREND_SECONDS = 60.0
_FAILED = ("failed", "rejected")


# -- numbers ---------------------------------------------------------------------------------------------------------


def _distribution(buckets: Mapping[float, float], total: float) -> Distribution:
    """Make a distribution of the buckets of Prometheus, each of which includes the smaller ones."""
    bounds = sorted(buckets)
    counts: list[float] = []
    seen = 0.0
    for bound in bounds:
        # Buckets of a page may be read one after the other while the server counts on.
        counts.append(max(0.0, buckets[bound] - seen))
        seen = max(seen, buckets[bound])
    finite = tuple(bound for bound in bounds if bound != math.inf)
    return Distribution(finite, tuple(counts) if len(counts) > len(finite) else (*counts, 0.0), total)


class Moment(NamedTuple):
    """A look at the metrics. `totals` are the counters, as if the server had never begun anew."""

    at: float
    samples: Samples
    totals: Samples


class Window(NamedTuple):
    """What lies between two moments."""

    begin: Moment
    end: Moment

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end.at - self.begin.at

    def gauge(self, name: str, **labels: str) -> float:
        """The sum of a gauge over all series with these labels, at the end; NaN where there is none."""
        found = [value for key, value in self.end.samples.get(name, {}).items() if _has(key, labels)]
        return sum(found) if found else math.nan

    def increase(self, name: str, **labels: str) -> float:
        """How much a counter has grown, in all series with these labels."""
        return sum(amount for key, amount in self._increases(name) if _has(key, labels))

    def rate(self, name: str, **labels: str) -> float:
        """How much a counter has grown per second."""
        return self.per_second(self.increase(name, **labels))

    def per_second(self, amount: float) -> float:
        """What that is per second; NaN after the first look."""
        return amount / self.seconds if self.seconds > 0 else math.nan

    def increases(self, name: str, *by: str) -> dict[tuple[str, ...], float]:
        """How much a counter has grown, by the values of some labels. What has not grown is there with 0."""
        found: dict[tuple[str, ...], float] = {}
        for key, amount in self._increases(name):
            values = dict(key)
            group = tuple(values.get(label, "") for label in by)
            found[group] = found.get(group, 0.0) + amount
        return found

    def distributions(self, name: str, *by: str) -> dict[tuple[str, ...], Distribution]:
        """What a histogram has counted, by the values of some labels."""
        buckets: dict[tuple[str, ...], dict[float, float]] = {}
        for (*group, bound), amount in self.increases(f"{name}_bucket", *by, "le").items():
            found = buckets.setdefault(tuple(group), {})
            found[float(bound)] = found.get(float(bound), 0.0) + amount
        sums = self.increases(f"{name}_sum", *by)
        return {group: _distribution(found, sums.get(group, 0.0)) for group, found in buckets.items()}

    def distribution(self, name: str) -> Distribution:
        """What a histogram has counted, in all."""
        return self.distributions(name).get((), Distribution())

    def _increases(self, name: str) -> Iterator[tuple[Labels, float]]:
        before = self.begin.totals.get(name, {})
        for key, value in self.end.totals.get(name, {}).items():
            yield key, value - before.get(key, 0.0)


def _has(key: Labels, labels: Mapping[str, str]) -> bool:
    return all((name, value) in key for name, value in labels.items())


# -- moments ---------------------------------------------------------------------------------------------------------


class History:
    """The moments of the last seconds, and the rates of the last minute. Counters that begin anew are no loss."""

    def __init__(self, interval: float, window: float = WINDOW_SECONDS) -> None:
        self._moments: deque[Moment] = deque()
        self._length = max(window, interval)
        self._points = max(2, round(TREND_SECONDS / interval))
        self._trends: dict[tuple[str, ...], deque[float]] = {}
        # How often the server was seen to have begun anew.
        self.restarts = 0

    def add(self, scrape: Scrape) -> None:
        """Take a look into account; later than those before."""
        previous = self._moments[-1] if self._moments else None
        totals: Samples = {}
        if previous is None:
            totals = {name: dict(series) for name, series in scrape.samples.items() if name.endswith(_COUNTERS)}
        else:
            begins_anew = _begins_anew(previous.samples, scrape.samples)
            self.restarts += begins_anew
            totals = _grown(previous, scrape.samples, from_zero=begins_anew)
        self._moments.append(Moment(scrape.at, scrape.samples, totals))
        # One from before the window stays: without it the window would be shorter.
        while len(self._moments) > 2 and self._moments[1].at <= scrape.at - self._length:
            self._moments.popleft()
        if previous is not None:
            self._add_trends(Window(previous, self._moments[-1]))

    def window(self) -> Window:
        """What lies between the first and the last moment that there are. Raises IndexError where there is none."""
        return Window(self._moments[0], self._moments[-1])

    def trend(self, *name: str) -> list[float]:
        """The rates of the last minute, oldest first: of `tasks`, `method NAME` or `skill AGENT SKILL`."""
        return list(self._trends.get(name, ()))

    def _add_trends(self, step: Window) -> None:
        tasks = step.increases(f"{TASKS}_count", AGENT, SKILL)
        rates: dict[tuple[str, ...], float] = {("skill", *group): amount for group, amount in tasks.items()}
        rates |= {("method", *group): amount for group, amount in step.increases(f"{OPERATIONS}_count", METHOD).items()}
        rates["tasks",] = sum(tasks.values())
        for name in {**self._trends, **rates}:
            points = self._trends.setdefault(name, deque(maxlen=self._points))
            points.append(step.per_second(rates.get(name, 0.0)))


def _counters(samples: Samples, endings: tuple[str, ...]) -> Iterator[tuple[str, dict[Labels, float]]]:
    return ((name, series) for name, series in samples.items() if name.endswith(endings))


def _begins_anew(before: Samples, after: Samples) -> bool:
    """True when the server has another start, or a counter that is smaller than it was."""
    if before.get(STARTED, {}) != after.get(STARTED, {}):
        return True
    for name, series in _counters(after, _GROWING):
        old = before.get(name, {})
        if any(value < old.get(key, 0.0) for key, value in series.items()):
            return True
    return False


def _grown(previous: Moment, samples: Samples, *, from_zero: bool) -> Samples:
    """Return the totals after those of the previous moment; they keep what the server no longer has."""
    totals = {name: dict(series) for name, series in previous.totals.items()}
    for name, series in _counters(samples, _COUNTERS):
        before: Mapping[Labels, float] = {} if from_zero else previous.samples.get(name, {})
        sums = totals.setdefault(name, {})
        for key, value in series.items():
            sums[key] = sums.get(key, 0.0) + value - before.get(key, 0.0)
    return totals


# -- what is displayed -----------------------------------------------------------------------------------------------


class MethodRow(NamedTuple):
    """What was asked of the server by one method."""

    name: str
    rate: float
    errors: float
    times: Distribution
    trend: list[float]


class SkillRow(NamedTuple):
    """The runs of a skill, or of all skills of an agent, whose `skill` is empty. Rates are per second."""

    agent: str
    skill: str
    rate: float
    errors: float
    times: Distribution
    first_token: Distribution
    trend: list[float]
    # Of agents only.
    at_work: float = math.nan
    streams: float = math.nan

    @property
    def name(self) -> str:
        """What rows of its kind are sorted by."""
        return self.skill or self.agent


class Stall(NamedTuple):
    """How often a skill has blocked the event loop, since the server began."""

    agent: str
    skill: str
    times: float


class Snapshot(NamedTuple):
    """Everything that is displayed. What the server does not say is NaN."""

    version: str
    uptime: float
    cpu: float
    memory: float
    seconds: float
    restarts: int
    at_work: float
    # By state, per second.
    ended: dict[str, float]
    trend: list[float]
    methods: list[MethodRow]
    # By agent, that itself first, then its skills.
    agents: list[list[SkillRow]]
    client_rate: float
    client_errors: float
    client_times: Distribution
    streams: float
    wakeups: float
    commits: float
    records: float
    commit_times: Distribution
    sync_times: Distribution
    journal_bytes: float
    refused: float
    webhooks_owed: float
    webhooks_late: float
    webhooks_dead: float
    deliveries: float
    lease: float
    takeovers: float
    # By limit, per second.
    limits: dict[str, float]
    lag: Distribution
    stalls: list[Stall]
    threads: float
    busy_threads: float


def take_snapshot(history: History, now: float | None = None) -> Snapshot:
    """Make what is displayed of the moments that there are. `now` is seconds since 1970."""
    window = history.window()
    states = _by_state(window.increases(f"{TASKS}_count", STATE))
    calls = window.increases(f"{CLIENT_OPERATIONS}_count", ERROR)
    records = window.distribution("dragoman_journal_commit_records")
    commits = window.distribution("dragoman_journal_commit_duration_seconds")
    limits = {limit: amount for (limit,), amount in window.increases("dragoman_limits_hit_total", "limit").items()}
    return Snapshot(
        version=_version(window.end.samples),
        uptime=(time.time() if now is None else now) - _first_start(window.end.samples),
        cpu=_rate_if_counted(window, "process_cpu_seconds_total"),
        memory=window.gauge("process_resident_memory_bytes"),
        seconds=window.seconds,
        restarts=history.restarts,
        at_work=window.gauge("a2a_server_task_in_progress"),
        ended=_per_second(states, window),
        trend=history.trend("tasks"),
        methods=_methods(history, window),
        agents=_agents(history, window),
        client_rate=_rate_if_counted(window, f"{CLIENT_OPERATIONS}_count"),
        client_errors=window.per_second(sum(amount for (error,), amount in calls.items() if error)),
        client_times=window.distribution(CLIENT_OPERATIONS),
        streams=window.gauge("dragoman_streams"),
        wakeups=window.rate("dragoman_wakeups_total"),
        commits=window.per_second(commits.size),
        records=records.mean,
        commit_times=commits,
        sync_times=window.distribution("dragoman_journal_sync_duration_seconds"),
        journal_bytes=window.rate("dragoman_journal_bytes_total"),
        refused=window.rate("dragoman_journal_refused_total"),
        webhooks_owed=window.gauge("dragoman_webhook_owed"),
        webhooks_late=window.gauge("dragoman_webhook_late"),
        webhooks_dead=_now(window, "dragoman_webhook_dead_total"),
        deliveries=window.rate("dragoman_webhook_deliveries_total"),
        lease=window.gauge("dragoman_lease_remaining_seconds"),
        takeovers=_now(window, "dragoman_takeovers_total"),
        limits=_per_second(limits, window),
        lag=window.distribution("dragoman_loop_lag_seconds"),
        stalls=_stalls(window.end.samples.get("dragoman_loop_stalls_total", {})),
        threads=window.gauge("dragoman_threads"),
        busy_threads=window.gauge("dragoman_threads_busy"),
    )


def _methods(history: History, window: Window) -> list[MethodRow]:
    times = window.distributions(OPERATIONS, METHOD)
    errors: dict[str, float] = {}
    for (method, error), amount in window.increases(f"{OPERATIONS}_count", METHOD, ERROR).items():
        errors[method] = errors.get(method, 0.0) + (amount if error else 0.0)
    rates = _per_second({method: found.size for (method,), found in times.items()}, window)
    error_rates = _per_second(errors, window)
    return [
        MethodRow(method, rates[method], error_rates.get(method, 0.0), found, history.trend("method", method))
        for (method,), found in times.items()
    ]


def _agents(history: History, window: Window) -> list[list[SkillRow]]:
    counts = window.increases(f"{TASKS}_count", AGENT, SKILL, STATE)
    tables = (window.distributions(TASKS, AGENT, SKILL), window.distributions(FIRST_TOKENS, AGENT, SKILL))
    agent_tables = (window.distributions(TASKS, AGENT), window.distributions(FIRST_TOKENS, AGENT))
    groups: dict[str, set[str]] = {}
    for agent, skill in tables[0]:
        groups.setdefault(agent, set()).add(skill)
    for name in ("a2a_server_task_in_progress", "dragoman_streams"):
        for key in window.end.samples.get(name, {}):
            groups.setdefault(dict(key).get(AGENT, ""), set())

    def row(agent: str, skill: str | None) -> SkillRow:
        times, first = (
            found.get((agent,) if skill is None else (agent, skill), Distribution())
            for found in (agent_tables if skill is None else tables)
        )
        mine = {group: amount for group, amount in counts.items() if group[0] == agent and skill in (None, group[1])}
        failed = sum(amount for group, amount in mine.items() if _state_name(group[2]) in _FAILED)
        rates = _per_second({"runs": sum(mine.values()), "failed": failed}, window)
        trends = [history.trend("skill", agent, each) for each in (groups[agent] if skill is None else (skill,))]
        found = SkillRow(agent, skill or "", rates["runs"], rates["failed"], times, first, _added(trends))
        if skill is not None:
            return found
        labels = {AGENT: agent}
        at_work = window.gauge("a2a_server_task_in_progress", **labels)
        return found._replace(at_work=at_work, streams=window.gauge("dragoman_streams", **labels))

    return [
        [row(agent, None), *(row(agent, skill) for skill in sorted(skills))] for agent, skills in sorted(groups.items())
    ]


def _added(trends: Iterable[list[float]]) -> list[float]:
    """Add up trends; all end now, and some have begun later."""
    backwards = [trend[::-1] for trend in trends]
    length = max(map(len, backwards), default=0)
    return [sum(trend[at] for trend in backwards if at < len(trend)) for at in range(length)][::-1]


def _per_second(amounts: Mapping[str, float], window: Window) -> dict[str, float]:
    return {name: window.per_second(amount) for name, amount in amounts.items()}


def _rate_if_counted(window: Window, name: str) -> float:
    return window.rate(name) if name in window.end.totals else math.nan


def _now(window: Window, name: str) -> float:
    """What a counter has come to, since the server began; NaN where there is none."""
    return sum(window.end.samples[name].values()) if name in window.end.samples else math.nan


def _by_state(counts: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for (state,), amount in counts.items():
        name = _state_name(state)
        found[name] = found.get(name, 0.0) + amount
    return found


def _state_name(state: str) -> str:
    """As commands write it: `TASK_STATE_INPUT_REQUIRED` is `input-required`."""
    return state.lower().removeprefix("task_state_").replace("_", "-")


def _stalls(series: Mapping[Labels, float]) -> list[Stall]:
    found = [Stall(dict(key).get(AGENT, ""), dict(key).get(SKILL, ""), count) for key, count in series.items() if count]
    return sorted(found, key=lambda stall: -stall.times)


def _version(samples: Samples) -> str:
    for name in ("dragoman_build_info", "dragoman_info"):
        for key in samples.get(name, {}):
            return dict(key).get("version", "")
    return ""


def _first_start(samples: Samples) -> float:
    return min(samples.get(STARTED, {}).values(), default=math.nan)
