"""What must hold when all faults are over and everything is done."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from cluster.callers import ANYBODY, Reader, SentMessage, get_request
from cluster.node import AGENTS

from dragoman.model.json import decode_task
from dragoman.model.message import Message
from dragoman.model.record import fold
from dragoman.model.state import State
from dragoman.stores.postgres.sql import reader as queries

if TYPE_CHECKING:
    from cluster.machine import Cluster

    from dragoman.engine.ports.store import TaskRow


class FinalChecks:
    """The checks of a cluster in which everything is done."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._report = cluster.report
        self._audit = cluster.audit

    def check(self) -> None:
        """Check everything."""
        cluster = self._cluster
        histories: dict[str, list[str]] = {}
        for number, row in self._audit.rows.items():
            self._check_journal(number, row.id)
            histories[row.id] = [message.message_id for message in self._read(row.scope.agent, row.id)]
        for sent in cluster.messages:
            self._check_message(sent, histories)
        for reader in cluster.readers:
            self._check_reader(reader)
        for number, row in self._audit.rows.items():
            self._check_webhooks(number, row)
        for agent in AGENTS:
            drafts = self._query(self._audit.run(queries.drafts, agent))
            if drafts:
                self._report(f"drafts are left: {[stored.row.id for stored in drafts]}")

    def resolve(self) -> None:
        """Look up the tasks of which nobody knows what the last commit has done."""
        audit = self._audit
        for number, task_id in list(audit.uncertain.items()):
            stored = self._query(self._audit.run(queries.task, task_id))
            if stored is not None and stored.row.number == number:
                for record in self._query(self._audit.run(queries.records, number, 0, 100_000)):
                    audit.journals.setdefault(number, {}).setdefault(record.generation, record.body)
                audit.rows[number] = stored.row
                audit.numbers_by_id[task_id] = number

    def _query(self, statement: Coroutine[Any, Any, Any]) -> Any:
        results: list[Any] = []
        self._cluster.network.backend.execute(statement, lambda result, error: results.append((result, error)))
        self._cluster.run(0.0, lambda: bool(results))
        result, error = results[0]
        if error is not None:
            raise error
        return result

    def _check_journal(self, number: int, task_id: str) -> None:
        stored = self._query(self._audit.run(queries.task, task_id))
        journal = self._audit.journals[number]
        if stored is None:
            self._report(f"task {task_id} is gone")
            return
        records = self._query(self._audit.run(queries.records, number, 0, 100_000))
        if [record.generation for record in records] != list(range(1, stored.row.generation + 1)):
            self._report(f"the journal of {task_id} has gaps: {[record.generation for record in records]}")
        if {record.generation: record.body for record in records} != journal:
            self._report(f"the journal of {task_id} is not what was committed")
        events = [record.event for record in records]
        states = [event.status.state for event in events if hasattr(event, "status")]
        if any(state.final for state in states[:-1]):
            self._report(f"{task_id} went on after its end: {states}")
        if states[-1] is not stored.row.state or states[-1] in (State.SUBMITTED, State.WORKING):
            self._report(f"{task_id} is left {stored.row.state}, its journal says {states[-1]}", task_id)
        owner = self._query(self._audit.owners(0, [number]))[number]
        if owner.owner is not None:
            self._report(f"{task_id} is {stored.row.state} and owned by {self._audit.nodes.get(owner.owner)}", task_id)
        task = fold(events[0], events[1:])
        if stored.snapshot is not None and decode_task(stored.snapshot).artifacts != task.artifacts:
            self._report(f"the snapshot of {task_id} is not what its journal says", task_id)
        text = "" if task.status.message is None else task.status.message.text
        if states[-1] is State.FAILED and any(reason in text for reason in self._cluster.forbidden_reasons):
            self._report(f"{task_id} has failed: {text}", task_id)
        if task_id in self._cluster.canceled and states[-1] is not State.CANCELED:
            self._report(f"{task_id} was canceled and is {states[-1]}", task_id)

    def _read(self, agent: str, task_id: str) -> list[Message]:
        """The history of a task as a node reads it."""
        cluster = self._cluster
        results: list[Any] = []
        node = cluster._any_node()
        if node is None:
            self._report("no node is ready")
            return []
        work = node.services[agent].get(ANYBODY, get_request(task_id))
        cluster._call(node, work, lambda result, error: results.append(result if error is None else error))
        cluster.run(30.0, lambda: bool(results))
        if not results or isinstance(results[0], Exception):
            self._report(f"{task_id} cannot be read: {results}")
            return []
        return list(results[0].result.history)

    def _check_message(self, sent: SentMessage, histories: dict[str, list[str]]) -> None:
        found = [task_id for task_id, history in histories.items() for message in history if message == sent.id]
        if sent.refusal is not None and sent.task_id is None:
            if found:
                self._report(
                    f"{sent!r} was refused with {sent.refusal!r}, and is in {found}",
                    sent.task_id or next(iter(found), None),
                )
        elif sent.task_id is None:
            self._report(f"{sent!r} was never answered; it is in {found}", sent.request.message.task_id)
        elif sent.task_id == "":
            if found:
                self._report(
                    f"{sent!r} was answered with a reply, and is in {found}", sent.task_id or next(iter(found), None)
                )
        elif found != [sent.task_id]:
            self._report(
                f"{sent!r} was accepted for {sent.task_id}, and is in {found}", sent.task_id or next(iter(found), None)
            )

    def _check_webhooks(self, number: int, row: TaskRow) -> None:
        """Every event since a webhook was registered has arrived, and the first time in order.

        Its cursor may be behind what has arrived, when that could not be saved: the next server sends that again.
        """
        for push in self._query(self._audit.run(queries.pushes, number)):
            arrived = self._cluster.receiver.arrived.get((row.id, push.id), [])
            firsts = list(dict.fromkeys(arrived))
            is_in_order = firsts == list(range(firsts[0], firsts[-1] + 1)) if firsts else push.cursor == row.generation
            if not is_in_order or max(push.cursor, *firsts, 0) < row.generation:
                self._report(f"a webhook of {row.id} got {arrived} of {row.generation}, and is {push}", row.id)

    def _check_reader(self, reader: Reader) -> None:
        number = self._audit.numbers_by_id.get(reader.task_id or "")
        if number is None:
            self._report(f"a reader has read {reader.task_id}, which was never committed")
            return
        row, journal = self._audit.rows[number], self._audit.journals[number]
        for generation, body in reader.bodies.items():
            if journal.get(generation) != body:
                self._report(f"a reader of {reader.task_id} has got another event {generation}")
        done = reader.finished or not row.state.final
        where = f"{reader.node.name}, which is {'open' if reader.in_flight else 'broken'}"
        if not done or (
            row.state.final and not reader.ends_on_input_required and reader.last not in (0, row.generation)
        ):
            self._report(
                f"a stream of {reader.task_id} at {where} has ended at {reader.last} of {row.generation}",
                reader.task_id,
            )
        elif not reader.finished and reader.last != row.generation:
            self._report(
                f"a stream of {reader.task_id} at {where} is at {reader.last} of {row.generation}", reader.task_id
            )
