"""Lays out a snapshot as lines of text: in a terminal of any size, with colors, or as plain text."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from dragoman.cli.printing import StyledText, is_plain_terminal
from dragoman.cli.talk.progress import format_elapsed
from dragoman.cli.top.snapshot import MethodRow, SkillRow, Snapshot
from dragoman.cli.top.sorting import sort_key, sort_rows
from dragoman.telemetry.metrics.distribution import Distribution
from dragoman.telemetry.printable import format_bytes, one_line

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_TREND_WIDTH = 20
_NAME_WIDTH = 18
_LABEL_WIDTH = 10
# So many rows of a table are there before anything less important is.
_FEW_ROWS = 4
_HELP = """\
q        quit
p        pause, and go on
s        sort by rate, errors, time, name
?        this help

Rates are per second and, as all times, about the last seconds that the
title names; the bars are about the last minute. P50 is a time that half
of the calls kept below, P99 one that 99 of 100 did. Times are estimates
from the buckets of histograms.

METHOD   calls of the server; a stream lasts until its end
AGENT    runs, until a task has ended or waits for its caller; FIRST is
         the time to the first output of a run
LOOP     how late the event loop is; a stall is over 200 ms
OWED     webhooks with something to deliver; LATE, whose last delivery
         failed; DEAD, given up

