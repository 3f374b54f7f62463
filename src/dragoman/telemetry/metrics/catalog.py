"""The metrics that there are: one attribute each. The names are OpenTelemetry's; Prometheus has them with underscores.

Those of A2A follow the draft of OpenTelemetry's conventions, those of Dragoman begin with its name. No label has more
values than a server has agents, skills, methods or kinds of errors.
"""

from __future__ import annotations

from dragoman.telemetry.metrics.registry import MetricRegistry

AGENT, METHOD, VERSION, STATE, ERROR = (
    "gen_ai.agent.name",
    "a2a.method.name",
    "a2a.protocol.version",
    "a2a.task.state",
    "error.type",
)
# Records in one commit.
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class Metrics(MetricRegistry):
    """The metrics of this process. Look at `on` before you record anything."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.histogram(
            "a2a.server.operation.duration",
            "Time of a call at the server, from the arrival of its request, of a stream until its end.",
            (AGENT, METHOD, VERSION, ERROR),
        )
        self.client_operations = self.histogram(
            "a2a.client.operation.duration",
            "Time of a call of another agent, retries included, of a stream until its end.",
            (METHOD, VERSION, ERROR),
        )
        self.tasks = self.histogram(
            "a2a.server.task.duration",
            "Time of a run, until its task has ended or waits for its caller.",
            (AGENT, "dragoman.skill", STATE),
        )
        self.tasks_in_progress = self.gauge("a2a.server.task.in_progress", "Runs that are at work.", (AGENT,))
        self.first_tokens = self.histogram(
            "a2a.server.time_to_first_token",
            "Time from the arrival of a message whose caller streams to the first output of its run.",
            (AGENT, "dragoman.skill"),
        )
        # -- the journal
        self.commits = self.histogram("dragoman.journal.commit.duration", "Time of a commit, sync included.")
        self.commit_records = self.histogram(
            "dragoman.journal.commit.records", "Changes of tasks in one commit.", unit="", bounds=COUNTS
        )
        self.commit_bytes = self.counter("dragoman.journal.bytes", "Bytes that were committed.", unit="By")
        self.syncs = self.histogram("dragoman.journal.sync.duration", "Time until a commit was on the disk (fsync).")
        self.refused_writes = self.counter(
            "dragoman.journal.refused",
            "Changes of tasks that the store has refused: others were faster (conflict), this node was declared dead "
            "(lost), or the store has failed (error).",
            ("reason",),
        )
        # -- streams
        self.streams = self.gauge("dragoman.streams", "Streams that are open.", (AGENT,))
        self.wakeups = self.counter("dragoman.wakeups", "Wake-ups of streams and waiting callers.", ("source",))
        # -- several nodes
        self.lease_renewals = self.counter("dragoman.lease.renewals", "Renewals of this node's lease.", ("outcome",))
        self.lease_left = self.gauge(
            "dragoman.lease.remaining",
            "Time until the lease ends; of several workers, the least.",
            unit="s",
            merge="min",
        )
        self.takeovers = self.counter(
            "dragoman.takeovers",
            "Tasks whose process has ended in the middle of their run, by what became of them: restarted, failed, or "
            "queued for another node.",
            (AGENT, "outcome"),
        )
        # -- webhooks
        self.deliveries = self.counter(
            "dragoman.webhook.deliveries", "Deliveries to webhooks: delivered, refused or failed.", ("outcome",)
        )
        self.webhooks_owed = self.gauge("dragoman.webhook.owed", "Webhooks that have something to be delivered.")
        self.webhooks_late = self.gauge("dragoman.webhook.late", "Webhooks whose last delivery failed.")
        self.webhooks_dead = self.counter("dragoman.webhook.dead", "Webhooks that were given up.")
        # -- the process
        self.limits_hit = self.counter("dragoman.limits.hit", "Requests that a limit has refused.", ("limit",))
        self.threads = self.gauge("dragoman.threads", "Threads of Python.")
        self.busy_threads = self.gauge("dragoman.threads.busy", "Threads that run a call, by pool.", ("pool",))
        self.loop_lag = self.histogram("dragoman.loop.lag", "How late the event loop was, ten times a second.")
        self.loop_stalls = self.counter(
            "dragoman.loop.stalls", "Times that the event loop was blocked for over 200 ms.", (AGENT, "dragoman.skill")
        )


METRICS = Metrics()
