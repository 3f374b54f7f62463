"""What docs/scaling.md says about the model, from what was measured."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec import structs

from bench.environments import ROOT
from bench.scale.check import Comparison, compare_points
from bench.scale.costs import CommitCost, Linear, Measured, UnitCosts
from bench.scale.demand import Bus, Demand, Host, ceiling, crowd, demand, waiting_from
from bench.tables import number, table
from dragoman.stores.postgres.admin.health import NODE_CONNECTIONS

PAGE = ROOT / "docs" / "scaling.md"
NODES = (10, 100, 1000)
RATES = (1_000, 10_000, 100_000, 1_000_000)
HOST = Host()
_BEGIN, _END = "<!-- {0}: written by python -m bench.scale_model --write -->", "<!-- end of {0} -->"
_REMEDIES = {
    "nodes": "more nodes",
    "nodes: wake-ups": "wake-ups for the nodes concerned only",
    "PostgreSQL CPU: wake-ups": "fewer nodes, or wake-ups for the nodes concerned only",
    "PostgreSQL CPU: commits": "fewer and fuller nodes; then several databases",
    "PostgreSQL CPU: leases": "a longer `lease`, or several databases",
    "PostgreSQL CPU: looking for work": "fewer nodes, or several databases",
    "memory of PostgreSQL": "fewer nodes, more memory, or several databases",
}
_FACTOR = 1.3
NONE = "\N{EN DASH}"


def parts(measured: Measured) -> dict[str, str]:
    """The parts of the page, by name."""
    costs = measured.costs
    return {
        "answer": _answer(costs),
        "costs": _costs(measured),
        "points": _points(compare_points(measured)),
        "table": _table(costs, Bus()),
        "ceilings": _ceilings(costs),
        "sensitivity": _sensitivity(costs),
        "storage": _storage(costs),
    }


def filled(text: str, found: dict[str, str]) -> str:
    """A page with its parts replaced. Raises ValueError when a part has no place in it."""
    for name, part in found.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        head, is_there, rest = text.partition(begin)
        _, has_end, tail = rest.partition(end)
        if not (is_there and has_end):
            raise ValueError(f"the page has no place for {name}: {begin} … {end}")
        text = f"{head}{begin}\n\n{part}\n\n{end}{tail}"
    return text


def write(measured: Measured, path: Path = PAGE) -> None:
    """Write the parts into the page."""
    path.write_text(filled(path.read_text(), parts(measured)))


# -- in words ----------------------------------------------------------------------------------------------------------


def _answer(costs: UnitCosts) -> str:
    few, _, many = (_ceiling(costs, nodes) for nodes in NODES)
    nodes, best = _best(costs)
    waits = waiting_from(costs, 100, HOST)
    slower = f", and at 100 nodes commits wait for it from about {_round(waits)} tasks a second on" if waits else ""
    idle = demand(costs, 1000, 1, HOST)
    return "\n".join(
        [
            f"- **One node ends at about {_round(_ceiling(costs, 1).rate)} tasks a second**: one core of Python. Ten "
            f"nodes end at about {_round(few.rate)}: {_because(few)}.",
            f"- **One PostgreSQL carries about {_round(best.rate)} tasks a second**, which takes {nodes} nodes. "
            f"Then it is {_because(best)} that ends.",
            "- **Wake-ups make large fleets expensive.** Every NOTIFY wakes every node: a task costs PostgreSQL "
            f"more with every node{slower}. Up to about {_round(crowd(costs, HOST))} nodes that makes commits slower, "
            "and no more: while they wait, more tasks gather for each statement and for each NOTIFY. Beyond, wake-ups "
            f"alone take more than PostgreSQL has: 1,000 nodes end at about {_round(many.rate)} tasks a second.",
            f"- **Leases do not end it.** At 1,000 nodes their renewals read a million rows a second, which takes "
            f"{number(idle.cpu['leases'])} cores. The {NODE_CONNECTIONS * 1000:,} connections of 1,000 nodes are a "
            f"greater matter: they take {_bytes(idle.used['memory of PostgreSQL'] * HOST.memory)} of memory.",
            f"- **A webhook costs a node as much as {number(costs.webhook_node / _node_task(costs))} tasks**, and "
            f"PostgreSQL as much as {number(costs.webhook_database / _database_task(costs))}. An open stream costs "
            f"memory: {_bytes(costs.stream_bytes)}, with its task.",
            "- **10⁶ tasks a second are for many databases.** They write "
            f"{_bytes(1e6 * costs.wal_bytes)} of WAL a second and fill {_bytes(1e6 * costs.disk_bytes * 86400)} a day.",
        ]
    )


def _node_task(costs: UnitCosts) -> float:
    """CPU of a busy node per task."""
    return 1 / _ceiling(costs, 1).rate


def _database_task(costs: UnitCosts) -> float:
    """CPU of PostgreSQL per task of ten busy nodes."""
    found = _ceiling(costs, 10)
    return found.cpu["commits"] / found.rate


def _best(costs: UnitCosts) -> tuple[int, Demand]:
    """The fewest nodes with which PostgreSQL carries as much as it can, and how much."""
    found = {nodes: _ceiling(costs, nodes) for nodes in (1, 2, 5, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)}
    most = max(one.rate for one in found.values())
    return next((nodes, one) for nodes, one in found.items() if one.rate > 0.98 * most)


def _because(found: Demand) -> str:
    words = {"nodes": "the CPU of the nodes", "WAL": "the disk for WAL", "memory of PostgreSQL": "PostgreSQL's memory"}
    return words.get(found.why, found.why.replace("PostgreSQL CPU", "PostgreSQL's CPU"))


def _ceiling(costs: UnitCosts, nodes: int, bus: Bus | None = None) -> Demand:
    return ceiling(costs, nodes, HOST, bus) or demand(costs, nodes, 0.001, HOST, bus)


# -- tables ------------------------------------------------------------------------------------------------------------


def _costs(measured: Measured) -> str:
    costs, machine = measured.costs, measured.machine
    rows = [
        ["a send without a store, CPU of the node", _us(costs.node_send)],
        ["the same, when the node had to wait for it", _us(costs.node_send_alone)],
        *_commit_rows("tasks that begin", costs.begin),
        *_commit_rows("tasks that end", costs.end),
        *_commit_rows("tasks of both kinds", _halved(costs.both)),
        ["until 8 KB are safe on the disk", _us(costs.sync)],
        ["from one process to another", _us(costs.hop)],
        ["NOTIFY, CPU of PostgreSQL", _line(costs.notify, "listener")],
        ["NOTIFY, CPU of the node that sends it", _us(costs.notify_node)],
        ["NOTIFY, CPU of each node that gets it", _line(costs.notice, "task in it")],
        ["renewal of a lease, CPU of PostgreSQL", _line(costs.beat_database, "node")],
        ["renewal of a lease, CPU of the node", _line(costs.beat_node, "node")],
        ["looking for work, CPU of PostgreSQL", _us(costs.look_database)],
        ["looking for work, CPU of the node", _us(costs.look_node)],
        [f"a webhook that gets {number(costs.webhook_requests)} requests, CPU of the node", _us(costs.webhook_node)],
        ["the same, CPU of PostgreSQL", _us(costs.webhook_database)],
        ["WAL per send", _bytes(costs.wal_bytes)],
        ["WAL per send right after a checkpoint", _bytes(costs.wal_bytes_checkpoint)],
        ["on disk per send, with indexes", _bytes(costs.disk_bytes)],
        ["memory of a connection, idle", _bytes(costs.idle_backend_bytes)],
        ["memory of a connection that has committed much", _bytes(costs.backend_bytes)],
        ["memory of an open stream with its task, at the node", _bytes(costs.stream_bytes)],
    ]
    head = (
        f"Measured {measured.taken} on {machine['cores']} cores of an {machine['cpu']}, load {measured.load:.1f} at "
        f"the start{''.join(f'; {note}' for note in measured.notes)}:"
    )
    return f"{head}\n\n{table(['what', 'cost'], rows)}"


def _commit_rows(name: str, cost: CommitCost) -> list[list[str]]:
    return [
        [f"commit of {name}: CPU of the node", _line(cost.node, "task")],
        ["… CPU of PostgreSQL", _line(cost.database, "task")],
        ["… nobody computes: the disk, and the way there and back", _line(cost.pause, "task")],
    ]


def _halved(cost: CommitCost) -> CommitCost:
    node, database, pause = (structs.replace(one, each=one.each / 2) for one in (cost.node, cost.database, cost.pause))
    return CommitCost(node, database, pause)


def _points(found: list[Comparison]) -> str:
    rows = [[one.name, one.what, one.shown(one.measured), one.shown(one.model), f"{one.ratio:.2f}×"] for one in found]  # noqa: RUF001
    return table(["", "", "measured", "model", "ratio"], rows)


def _table(costs: UnitCosts, bus: Bus) -> str:
    rows: list[list[str]] = []
    for nodes in NODES:
        for rate in RATES:
            found = demand(costs, nodes, rate, HOST, bus)
            rows.append(
                [
                    f"{nodes:,}",
                    f"{rate:,}",
                    found.why,
                    _percent(found.most),
                    _percent(found.used["nodes"]),
                    _percent(found.used["PostgreSQL CPU"]),
                    _percent(found.used["WAL"]),
                    f"{number(found.statement * 1000)} ms" if found.fits else "too long",
                    _remedy(found),
                ]
            )
    head = ["nodes", "tasks/s", "first", "used", "a node's core", "PostgreSQL CPU", "WAL", "a commit", "what to do"]
    return table(head, rows)


def _remedy(found: Demand) -> str:
    if found.fits and not found.waits:
        return NONE
    # What is written cannot be made less: more than one disk can take needs more disks.
    databases = math.ceil(found.used["WAL"])
    words = [] if found.first == "WAL" else [_REMEDIES[found.why]]
    if databases > 1:
        words.append("a faster disk" if databases == 2 else f"{databases} databases")
    return "; ".join(words)


def _ceilings(costs: UnitCosts) -> str:
    rows: list[list[str]] = []
    for nodes in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        today, direct = _ceiling(costs, nodes), _ceiling(costs, nodes, Bus(direct=True))
        waits = waiting_from(costs, nodes, HOST)
        rows.append(
            [
                f"{nodes:,}",
                NONE if waits is None else _round(waits),
                _round(today.rate),
                _because(today),
                _round(direct.rate),
                _because(direct),
            ]
        )
    head = ["nodes", "commits wait from", "ends at", "what ends", "with fewer wake-ups", "what ends then"]
    return table(head, rows)


def _sensitivity(costs: UnitCosts) -> str:
    changes = {
        "a send at the node": structs.replace(costs, node_send=costs.node_send * _FACTOR),
        "statements of PostgreSQL, what each costs in any case": structs.replace(
            costs,
            begin=structs.replace(costs.begin, database=_more(costs.begin.database, fixed=_FACTOR)),
            end=structs.replace(costs.end, database=_more(costs.end.database, fixed=_FACTOR)),
            both=structs.replace(costs.both, database=_more(costs.both.database, fixed=_FACTOR)),
        ),
        "statements of PostgreSQL, what each task in them costs": structs.replace(
            costs,
            begin=structs.replace(costs.begin, database=_more(costs.begin.database, each=_FACTOR)),
            end=structs.replace(costs.end, database=_more(costs.end.database, each=_FACTOR)),
        ),
        "wake-ups, per listener": structs.replace(costs, notify=_more(costs.notify, each=_FACTOR)),
        "notices, per task": structs.replace(costs, notice=_more(costs.notice, each=_FACTOR)),
        "leases, per node": structs.replace(costs, beat_database=_more(costs.beat_database, each=_FACTOR)),
        "WAL per send": structs.replace(costs, wal_bytes=costs.wal_bytes * _FACTOR),
        "memory of a connection": structs.replace(
            costs,
            backend_bytes=costs.backend_bytes * _FACTOR,
            idle_backend_bytes=costs.idle_backend_bytes * _FACTOR,
        ),
    }
    before = _ends(costs, HOST)
    after = {name: _ends(changed, HOST) for name, changed in changes.items()}
    after["a sync, ten times as long"] = _ends(costs, structs.replace(HOST, sync=10 * HOST.sync))
    rows = [
        [name, *(_change(end, start) for end, start in zip(ends, before, strict=True))] for name, ends in after.items()
    ]
    head = ["30 % more of", "10 nodes end", "at 100, commits wait from", "100 nodes end", "1,000 nodes end"]
    return table(head, rows)


def _ends(costs: UnitCosts, host: Host) -> list[float | None]:
    """The rates of which it is said how much they depend on each cost; None where there is none."""
    few, many, most = (found and found.rate for found in (ceiling(costs, nodes, host) for nodes in NODES))
    return [few, waiting_from(costs, NODES[1], host), many, most]


def _more(cost: Linear, fixed: float = 1.0, each: float = 1.0) -> Linear:
    return Linear(cost.fixed * fixed, cost.each * each)


def _change(end: float | None, start: float | None) -> str:
    if not end or not start:
        return "never" if start else NONE
    percent = (end / start - 1) * 100
    return "0 %" if abs(percent) < 0.5 else f"{percent:+.0f} %".replace("-", "−")  # noqa: RUF001


def _storage(costs: UnitCosts) -> str:
    rows = [
        [
            f"{rate:,}",
            f"{_bytes(rate * costs.wal_bytes)}/s",
            _bytes(rate * costs.disk_bytes * 86400),
            f"{rate * 86400:,.0f}",
        ]
        for rate in RATES
    ]
    return table(["tasks/s", "WAL", "on disk per day that is kept", "tasks per day"], rows)


# -- figures -----------------------------------------------------------------------------------------------------------


def _us(seconds: float) -> str:
    return f"{number(seconds * 1e6)} µs"


def _line(cost: Linear, what: str) -> str:
    return f"{_us(cost.fixed)} + {_us(cost.each)} per {what}"


def _percent(part: float) -> str:
    return f"{number(part)} times" if part >= 2 else f"{number(100 * part)} %"


def _bytes(count: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{number(count / size)} {unit}"
    return f"{count:.0f} bytes"


def _round(rate: float) -> str:
    """Two digits: more would say more than the model knows."""
    if rate < 1:
        return "0"
    step = 10 ** (len(str(int(rate))) - 2)
    return f"{int(round(rate / step) * step) if step >= 1 else round(rate):,}"