The numbers are those of the page /metrics, which Prometheus can read."""


class ViewState(NamedTuple):
    """What the user has chosen, and what has happened to the connection."""

    address: str
    sort: str = "rate"
    paused: bool = False
    shows_help: bool = False
    # Why the server cannot be read, and for how many seconds.
    lost: str = ""
    lost_for: float = 0.0


class View:
    """Lays out snapshots. Without `unicode`, it draws with ASCII."""

    def __init__(self, *, unicode: bool = True, color: bool = True) -> None:
        self._bars = _BARS if unicode else _ASCII_BARS
        self._dot = " · " if unicode else " | "
        # Written to nowhere: what it renders is captured.
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="standard" if color and not is_plain_terminal() else None,
            no_color=is_plain_terminal(),
            legacy_windows=False,
            highlight=False,
            soft_wrap=True,
            width=10_000,
        )

    def styled(self, lines: Sequence[Text]) -> list[StyledText]:
        """Return lines with the escape sequences of a terminal."""
        styled: list[StyledText] = []
        for line in lines:
            with self._console.capture() as captured:
                self._console.print(line, end="")
            styled.append(StyledText(captured.get()))
        return styled

    def lines(self, snapshot: Snapshot, state: ViewState, width: int, height: int | None = None) -> list[Text]:
        """Return the lines for so many columns and rows; all there are without `height`."""
        head = [self._title(snapshot, state, width)]
        if state.lost:
            seconds = format_elapsed(state.lost_for)
            head.append(Text(f"connection lost, trying again ({seconds}): {one_line(state.lost)}", "bold red"))
        if state.shows_help:
            body = [Text(), *map(Text, _HELP.splitlines())]
            return _cut([*head, *body], width, height)
        head.append(self._tasks(snapshot, width))
        methods = sort_rows(snapshot.methods, state.sort)
        groups = [
            [group[0], *sort_rows(group[1:], state.sort)]
            for group in sorted(snapshot.agents, key=lambda group: sort_key(group[0], state.sort))
        ]
        agents = [row for group in groups for row in _flat(group)]
        statuses = self._statuses(snapshot, width)
        footer = [self._footer(state)] if height is not None and height > 10 else []
        room = 10_000 if height is None else height - len(head) - len(footer)
        few = [min(len(rows), _FEW_ROWS) + 1 for rows in (methods, agents)]
        statuses = statuses[: max(0, room - sum(few))]
        left = room - sum(few) - len(statuses)
        blank = [Text()] if left >= 3 else []
        left = max(0, left - 3 * len(blank))
        more = min(len(methods) + 1 - few[0], max(left // 2, left - (len(agents) + 1 - few[1])))
        count = (few[0] + more - 1, few[1] + left - more - 1)
        body = [
            *blank,
            *self._method_table(methods, count[0], width),
            *blank,
            *self._agent_table(agents, count[1], width),
            *blank,
            *statuses,
        ]
        if height is None:
            return _cut([*head, *body], width, None)
        rows = _cut([*head, *body], width, height - len(footer))
        rows += [Text()] * (height - len(footer) - len(rows))
        return [*rows, *_cut(footer, width, None)]

    # -- lines ---------------------------------------------------------------------------------------------------

    def _title(self, snapshot: Snapshot, state: ViewState, width: int) -> Text:
        items = [
            state.address,
            one_line(snapshot.version),
            "" if math.isnan(snapshot.uptime) else f"up {format_elapsed(max(0.0, snapshot.uptime))}",
            f"restarted {snapshot.restarts}x" if snapshot.restarts else "",
            "" if math.isnan(snapshot.cpu) else f"CPU {snapshot.cpu * 100:.0f} %",
            "" if math.isnan(snapshot.memory) else format_bytes(snapshot.memory),
            f"last {_plain_seconds(snapshot.seconds)}",
        ]
        title = Text("dragoman top", "bold green")
        if state.paused:
            title.append("  PAUSED ", "bold yellow")
        for item in filter(None, items):
            if title.cell_len + len(self._dot) + len(item) <= width:
                title.append(self._dot, "dim").append(item)
        return title

    def _tasks(self, snapshot: Snapshot, width: int) -> Text:
        ended = {state: rate for state, rate in snapshot.ended.items() if rate > 0} | {
            state: snapshot.ended.get(state, 0.0) for state in ("completed", "failed", "canceled")
        }
        order = ["completed", "failed", "canceled", *sorted(ended.keys() - {"completed", "failed", "canceled"})]
        line = _status(
            "TASKS",
            [
                (f"{_count(snapshot.at_work)} at work", "bold" if snapshot.at_work else ""),
                *((f"{_rate(ended[each])}/s {one_line(each)}", _STATE_STYLES.get(each, "")) for each in order),
            ],
            width,
        )
        return self._with_trend(line, snapshot.trend, width)

    def _statuses(self, snapshot: Snapshot, width: int) -> list[Text]:
        """The lines below the tables, the most important first."""
        stalls = sum(stall.times for stall in snapshot.stalls)
        skills = ", ".join(f"{_skill_name(each.agent, each.skill)} {_count(each.times)}" for each in snapshot.stalls)
        limits = {limit: rate for limit, rate in snapshot.limits.items() if rate > 0}
        lines = [
            _status(
                "LOOP",
                [
                    (f"lag p99 {_quantile(snapshot.lag, 0.99)}", _alarm(snapshot.lag.quantile(0.99) > 0.1)),
                    (
                        f"{_count(stalls)} stall{'' if stalls == 1 else 's'}{f': {skills}' if skills else ''}",
                        _alarm(stalls > 0),
                    ),
                    (f"{_count(snapshot.threads)} threads", ""),
                    (f"{_count(snapshot.busy_threads)} busy", ""),
                ],
                width,
            ),
            _status(
                "STREAMS",
                [(f"{_count(snapshot.streams)} open", ""), (f"{_rate(snapshot.wakeups)}/s wake-ups", "")],
                width,
            ),
            _status(
                "JOURNAL",
                [
                    (f"{_rate(snapshot.commits)}/s commits", ""),
                    (f"{_rate(snapshot.records)} records each", ""),
                    (f"p99 {_quantile(snapshot.commit_times, 0.99)}", ""),
                    (f"sync p99 {_quantile(snapshot.sync_times, 0.99)}", ""),
                    (f"{_bytes(snapshot.journal_bytes)}/s", ""),
                    *([(f"{_rate(snapshot.refused)}/s refused", "red")] if snapshot.refused > 0 else []),
                ],
                width,
            ),
            _status(
                "LIMITS",
                [(f"{_rate(rate)}/s {one_line(limit)}", "yellow") for limit, rate in sorted(limits.items())]
                or [("0/s hit", "")],
                width,
            ),
            _status(
                "WEBHOOKS",
                [
                    (f"{_count(snapshot.webhooks_owed)} owed", ""),
                    (f"{_count(snapshot.webhooks_late)} late", _alarm(snapshot.webhooks_late > 0, "yellow")),
                    (f"{_count(snapshot.webhooks_dead)} dead", _alarm(snapshot.webhooks_dead > 0)),
                    (f"{_rate(snapshot.deliveries)}/s requests", ""),
                ],
                width,
            ),
        ]
        if not math.isnan(snapshot.lease) or snapshot.takeovers > 0:
            lease = "" if math.isnan(snapshot.lease) else f"lease ends in {_seconds(snapshot.lease)}"
            taken = 0.0 if math.isnan(snapshot.takeovers) else snapshot.takeovers
            items = [(lease, _alarm(snapshot.lease < 2)), (f"{_count(taken)} tasks taken over", "")]
            lines.append(_status("NODE", [item for item in items if item[0]], width))
        if not math.isnan(snapshot.client_rate):
            lines.append(
                _status(
                    "CALLS OUT",
                    [
                        (f"{_rate(snapshot.client_rate)}/s", ""),
                        (f"{_rate(snapshot.client_errors)}/s errors", _alarm(snapshot.client_errors > 0)),
                        (f"p99 {_quantile(snapshot.client_times, 0.99)}", ""),
                    ],
                    width,
                )
            )
        return lines

    def _footer(self, state: ViewState) -> Text:
        return Text.assemble(
            *(("q", "bold"), " quit  ", ("p", "bold"), " go on  " if state.paused else " pause  "),
            *(("s", "bold"), f" sort: {state.sort}  ", ("?", "bold"), " help"),
        )

    # -- tables --------------------------------------------------------------------------------------------------

    def _method_table(self, rows: Sequence[MethodRow], count: int, width: int) -> list[Text]:
        columns = _fit_columns(_METHOD_COLUMNS, width)
        lines = [_header("METHOD", count, len(rows), columns, width)]
        for row in rows[:count]:
            line = Text(one_line(row.name))
            line.truncate(_name_width(columns, width), overflow="ellipsis", pad=True)
            cells = {
                "CALLS/S": Text(_rate(row.rate), "" if row.rate else "dim"),
                "ERRORS/S": Text(_rate(row.errors), _alarm(row.errors > 0) or "dim"),
                "P50": Text(_quantile(row.times, 0.5)),
                "P95": Text(_quantile(row.times, 0.95)),
                "P99": Text(_quantile(row.times, 0.99)),
                _TREND: self._trend(row.trend, _TREND_WIDTH),
            }
            lines.append(_with_cells(line, columns, cells))
        return lines

    def _agent_table(self, rows: Sequence[tuple[str, SkillRow]], count: int, width: int) -> list[Text]:
        columns = _fit_columns(_AGENT_COLUMNS, width)
        lines = [_header("AGENT / SKILL", count, len(rows), columns, width)]
        for name, row in rows[:count]:
            line = Text(name, "" if name.startswith(" ") else "bold")
            line.truncate(_name_width(columns, width), overflow="ellipsis", pad=True)
            cells = {
                "RUNS/S": Text(_rate(row.rate), "" if row.rate else "dim"),
                "FAILED/S": Text(_rate(row.errors), _alarm(row.errors > 0) or "dim"),
                "MEAN": Text(_seconds(row.times.mean)),
                "P99": Text(_quantile(row.times, 0.99)),
                "FIRST": Text(_quantile(row.first_token, 0.5)),
                "AT WORK": Text("" if math.isnan(row.at_work) else _count(row.at_work)),
                "STREAMS": Text("" if math.isnan(row.streams) else _count(row.streams)),
                _TREND: self._trend(row.trend, _TREND_WIDTH),
            }
            lines.append(_with_cells(line, columns, cells))
        return lines

    # -- the last minute -----------------------------------------------------------------------------------------

    def _trend(self, rates: Sequence[float], width: int) -> Text:
        return Text(sparkline(rates, width, self._bars).rjust(width), "cyan")

    def _with_trend(self, line: Text, rates: Sequence[float], width: int) -> Text:
        room = min(60, width - line.cell_len - 2)
        if room < 10:
            return line
        return line.append(" " * (width - line.cell_len - room)).append_text(self._trend(rates, room))


def sparkline(values: Sequence[float], width: int, bars: str = _BARS) -> str:
    """Draw the values, the last one at the right end, in at most `width` characters; each of several is their mean."""
    if not values or width <= 0:
        return ""
    per = math.ceil(len(values) / width)
    # Whole groups from the end: those that were drawn do not change when the next value comes.
    ends = range(len(values), 0, -per)
    means = [sum(values[max(0, end - per) : end]) / len(values[max(0, end - per) : end]) for end in ends][::-1]
    most = max(means)
    return "".join(
        bars[min(len(bars) - 1, round(mean / most * (len(bars) - 1)))] if most else bars[0] for mean in means
    )


# -- columns ---------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column of numbers. Where there is no room, the one of least `weight` goes first."""

    title: str
    width: int
    weight: int


