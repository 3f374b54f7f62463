"""The panels of the dashboard, row by row, in the words that operators read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# What the variables choose: servers, and where a metric has agents, agents.
SERVER = 'job=~"$job", instance=~"$instance"'
AGENT = f'{SERVER}, gen_ai_agent_name=~"$agent"'
# A stream lasts as long as its task: it says nothing about how fast the server answers.
NO_STREAMS = 'a2a_method_name!~"SendStreamingMessage|SubscribeToTask"'
# Errors that are not the caller's.
OWN_FAULT = 'error_type=~"INTERNAL_ERROR|SERVER_ERROR|INVALID_AGENT_RESPONSE"'
FAILED = 'a2a_task_state="TASK_STATE_FAILED"'


class Query(NamedTuple):
    """An expression, and what its lines are called."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A panel. `steps` are the numbers from which on it is yellow and red."""

    title: str
    text: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    steps: tuple[float, float] | None = None


class Row(NamedTuple):
    """A row of panels. A row that few servers need is collapsed."""

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


def rate(metric: str, selected: str = SERVER) -> str:
    """Return how much a counter grows in a second."""
    return f"rate({metric}{{{selected}}}[$__rate_interval])"


def increase(metric: str, selected: str = SERVER) -> str:
    """Return how much a counter has grown in an interval of the picture."""
    return f"increase({metric}{{{selected}}}[$__rate_interval])"


def events(metric: str, selected: str, by: str) -> str:
    """Return how often something rare has happened in an interval of the picture, by labels.

    A series begins with the first time, of which `increase` knows nothing: what was not there before counts too.
    """
    now = f"{metric}{{{selected}}}"
    new = f"({now} unless {now} offset $__rate_interval)"
    return f"sum by ({by}) ({increase(metric, selected)} > 0 or {new} or {increase(metric, selected)})"