_TREND = "LAST MINUTE"
_METHOD_COLUMNS = (
    _Column("CALLS/S", 9, 9),
    _Column("ERRORS/S", 10, 8),
    _Column("P50", 9, 5),
    _Column("P95", 9, 4),
    _Column("P99", 9, 7),
    _Column(_TREND, _TREND_WIDTH + 2, 1),
)
_AGENT_COLUMNS = (
    _Column("RUNS/S", 9, 9),
    _Column("FAILED/S", 10, 8),
    _Column("MEAN", 9, 7),
    _Column("P99", 9, 3),
    _Column("FIRST", 9, 5),
    _Column("AT WORK", 9, 6),
    _Column("STREAMS", 9, 2),
    _Column(_TREND, _TREND_WIDTH + 2, 1),
)
_STATE_STYLES = {"completed": "green", "failed": "red", "rejected": "red", "canceled": "yellow"}


def _fit_columns(columns: Sequence[_Column], width: int) -> list[_Column]:
    fitting = list(columns)
    while fitting and _NAME_WIDTH + sum(column.width for column in fitting) > width:
        fitting.remove(min(fitting, key=lambda column: column.weight))
    return fitting


def _name_width(columns: Sequence[_Column], width: int) -> int:
    # Numbers that are far from their name are hard to read.
    return max(1, min(44, width - sum(column.width for column in columns)))


def _header(title: str, count: int, all_rows: int, columns: Sequence[_Column], width: int) -> Text:
    if count < all_rows:
        title = f"{title} ({max(0, count)} of {all_rows})"
    line = Text(title)
    line.truncate(_name_width(columns, width), overflow="ellipsis", pad=True)
    for column in columns:
        line.append(column.title.rjust(column.width))
    line.stylize("bold reverse")
    return line


def _with_cells(line: Text, columns: Sequence[_Column], cells: dict[str, Text]) -> Text:
    for column in columns:
        cell = cells[column.title]
        line.append(" " * max(0, column.width - cell.cell_len)).append_text(cell)
    return line


def _flat(group: Sequence[SkillRow]) -> list[tuple[str, SkillRow]]:
    """The rows of an agent with their names. One that has one skill has one row."""
    agent = group[0]
    if len(group) <= 2:
        return [(_skill_name(agent.agent, group[-1].skill), agent)]
    skills = [(f"  {one_line(row.skill) or '(none)'}", row) for row in group[1:]]
    return [(one_line(agent.agent), agent), *skills]


def _skill_name(agent: str, skill: str) -> str:
    return one_line(" / ".join(filter(None, (agent, skill))) or "(none)")


def _cut(lines: Iterable[Text], width: int, height: int | None) -> list[Text]:
    fitting = list(lines)[:height]
    for line in fitting:
        line.truncate(width, overflow="ellipsis")
    return fitting


def _status(label: str, items: Sequence[tuple[str, str]], width: int) -> Text:
    """A line of numbers. Those at its end are left out where there is no room."""
    line = Text.assemble((label.ljust(_LABEL_WIDTH), "bold"))
    for at, (text, style) in enumerate(items):
        item = Text(text, style)
        if at and line.cell_len + 2 + item.cell_len > width:
            break
        line.append("  " if at else "").append_text(item)
    return line


def _alarm(is_bad: bool, style: str = "red") -> str:
    return style if is_bad else ""


# -- numbers ---------------------------------------------------------------------------------------------------------


def _count(value: float) -> str:
    return "?" if math.isnan(value) else f"{value:,.0f}"


def _rate(value: float) -> str:
    """`0`, `0.2`, `12.3`, `340`, `12.3k`, `1.2M`."""
    if math.isnan(value):
        return "-"
    if value < 0.005:
        return "0"
    for limit, digits in ((1, 2), (100, 1), (10_000, 0)):
        if value < limit:
            return f"{value:,.{digits}f}"
    return f"{value / 1e3:,.1f}k" if value < 1e6 else f"{value / 1e6:,.1f}M"


def _bytes(value: float) -> str:
    return "-" if math.isnan(value) else format_bytes(value)


def _seconds(value: float) -> str:
    """`0.4 ms`, `12 ms`, `1.2 s`, `2m 05s`."""
    if math.isnan(value):
        return "-"
    if value < 0.9995:
        milliseconds = value * 1e3
        return f"{milliseconds:.1f} ms" if milliseconds < 9.95 else f"{milliseconds:.0f} ms"
    return f"{value:.1f} s" if value < 59.95 else format_elapsed(value)


def _plain_seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 0.95 else f"{value:.1f} s"


def _quantile(times: Distribution, share: float) -> str:
    value = times.quantile(share)
    return f">{_seconds(times.bounds[-1])}" if math.isinf(value) and times.bounds else _seconds(value)


def has_unicode() -> bool:
    """True when stdout can take what is drawn with."""
    try:
        "▁█·…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