def percentile(share: float, metric: str, selected: str = SERVER, by: str = "") -> str:
    """Return a percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) ({rate(f'{metric}_bucket', selected)}))"


def percentiles(metric: str, selected: str = SERVER, shares: Iterable[float] = (0.5, 0.95, 0.99)) -> list[Query]:
    """Return a line for each percentile."""
    return [Query(percentile(share, metric, selected), f"p{share * 100:g}") for share in shares]


def per_label(metric: str, label: str, selected: str = SERVER) -> list[Query]:
    """Return a line for each value of a label: what a counter grows by in a second."""
    return [Query(f"sum by ({label}) ({rate(metric, selected)})", f"{{{{{label}}}}}")]


OPERATIONS = "a2a_server_operation_duration_seconds"
CALLS = "a2a_client_operation_duration_seconds"
TASKS = "a2a_server_task_duration_seconds"
FIRST_TOKEN = "a2a_server_time_to_first_token_seconds"  # noqa: S105 - no password
COMMITS = "dragoman_journal_commit_duration_seconds"
RECORDS = "dragoman_journal_commit_records"
SYNCS = "dragoman_journal_sync_duration_seconds"
LAG = "dragoman_loop_lag_seconds"
SKILL = "gen_ai_agent_name, dragoman_skill"
SKILL_LEGEND = "{{gen_ai_agent_name}} · {{dragoman_skill}}"


def tile(title: str, text: str, expr: str, unit: str, steps: tuple[float, float] | None = None) -> Panel:
    """Return a panel with one number."""
    return Panel(title, text, [Query(expr, title)], unit, "stat", 3, steps=steps)


OVERVIEW = [
    tile(
        "Servers",
        "Servers whose metrics Prometheus reads at the moment.",
        'sum(up{job=~"$job", instance=~"$instance"})',
        "none",
    ),
    tile("Requests", "Requests per second.", f"sum({rate(f'{OPERATIONS}_count', AGENT)})", "reqps"),
    tile(
        "Errors of the server",
        "Share of requests that failed and were not the caller's fault: internal errors, a store that refuses to "
        "write, responses of agents that are not valid. Target: under 0.1 %.",
        f"(sum({rate(f'{OPERATIONS}_count', f'{AGENT}, {OWN_FAULT}')}) or vector(0)) "
        f"/ sum({rate(f'{OPERATIONS}_count', AGENT)})",
        "percentunit",
        (0.001, 0.01),
    ),
    tile(
        "Reads, p99",
        "99 of 100 reads of tasks take at most this long. No agent works for them, so this is the server alone.",
        percentile(0.99, OPERATIONS, f'{AGENT}, a2a_method_name=~"GetTask|ListTasks"'),
        "s",
        (0.25, 1),
    ),
    tile(
        "Tasks in progress",
        "Tasks that are at work. Tasks that wait for their caller are not.",
        f"sum(a2a_server_task_in_progress{{{AGENT}}})",
        "none",
    ),
    tile("Open streams", "Streams that are open.", f"sum(dragoman_streams{{{AGENT}}})", "none"),
    tile(
        "Loop lag, p99",
        "How late the event loop runs what is due. Everything that a server does waits that long.",
        percentile(0.99, LAG),
        "s",
        (0.05, 0.2),
    ),
    tile(
        "Late webhooks",
        "Webhooks whose last delivery failed. They are tried again, with growing pauses.",
        f"sum(dragoman_webhook_late{{{SERVER}}})",
        "none",
        (1, 50),
    ),
    Panel(
        "Requests by method",
        "Requests per second. A method without a name is a request that could not be read.",
        per_label(f"{OPERATIONS}_count", "a2a_method_name", AGENT),
        "reqps",
        stacked=True,
    ),
    Panel(
        "Errors by type",
        "Failed requests per second, by the reason that the caller got. CANCELED: the caller has left. "
        "RESOURCE_EXHAUSTED: see the row Limits.",
        per_label(f"{OPERATIONS}_count", "error_type", f'{AGENT}, error_type!=""'),
        "reqps",
        stacked=True,
    ),
    Panel(
        "Protocol versions",
        "Requests per second, by the version of A2A that the caller speaks.",
        per_label(f"{OPERATIONS}_count", "a2a_protocol_version", AGENT),
        "reqps",
        stacked=True,
    ),
    *(
        Panel(
            f"Response time, p{share * 100:g}",
            f"{share * 100:g} of 100 requests take at most this long, by method. SendMessage includes the work of the "
            "agent, unless the caller asks not to wait. Streams are left out: they last as long as their task.",
            [Query(percentile(share, OPERATIONS, f"{AGENT}, {NO_STREAMS}", "a2a_method_name"), "{{a2a_method_name}}")],
            "s",
        )
        for share in (0.5, 0.95, 0.99)
    ),
    Panel(
        "Tasks in progress by agent",
        "Tasks that are at work.",
        [Query(f"sum by (gen_ai_agent_name) (a2a_server_task_in_progress{{{AGENT}}})", "{{gen_ai_agent_name}}")],
        stacked=True,
    ),
    Panel(
        "Open streams by agent",
        "Streams that are open.",
        [Query(f"sum by (gen_ai_agent_name) (dragoman_streams{{{AGENT}}})", "{{gen_ai_agent_name}}")],
        stacked=True,
    ),
    Panel(
        "Response times",
        "How many requests took how long, streams left out. A second band shows that there are two kinds of requests.",
        [Query(f"sum by (le) ({increase(f'{OPERATIONS}_bucket', f'{AGENT}, {NO_STREAMS}')})", "{{le}}")],
        "s",
        "heatmap",
    ),
]
TASKS_ROW = [
    Panel(
        "Runs by state",
        "Runs that ended, per second, by the state in which they left their task. One task can have several runs: "
        "each answer to a question begins another.",
        per_label(f"{TASKS}_count", "a2a_task_state", AGENT),
        "ops",
        stacked=True,
    ),
    Panel(
        "Runs by skill",
        "Runs that ended, per second.",
        [Query(f"sum by ({SKILL}) ({rate(f'{TASKS}_count', AGENT)})", SKILL_LEGEND)],
        "ops",
        stacked=True,
    ),
    Panel(
        "Failed runs by skill",
        "Share of runs that ended with a failed task.",
        [
            Query(
                f"sum by ({SKILL}) ({rate(f'{TASKS}_count', f'{AGENT}, {FAILED}')}) "
                f"/ sum by ({SKILL}) ({rate(f'{TASKS}_count', AGENT)})",
                SKILL_LEGEND,
            )
        ],
        "percentunit",
    ),
    Panel(
        "Duration by skill, p50",
        "Half of all runs take at most this long.",
        [Query(percentile(0.5, TASKS, AGENT, SKILL), SKILL_LEGEND)],
        "s",
    ),
    Panel(
        "Duration by skill, p95",
        "95 of 100 runs take at most this long. More than 300 seconds are shown as 300.",
        [Query(percentile(0.95, TASKS, AGENT, SKILL), SKILL_LEGEND)],
        "s",
    ),
    Panel(
        "Time to first token, p95",
        "95 of 100 runs have their first output after at most this long, counted from the arrival of the message. "
        "This is what a user waits before anything moves.",
        [Query(percentile(0.95, FIRST_TOKEN, AGENT, SKILL), SKILL_LEGEND)],
        "s",
    ),
]
CALLS_ROW = [
    Panel(
        "Calls by method",
        "Calls of other agents per second, retries included in one call.",
        per_label(f"{CALLS}_count", "a2a_method_name"),
        "reqps",
        stacked=True,
    ),
    Panel(
        "Failed calls by error",
        "Calls of other agents that failed, per second.",
        per_label(f"{CALLS}_count", "error_type", f'{SERVER}, error_type!=""'),
        "reqps",
        stacked=True,
    ),
    Panel(
        "Duration of calls",
        "How long calls of other agents take, retries included and streams left out.",
        percentiles(CALLS, f"{SERVER}, {NO_STREAMS}"),
        "s",
    ),
]
JOURNAL = [
    Panel(
        "Commits",
        "Commits per second. Changes that arrive together are committed together.",
        [Query(f"sum by (instance) ({rate(f'{COMMITS}_count')})", "{{instance}}")],
        "ops",
    ),
    Panel(
        "Changes per commit",
        "Changes of tasks in one commit. It grows under load: that is how one sync serves many requests.",
        [
            Query(f"sum({rate(f'{RECORDS}_sum')}) / sum({rate(f'{RECORDS}_count')})", "average"),
            *percentiles(RECORDS, shares=(0.95, 0.99)),
        ],
        "none",
    ),
    Panel(
        "Bytes committed",
        "Bytes per second that are written to the journal.",
        [Query(f"sum by (instance) ({rate('dragoman_journal_bytes_total')})", "{{instance}}")],
        "Bps",
    ),
    Panel(
        "Duration of a commit",
        "From the moment a commit begins until it is durable. Every change of a task waits for one.",
        percentiles(COMMITS, shares=(0.5, 0.99)),
        "s",
    ),
    Panel(
        "Duration of a sync",
        "Time until the disk, or the database, has confirmed a commit. A slow disk shows here first.",
        percentiles(SYNCS, shares=(0.5, 0.99)),
        "s",
    ),
    Panel(
        "Refused changes",
        "Changes of tasks that the store has refused. error: the disk is full, the database is gone, or the file "
        "cannot be written. lost: the node was declared dead, and others have its tasks. conflict: another node was "
        "faster, which is nothing bad.",
        [Query(events("dragoman_journal_refused_total", SERVER, "instance, reason"), "{{instance}} · {{reason}}")],
        "none",
    ),
]
STREAMS = [
    Panel(
        "Open streams by server",
        "Streams that are open.",
        [Query(f"sum by (instance) (dragoman_streams{{{AGENT}}})", "{{instance}}")],
    ),
    Panel(
        "Ended streams",
        "Streams per second that ended, by the method that opened them.",
        per_label(
            f"{OPERATIONS}_count",
            "a2a_method_name",
            f'{AGENT}, a2a_method_name=~"SendStreamingMessage|SubscribeToTask"',
        ),
        "ops",
    ),
    Panel(
        "Wake-ups by source",
        "How often streams and waiting callers are woken, per second, by who woke them.",
        per_label("dragoman_wakeups_total", "source"),
        "ops",
    ),
]
NODES = [
    Panel(
        "Time left of leases",
        "How long each node may go on without a renewal. It is a saw: it falls, and jumps back up with each renewal. A "
        "node whose line reaches zero stops its tasks, and others take them.",
        [Query(f"min by (instance) (dragoman_lease_remaining_seconds{{{SERVER}}})", "{{instance}}")],
        "s",
    ),
    Panel(
        "Renewals of leases",
        "Renewals per second, by outcome.",
        per_label("dragoman_lease_renewals_total", "outcome"),
        "ops",
    ),
    Panel(
        "Takeovers",
        "Tasks whose process has died in the middle of their run, by what became of them: restarted, failed, or "
        "queued for another node.",
        [
            Query(
                events("dragoman_takeovers_total", AGENT, "gen_ai_agent_name, outcome"),
                "{{gen_ai_agent_name}} · {{outcome}}",
            )
        ],
        "none",
    ),
]
WEBHOOKS = [
    Panel(
        "Webhooks",
        "Owed: webhooks that have something to be delivered. Late: those of them whose last delivery failed.",
        [
            Query(f"sum(dragoman_webhook_owed{{{SERVER}}})", "owed"),
            Query(f"sum(dragoman_webhook_late{{{SERVER}}})", "late"),
        ],
    ),
    Panel(
        "Deliveries by outcome",
        "Requests to webhooks per second.",
        per_label("dragoman_webhook_deliveries_total", "outcome"),
        "reqps",
        stacked=True,
    ),
    Panel(
        "Webhooks given up",
        "Webhooks that were given up after they had failed for too long. `dragoman push retry` takes them up again.",
        [Query(f"sum by (instance) ({increase('dragoman_webhook_dead_total')})", "{{instance}}")],
        "none",
    ),
]
LIMITS = [
    Panel(
        "Limits hit",
        "Requests per second that a limit has refused, by the name of its setting.",
        per_label("dragoman_limits_hit_total", "limit"),
        "reqps",
        width=12,
        stacked=True,
    ),
    Panel(
        "Share of refused requests",
        "Share of all requests that a limit has refused.",
        [
            Query(
                f"sum by (instance) ({rate('dragoman_limits_hit_total')}) "
                f"/ sum by (instance) ({rate(f'{OPERATIONS}_count')})",
                "{{instance}}",
            )
        ],
        "percentunit",
        width=12,
    ),
]
PROCESS = [
    Panel(
        "CPU",
        "Cores in use. One event loop uses at most one core, and threads of agents the same one, as far as they run "
        "Python.",
        [Query(f"sum by (instance) ({rate('process_cpu_seconds_total')})", "{{instance}}")],
        "none",
    ),
    Panel(
        "Memory",
        "Resident memory.",
        [Query(f"sum by (instance) (process_resident_memory_bytes{{{SERVER}}})", "{{instance}}")],
        "bytes",
    ),
    Panel(
        "Threads",
        "All threads of the process, and threads in which code of agents runs, by pool.",
        [
            Query(f"sum by (instance) (dragoman_threads{{{SERVER}}})", "{{instance}} · all"),
            Query(f"sum by (instance, pool) (dragoman_threads_busy{{{SERVER}}})", "{{instance}} · busy: {{pool}}"),
        ],
    ),
    Panel(
        "Loop lag, p99",
        "How late the event loop runs what is due, by server.",
        [Query(percentile(0.99, LAG, by="instance"), "{{instance}}")],
        "s",
    ),
    Panel(
        "Stalls by skill",
        "Times that the event loop was blocked for over 200 ms, by the skill that blocked it. The log has the stack of "
        "each.",
        [Query(events("dragoman_loop_stalls_total", AGENT, SKILL), SKILL_LEGEND)],
        "none",
    ),
    Panel(
        "Scrapes",
        "How long Prometheus takes to read the metrics of a server.",
        [Query(f"max by (instance) (scrape_duration_seconds{{{SERVER}}})", "{{instance}}")],
        "s",
        width=12,
    ),
    Panel(
        "Versions",
        "Servers by the version of Dragoman that they run. Two lines: an upgrade is under way.",
        [Query(f"count by (version) (dragoman_info{{{SERVER}}})", "{{version}}")],
        "none",
        width=12,
        stacked=True,
    ),
]
ROWS = [
    Row("Overview", OVERVIEW),
    Row("Tasks", TASKS_ROW),
    Row("Journal", JOURNAL),
    Row("Streams and wake-ups", STREAMS),
    Row("Process", PROCESS),
    Row("Limits", LIMITS),
    Row("Webhooks", WEBHOOKS),
    Row("Nodes", NODES, collapsed=True),
    Row("Calls of other agents", CALLS_ROW, collapsed=True),
]
